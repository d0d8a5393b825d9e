"""By how much a service's memory grows while eight large files come in at once."""

import asyncio
from collections.abc import Iterator

from experiments.bench.fleet import Fleet, System, services
from experiments.bench.measuring import Bench, Figure, Pairs
from experiments.bench.payloads import SIZES, Payload, write_model
from experiments.bench.usage import Peak

UPLOADS = 8


async def _grown(bench: Bench, system: System, size: str) -> float:
    model = bench.folder / "model.safetensors"
    payload = Payload.of(write_model(size, model), 0)
    await system.create(model, UPLOADS + 1)
    fleet = Fleet(system, [payload], UPLOADS + 1, watchers=1)
    await fleet.enrol()
    await fleet.begin()
    with Peak(system.pid) as peak:
        await fleet.upload(range(1, UPLOADS + 1), fetch=False)
    await system.http.aclose()
    return peak.grown


def measure(bench: Bench) -> Iterator[Figure]:
    """One figure; the last device sends nothing, so that no round is computed beside."""
    size = bench.pick("wide", "M")
    with services(bench.folder) as system:
        what = f"memory that {UPLOADS} uploads of {SIZES[size]} at once take"
        ours = [asyncio.run(_grown(bench, system("ours"), size))]
        bare = [asyncio.run(_grown(bench, system("bare"), size))]
    yield Figure(what, "MB", "the bare reference service", Pairs.of(ours, bare))
