"""How a service grows with its clients: enrolment, uploads, the close of a round, memory. A model of 20 KB."""

import asyncio
import time
from collections.abc import Iterator

from experiments.bench.fleet import Fleet, System, services
from experiments.bench.measuring import Bench, Figure, Pairs
from experiments.bench.payloads import Payload, check_mean, write_model
from experiments.bench.usage import Peak

_PAYLOADS = 256
"""Different updates at most; beyond them devices repeat each other's."""


async def _one(bench: Bench, system: System, clients: int) -> dict[str, float]:
    model = bench.folder / "tiny.safetensors"
    base = write_model("tiny", model)
    payloads = [Payload.of(base, number) for number in range(min(clients, _PAYLOADS))]
    fleet = Fleet(system, payloads, clients, watchers=1)
    with Peak(system.pid) as peak:
        await system.create(model, clients)
        enrolled = await fleet.enrol()
        await fleet.begin()
        begun = time.perf_counter()
        sent = await fleet.upload(range(clients))
        closed, _ = await fleet.woken()
    if clients <= _PAYLOADS:
        await fleet.fetch(bench.folder / "round.safetensors")
        check_mean(bench.folder / "round.safetensors", base, clients)
    await system.http.aclose()
    return {
        "enrolments/s": clients / enrolled,
        "uploads/s": clients / (sent - begun),
        "s until closed": max(closed - sent, 1e-4),  # as in `rounds`
        "MB": peak.most,
    }


def measure(bench: Bench) -> Iterator[Figure]:
    """Four figures a number of clients; one round of a new federation is one repetition."""
    numbers = [number for number in (10, 100, 1000, 10_000) if number <= bench.pick(bench.clients, 100)]
    for clients in numbers:
        found: dict[str, tuple[list[float], list[float]]] = {}
        with services(bench.folder / f"{clients}") as system:
            for _ in bench.track(f"{clients} clients", 3 if clients <= 100 else 1):
                for side, name in enumerate(("ours", "bare")):
                    taken = asyncio.run(_one(bench, system(name), clients))
                    for unit, value in taken.items():
                        found.setdefault(unit, ([], []))[side].append(value)
        for unit, (ours, bare) in found.items():
            yield Figure(f"{clients:,} clients", unit, "the bare reference service", Pairs.of(ours, bare))
