"""Real processes on real sockets: the commands of `potstill up`, one by one so that they can be killed one by one.

Also a small federation for them: data that a tiny network learns, and three devices.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from client_sdk import OperatorClient, RunReport, train_and_push
from contract.tensors import write_file
from contract.wire.federations import FederationCreate
from service.config import Settings
from service.operations.access.tokens import ensure_operator_token
from service.persistence import migrate

ROOT = Path(__file__).parents[1]
SHAPE = [1, 8, 8]
CLASSES = 4
NAMES = ("east", "north", "west")


def wait_for(what: Callable[[], Any], seconds: float = 60.0, why: str = "") -> Any:
    """Return what() as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds:g} s in vain: {why or what}")


JOBS = "service.operations.progress.jobs"
QUICK: dict[str, float | str] = {"service.app.SWEEP_SECONDS": 0.3, "worker.checkpoints.EVERY_SECONDS": 0.2}
_NOT_FOR = {"uvicorn": "worker.", "celery": "service.app.", "worker": "service.app."}


class Deployment:
    """An API and a worker in one folder, each a process group of its own.

    Args:
        home: the folder.
        port: of the API; 0 for any free one.
        constants: other values of the code's constants, by their dotted names, on top of `QUICK`; `clock` is
            the file by which its programs' clock is moved (`tools.paced`).
        env: settings.
    """

    def __init__(self, home: Path, port: int = 0, constants: Mapping[str, float | str] | None = None, **env: str):
        self.home, self._constants = home, {**QUICK, **(constants or {})}
        home.mkdir(parents=True, exist_ok=True)
        self.env = (
            os.environ
            | {
                "POTSTILL_HOME": str(home),
                "POTSTILL_LEASE_SECONDS": "2",
                "POTSTILL_TORCH_THREADS": "1",
                "POTSTILL_DEVICE": "cpu",
                "PYTHONPATH": str(ROOT),
            }
            | env
        )
        changes = {name.removeprefix("POTSTILL_").lower(): value for name, value in env.items()}
        self.settings = Settings(**{"home": home, **changes})  # type: ignore[arg-type]
        migrate.upgrade(self.settings)
        self.token = ensure_operator_token(self.settings) or ""
        self._listener = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.operator = OperatorClient(self.url, self.token)

    def _start(self, name: str, *command: str, **more: Any) -> None:
        other = _NOT_FOR.get(command[0], "-")
        constants = {place: value for place, value in self._constants.items() if not place.startswith(other)}
        with open(self.home / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tools.paced", json.dumps(constants), *command], env=self.env, cwd=ROOT,
                stdout=log, stderr=log, start_new_session=True, **more,
            )  # fmt: skip

    def start_api(self) -> None:
        number = self._listener.fileno()
        command = ["uvicorn", "service.app:create_app", "--factory", "--fd", str(number), "--no-access-log"]
        command += ["--http", "service.infra.protocol:BoundedHttp", "--no-server-header", "--no-proxy-headers"]
        self._start("api", *command, pass_fds=(number,))
        wait_for(self._answers, 180, why="the API does not answer")  # a machine that is busy is no fault

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def start_worker(self, name: str = "worker", app: str = "worker.app", threads: int = 1) -> None:
        """Start a worker: as `potstill up` does, unless a broker is named or `app` is one of Celery's own."""
        if self.settings.broker_url is None and app == "worker.app":
            self._start(name, "worker", "alone")
            return
        options = [f"--concurrency={threads}", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        self._start(name, "celery", "-A", app, "worker", "--pool=threads", *options, "--loglevel=INFO")

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def ended(self, name: str) -> bool:
        """Whether a process has ended by itself."""
        return self._processes[name].poll() is not None

    def kill(self, name: str) -> None:
        """SIGKILL a process and everything it started."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)
        self.operator.close()
        self._listener.close()

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")


@contextlib.contextmanager
def running(deployment: Deployment, worker: bool = True) -> Iterator[Deployment]:
    """Start an installation's API, and a worker unless told otherwise; end them, however it goes."""
    try:
        deployment.start_api()
        if worker:
            deployment.start_worker()
        yield deployment
    finally:
        deployment.close()


def images(seed: int, count: int, classes: list[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return images of `CLASSES` kinds (a bright quarter each) with noise, and their labels."""
    random = np.random.default_rng(seed)
    labels = random.choice(classes or list(range(CLASSES)), size=count).astype(np.int64)
    pictures = random.random((count, *SHAPE), dtype=np.float32) * 0.3
    for picture, label in zip(pictures, labels, strict=True):
        row, column = divmod(int(label), 2)
        picture[0, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] += 0.7
    return pictures, labels


def add_server_data(deployment: Deployment) -> None:
    """Register `server` (unlabelled) and `test` (labelled)."""
    pictures, labels = images(99, 200)
    write_file(deployment.home / "server.safetensors", {"inputs": pictures})
    deployment.operator.add_dataset("server", deployment.home / "server.safetensors")
    pictures, labels = images(98, 120)
    write_file(deployment.home / "test.safetensors", {"inputs": pictures, "labels": labels})
    deployment.operator.add_dataset("test", deployment.home / "test.safetensors")


def federation_request(name: str, recipe: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the body of a small federation of three clients."""
    return {
        "name": name,
        "task": {"num_classes": CLASSES, "input": {"shape": SHAPE}},
        "prototypes": [{"name": "main", "architecture": "cnn-digits"}],
        "recipe": recipe,
        "local": {"optimizer": {"kind": "adam", "lr": 0.001}, "epochs": 2, "batch_size": 16},
        "rounds": {"total": 2, "min_clients": 3, "min_updates": 3},
        "datasets": {"unlabeled": "server", "test": "test"},
        "seed": 7,
    } | more


def at_once(
    deployment: Deployment, names: Iterable[str], device: Callable[[int, str], RunReport]
) -> dict[str, RunReport]:
    """Run device(number, name) of each name in a thread of its own; return what they report, by name."""
    reports: dict[str, RunReport] = {}
    errors: list[Exception] = []

    def run(number: int, name: str) -> None:
        try:
            reports[name] = device(number, name)
        except Exception as error:  # noqa: BLE001 - it is reported in the main thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=150)
    assert not errors, errors
    assert len(reports) == len(threads), f"no end in sight; worker log:\n{deployment.log('worker')[-3000:]}"
    return reports


def run_devices(deployment: Deployment, federation: str, join_token: str, folder: Path) -> dict[str, RunReport]:
    """Run three devices, each a thread with skewed data, to the end of the federation."""

    def device(number: int, name: str) -> RunReport:
        data = images(number, 60 + 10 * number, classes=[number, number + 1])
        return train_and_push(
            deployment.url,
            data,
            federation=federation,
            join_token=join_token,
            name=name,
            state_dir=folder / name,
            device="cpu",
            progress=False,
            label_counts=np.bincount(data[1], minlength=CLASSES).tolist(),
        )

    return at_once(deployment, NAMES, device)


def run_federation(deployment: Deployment, folder: Path, request: dict[str, Any]) -> tuple[Any, dict[str, RunReport]]:
    """Create, start and finish a federation; return it and the devices' reports."""
    created = deployment.operator.create_federation(FederationCreate.model_validate(request))
    deployment.operator.start_federation(created.id)
    reports = run_devices(deployment, created.id, created.join_token, folder)
    return deployment.operator.federation(created.id), reports
