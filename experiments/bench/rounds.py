"""A whole round of FedAvg over HTTP, training left out: ours against the bare reference service."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from experiments.bench.fleet import Fleet, System, services
from experiments.bench.measuring import Bench, Figure, Pairs
from experiments.bench.payloads import SIZES, Payload, check_mean, write_model
from experiments.bench.usage import Peak, processor_seconds

CELLS = (("S", 4), ("S", 32), ("M", 4))
"""(model, clients)."""


@dataclass
class Measured:
    """What rounds of one service took, round by round.

    Attributes:
        seconds: from the first download until the last device knows of the next model.
        close: from the last receipt until a new model can be fetched.
        wake: from then until the last device knows of it.
        processor: seconds of all its processes.
        most: memory of them at its peak, MB.
    """

    seconds: list[float] = field(default_factory=list)
    close: list[float] = field(default_factory=list)
    wake: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def add(self, begun: float, sent: float, first: float, last: float) -> None:
        """Note the moments of a round."""
        self.seconds.append(last - begun)
        self.close.append(max(first - sent, 1e-4))  # whoever waits may hear of it before the last receipt is read
        self.wake.append(max(last - first, 1e-4))


async def _one(fleet: Fleet, measured: Measured) -> None:
    pid = fleet.system.pid
    before = processor_seconds(pid)
    with Peak(pid) as peak:
        begun = time.perf_counter()
        sent = await fleet.upload(range(fleet.clients))
        measured.add(begun, sent, *await fleet.woken())
    measured.processor.append(processor_seconds(pid) - before)
    measured.most.append(peak.most)


async def _run(bench: Bench, systems: list[System], size: str, clients: int, times: int) -> list[Measured]:
    """Let rounds of both services alternate; the first of each does not count."""
    model = bench.folder / f"{size}-{clients}.safetensors"
    base = write_model(size, model)
    payloads = [Payload.of(base, number) for number in range(clients)]
    fleets, found = [], [Measured() for _ in systems]
    for system in systems:
        await system.create(model, clients)
        fleet = Fleet(system, payloads, clients, watchers=clients)
        await fleet.enrol()
        await fleet.begin()
        await _one(fleet, Measured())
        fleets.append(fleet)
    for _ in bench.track(f"{clients} clients, {SIZES[size]}", times):
        for fleet, measured in zip(fleets, found, strict=True):
            await _one(fleet, measured)
    for fleet in fleets:
        kept = bench.folder / "round.safetensors"
        await fleet.fetch(kept)
        check_mean(kept, base, clients)
        await fleet.system.http.aclose()
    return found


def cell(bench: Bench, size: str, clients: int, times: int) -> tuple[Measured, Measured]:
    """Return what rounds of so many clients take with our service, and with the bare one, in turns."""
    folder = Path(bench.folder) / f"{size}-{clients}"
    with services(folder) as system:

        async def run() -> list[Measured]:
            return await _run(bench, [system("ours"), system("bare")], size, clients, times)

        ours, bare = asyncio.run(run())
    return ours, bare


def measure(bench: Bench) -> Iterator[Figure]:
    """Seconds, processor time and memory of a round, a cell after the other."""
    for size, clients in bench.pick(CELLS, CELLS[:2]):
        ours, bare = cell(bench, size, clients, bench.pick(7, 3))
        what, against = f"round of {clients} clients, {SIZES[size]}", "the bare reference service"
        yield Figure(what, "s", against, Pairs.of(ours.seconds, bare.seconds))
        yield Figure(
            f"{what}: processor time of the service", "cpu s", against, Pairs.of(ours.processor, bare.processor)
        )
        yield Figure(f"{what}: memory of the service", "MB", against, Pairs.of(ours.most, bare.most))
