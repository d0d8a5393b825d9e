"""Uploads: those of devices to our service against a bare loop that writes, hashes and fsyncs the same bytes."""

import asyncio
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.bench.fleet import Fleet, System, services
from experiments.bench.measuring import Bench, Figure, Pairs, timed
from experiments.bench.payloads import SIZES, Payload, write_model


def bare_loop(folder: Path, payloads: Sequence[Payload]) -> None:
    """Write, hash and fsync one file after another; each has its name when it is whole."""
    for number, payload in enumerate(payloads):
        digest, part = hashlib.sha256(), folder / f"{number}.part"
        with part.open("wb", buffering=0) as file:
            for piece in payload.chunks(payload.head({})):
                digest.update(piece)
                file.write(piece)
            os.fsync(file.fileno())
        os.replace(part, folder / digest.hexdigest())


async def _run(bench: Bench, system: System, size: str, uploads: int, times: int) -> tuple[list[float], list[float]]:
    """Return the seconds of both sides, in turns; each repetition has devices of its own, and no round ends."""
    model, loop = bench.folder / f"{size}.safetensors", bench.folder / f"loop-{size}"
    base = write_model(size, model)
    loop.mkdir()
    payloads = [Payload.of(base, number) for number in range(uploads)]
    await system.create(model, uploads * (times + 1) + 1)
    fleet = Fleet(system, payloads, uploads * (times + 1) + 1, watchers=1)
    await fleet.enrol()
    await fleet.begin()
    ours, bare = [], []
    for number in bench.track(f"uploads of {SIZES[size]}", times + 1):
        bare.append(timed(lambda: bare_loop(loop, payloads))().value)
        begun = asyncio.get_running_loop().time()
        mine = range(1 + number * uploads, 1 + (number + 1) * uploads)
        await fleet.upload(mine, fetch=False)
        ours.append(asyncio.get_running_loop().time() - begun)
    await system.http.aclose()
    return ours[1:], bare[1:]


def measure(bench: Bench) -> Iterator[Figure]:
    """Uploads a second of small models, megabytes a second of large ones."""
    cells = (("tiny", 64, "uploads/s"), ("S", 32, "uploads/s"), ("M", 4, "MB/s"))
    for size, uploads, unit in cells:
        with services(bench.folder / size) as system:
            ours, bare = asyncio.run(_run(bench, system("ours"), size, uploads, bench.pick(5, 3)))
        amount = float(uploads)
        if unit == "MB/s":
            amount *= (bench.folder / f"{size}.safetensors").stat().st_size / 1e6
        what = f"uploads of {SIZES[size]}, {uploads} at once"
        pairs = Pairs.of((amount / each for each in ours), (amount / each for each in bare))
        yield Figure(what, unit, "a loop that writes, hashes, fsyncs", pairs)
