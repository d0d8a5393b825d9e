"""The least that a service of rounds over HTTP can be: no tokens, no database, no digests, nothing durable.

Bodies go to disk as they come; at the last one a single pass averages the files in float32, and whoever waits is told.
It is what our service is measured against, and the shape of a peer: `experiments/bench/README.md`.
"""

import asyncio
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

_ROOT = Path(__file__).parents[2]
_CHUNK = 1 << 20
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass
class _Round:
    updates: dict[str, tuple[Path, float]] = field(default_factory=dict)
    closed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class _State:
    """One federation: its folder, how many updates make a round, and its rounds."""

    folder: Path
    wanted: int = 1
    clients: int = 0
    rounds: list[_Round] = field(default_factory=lambda: [_Round()])
    attempts: Any = field(default_factory=itertools.count)

    @property
    def model(self) -> Path:
        return self.folder / "model.safetensors"

    def close(self, finished: _Round) -> None:
        """Average a round's files into the model."""
        total = sum(weight for _, weight in finished.updates.values())
        opened = [(safe_open(path, "numpy"), weight / total) for path, weight in finished.updates.values()]
        mean: dict[str, Any] = {}
        for name in opened[0][0].keys():  # type: ignore[no-untyped-call]  # noqa: SIM118  # no mapping
            for file, share in opened:
                values = file.get_tensor(name)  # type: ignore[no-untyped-call]
                if values.dtype.kind != "f":
                    mean[name] = values
                elif name in mean:
                    mean[name] += values * np.float32(share)
                else:
                    mean[name] = values * np.float32(share)
        save_file(mean, self.model.with_suffix(".new"))
        os.replace(self.model.with_suffix(".new"), self.model)


_state = _State(Path(os.environ.get("BENCH_REFERENCE", ".")))
_UPDATE, _ROUND = re.compile(r"/rounds/(\d+)/updates/(\w+)"), re.compile(r"/rounds/(\d+)")


async def _to_file(receive: Receive, path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError("the client went away")
            file.write(message.get("body", b""))
            more = message.get("more_body", False)


async def _answer(send: Send, status: int, body: Mapping[str, Any]) -> None:
    raw = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


async def _send_model(send: Send) -> None:
    with _state.model.open("rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size
        headers = [(b"content-length", str(left).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while left:
            block = file.read(_CHUNK)
            left -= len(block)
            await send({"type": "http.response.body", "body": block, "more_body": left > 0})


async def _take(receive: Receive, send: Send, index: int, client: str, weight: float) -> None:
    part = _state.folder / f"{client}.{next(_state.attempts)}"  # a name an attempt: a late end must not meet its retry
    await _to_file(receive, part)
    current = _state.rounds[index]
    kept = _state.folder / f"{client}.safetensors"
    os.replace(part, kept)
    current.updates[client] = (kept, weight)
    last = len(current.updates) == _state.wanted
    await _answer(send, 201, {})
    if last:
        await asyncio.to_thread(_state.close, current)
        _state.rounds.append(_Round())
        current.closed.set()


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """PUT /model?wanted=N begins; POST /clients; GET /model; PUT /rounds/R/updates/C?weight=W; GET /rounds/R waits."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    path, given = scope["path"], dict(each.split("=") for each in scope["query_string"].decode().split("&") if each)
    if path == "/model" and scope["method"] == "PUT":
        await _to_file(receive, _state.model)
        _state.wanted, _state.clients, _state.rounds = int(given["wanted"]), 0, [_Round()]
        await _answer(send, 201, {})
    elif path == "/model":
        await _send_model(send)
    elif path == "/clients":
        _state.clients += 1
        await _answer(send, 201, {"id": f"c{_state.clients}"})
    elif found := _UPDATE.fullmatch(path):
        await _take(receive, send, int(found[1]), found[2], float(given["weight"]))
    elif found := _ROUND.fullmatch(path):
        await _state.rounds[int(found[1])].closed.wait()
        await _answer(send, 200, {"closed": True})
    else:
        await _answer(send, 404 if path != "/healthz" else 200, {})


class Reference:
    """The reference service in a process of its own, as a context manager; `url` inside."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.url = folder, ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0), backlog=2048) as bound:
            self.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
            command = ["-m", "uvicorn", "experiments.bench.reference:app", "--fd", str(bound.fileno())]
            more = ["--app-dir", str(_ROOT), "--log-level", "warning", "--no-access-log"]
            self._process = subprocess.Popen(
                [sys.executable, *command, *more],
                env=os.environ | {"BENCH_REFERENCE": str(self._folder)},
                pass_fds=(bound.fileno(),),
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid if self._process else None

    def _wait(self, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                httpx.get(f"{self.url}/healthz", timeout=5, trust_env=False).raise_for_status()
            except httpx.HTTPError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"the reference service did not answer within {seconds:g} s")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
