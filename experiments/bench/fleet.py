"""Many devices of one federation in one process: against our service, or against the bare one.

Devices do what the SDK does over HTTP, without training: they wait for a round in a long poll, fetch its model, send it
back with a constant added, and wait for the next.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from contract.wire.federations import FederationCreate
from experiments.bench.payloads import Payload, samples
from experiments.bench.reference import Reference
from potstill.demo.service import LocalService

T = TypeVar("T")
_POLL = 60.0


def connect(url: str) -> httpx.AsyncClient:
    """Return a client with as many connections as are asked for."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=600, limits=limits)


async def _pieces(payload: Payload, head: bytes) -> AsyncIterator[bytes]:
    for piece in payload.chunks(head):
        yield piece


class System(ABC):
    """A service as its devices see it; `create` first, then `enrol` each of them.

    Attributes:
        name: of the service, for figures.
        pid: of its first process.
    """

    name = ""

    def __init__(self, url: str, pid: int):
        self.pid, self.http = pid, connect(url)

    @abstractmethod
    async def create(self, model: Path, clients: int) -> None:
        """Begin a federation whose rounds close with the last of so many updates."""

    @abstractmethod
    async def enrol(self, number: int) -> None:
        """Enrol a device."""

    @abstractmethod
    async def opened(self, number: int, after: Any) -> Any:
        """Wait, as a device, for a round other than `after`; return what the calls below are given."""

    @abstractmethod
    def model_of(self, round_: Any, number: int) -> tuple[str, dict[str, str]]:
        """Return the address of a round's model and the headers to fetch it with."""

    @abstractmethod
    async def send(self, round_: Any, number: int, payload: Payload) -> None:
        """Send a device's update; come back when it counts."""

    async def fetch(self, round_: Any, number: int, keep: Path | None = None) -> None:
        """Fetch a round's model, and keep it where that is asked for."""
        url, headers = self.model_of(round_, number)
        file = None if keep is None else keep.open("wb")
        async with self.http.stream("GET", url, headers=headers | {"accept-encoding": "identity"}) as answer:
            answer.raise_for_status()
            async for block in answer.aiter_raw():
                if file is not None:
                    file.write(block)
        if file is not None:
            file.close()

    async def _put(self, url: str, payload: Payload, head: bytes, **given: Any) -> None:
        headers = given.pop("headers", {}) | {"content-length": str(len(head) + len(payload.values))}
        answer = await self.patient(
            lambda: self.http.put(url, content=_pieces(payload, head), headers=headers, **given)
        )
        answer.raise_for_status()

    @staticmethod
    async def patient(ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
        """Ask again as long as the service says when to."""
        while (answer := await ask()).status_code in (429, 503):
            await asyncio.sleep(float(answer.headers.get("retry-after", 0.1)))
        return answer


class Ours(System):
    """Potstill: `potstill up` with tokens, database, digests and a worker."""

    name = "potstill"

    def __init__(self, url: str, pid: int, token: str):
        super().__init__(url, pid)
        self._operator = {"authorization": f"Bearer {token}"}
        self._tokens: dict[int, dict[str, str]] = {}
        self._joins: dict[str, str] = {}
        self.federation = ""

    async def create(self, model: Path, clients: int) -> None:
        """Import the model; rounds of `fedavg` over it."""
        headers = self._operator | {"content-type": "application/octet-stream"}
        given: dict[str, Any] = {"params": {"architecture": "custom"}, "headers": headers}
        imported = (await self.http.post("/v1/models", content=model.read_bytes(), **given)).raise_for_status()
        body = FederationCreate.model_validate({
            "name": f"bench-{time.time_ns()}",
            "task": {"num_classes": 10, "input": {"shape": [1]}},
            "recipe": {"name": "fedavg"},
            "prototypes": [{"architecture": "custom", "initial_model": imported.json()["id"]}],
            "rounds": {"total": 10_000, "min_clients": clients, "min_updates": clients, "deadline_seconds": 86_400},
        }).model_dump(mode="json")  # fmt: skip
        made = (await self.http.post("/v1/federations", json=body, headers=self._operator)).raise_for_status().json()
        self.federation, self._joins = made["id"], {"authorization": f"Bearer {made['join_token']}"}
        started = await self.http.post(f"/v1/federations/{self.federation}/start", headers=self._operator)
        started.raise_for_status()

    async def enrol(self, number: int) -> None:
        """POST /v1/federations/{id}/clients."""
        url, body = f"/v1/federations/{self.federation}/clients", {"name": f"d{number}", "num_samples": samples(number)}
        answer = await self.patient(lambda: self.http.post(url, json=body, headers=self._joins))
        self._tokens[number] = {"authorization": f"Bearer {answer.raise_for_status().json()['token']}"}

    async def opened(self, number: int, after: Any) -> Any:
        """GET /v1/assignment, again and again."""
        given: dict[str, Any] = {"params": {"wait": _POLL}, "headers": self._tokens[number]}
        while True:
            answer = await self.patient(lambda: self.http.get("/v1/assignment", **given))
            found = answer.raise_for_status().json()
            if found["action"] == "train" and (after is None or found["round"]["id"] != after["round"]["id"]):
                return found

    def model_of(self, round_: Any, number: int) -> tuple[str, dict[str, str]]:
        """It is in the assignment."""
        return round_["model"]["url"], self._tokens[number]

    async def send(self, round_: Any, number: int, payload: Payload) -> None:
        """PUT where the assignment says."""
        head = payload.head({"num_samples": str(samples(number)), "base_model": round_["model"]["id"]})
        headers = self._tokens[number] | {"content-type": "application/octet-stream"}
        await self._put(round_["upload_url"], payload, head, headers=headers)


class Bare(System):
    """The reference service; its rounds are numbers."""

    name = "reference service"

    async def create(self, model: Path, clients: int) -> None:
        """PUT /model."""
        made = await self.http.put("/model", params={"wanted": clients}, content=model.read_bytes())
        made.raise_for_status()

    async def enrol(self, number: int) -> None:
        """POST /clients."""
        (await self.http.post("/clients")).raise_for_status()

    async def opened(self, number: int, after: Any) -> Any:
        """GET /rounds/R, which comes back when the round is closed; the first is open from the start."""
        if after is None:
            return 0
        (await self.http.get(f"/rounds/{after}")).raise_for_status()
        return after + 1

    def model_of(self, round_: Any, number: int) -> tuple[str, dict[str, str]]:
        """There is one."""
        return "/model", {}

    async def send(self, round_: Any, number: int, payload: Payload) -> None:
        """PUT /rounds/R/updates/C."""
        await self._put(
            f"/rounds/{round_}/updates/d{number}", payload, payload.head({}), params={"weight": samples(number)}
        )


@contextmanager
def services(folder: Path) -> Iterator[Callable[[str], System]]:
    """Start both services; yield a function that connects to 'ours' or 'bare', for use in one event loop."""
    folder.mkdir(parents=True, exist_ok=True)
    with LocalService(folder / "home", folder / "log") as ours, Reference(folder / "bare") as bare:

        def system(name: str) -> System:
            if name == "ours":
                return Ours(ours.url, ours.pid or 0, ours.token)
            return Bare(bare.url, bare.pid or 0)

        yield system


@dataclass
class Fleet:
    """Devices of one federation.

    Attributes:
        payloads: of the devices; device k sends number k modulo their count.
        clients: how many.
        watchers: how many of them wait in long polls; the others learn of rounds from the first.
        at_once: most uploads on their way.
    """

    system: System
    payloads: Sequence[Payload]
    clients: int
    watchers: int
    at_once: int = 64
    _next: list[asyncio.Task[Any]] = field(default_factory=list)
    _now: list[Any] = field(default_factory=list)

    async def enrol(self) -> float:
        """Enrol all, sixteen at a time; return the seconds."""
        begun = time.perf_counter()
        await gathered(16, self.system.enrol, range(self.clients))
        return time.perf_counter() - begun

    async def begin(self) -> None:
        """Wait for the first round."""
        self._now = list(await asyncio.gather(*(self.system.opened(number, None) for number in range(self.watchers))))

    async def upload(self, numbers: Sequence[int], *, fetch: bool = True) -> float:
        """Let some devices fetch the round's model and send their updates; return the moment of the last receipt."""

        async def one(number: int) -> None:
            round_ = self._now[number if number < self.watchers else 0]
            if fetch:
                await self.system.fetch(round_, number)
            await self.system.send(round_, number, self.payloads[number % len(self.payloads)])
            if number < self.watchers:
                self._next.append(asyncio.ensure_future(self._woken(number, round_)))

        self._next = []
        await gathered(self.at_once, one, numbers)
        return time.perf_counter()

    async def _woken(self, number: int, round_: Any) -> tuple[int, Any, float]:
        found = await self.system.opened(number, round_)
        return number, found, time.perf_counter()

    async def woken(self) -> tuple[float, float]:
        """Wait until all watchers know of the next round; return the moments of the first and of the last."""
        woken = await asyncio.gather(*self._next)
        for number, found, _ in woken:
            self._now[number] = found
        moments = [moment for _, _, moment in woken]
        return min(moments), max(moments)

    async def fetch(self, keep: Path) -> None:
        """Fetch the newest model."""
        await self.system.fetch(self._now[0], 0, keep)


async def gathered(at_once: int, work: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> None:
    """Do it for all numbers, so many at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with gate:
            await work(number)

    await asyncio.gather(*(one(number) for number in numbers))
