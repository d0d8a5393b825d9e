"""What a service takes with 10 to 10,000 devices of a small model: enrolment, uploads, the close of a round.

    python -m experiments.growth --clients 10 100 1000 --output growth.json --plot docs/img/scale-growth.png

One new installation (`potstill up`: SQLite, a folder, one worker) for each number of devices. Devices are those of
`make bench`, which train nothing: each asks for its assignment, fetches the model of 4,810 values and sends it back. Up
to 300 of them wait in long polls, the others ask when it is their turn. The main figure is processor seconds of all the
service's processes: the devices run beside it, and whoever else keeps the machine busy changes these the least.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from tqdm import tqdm

from experiments.bench import machine
from experiments.bench.fleet import Ours, gathered
from experiments.bench.payloads import Payload, check_mean, write_model
from experiments.bench.usage import Peak, processor_seconds
from potstill.demo.service import LocalService

WATCHERS = 300
"""Most devices that wait in long polls; the others ask when they upload."""
AT_ONCE = 64
"""Most requests of enrolment, and of devices that upload, on their way at a moment."""
PAYLOADS = 256
"""Different updates at most; beyond them devices repeat each other's."""
LIMITS = {"POTSTILL_MAX_CLIENTS": "100000"}
PHASES = ("enrolment", "upload", "close")


@dataclass(frozen=True)
class Phase:
    """What a part of a round took.

    Attributes:
        seconds: by the clock.
        processor: seconds of all processes of the service.
    """

    seconds: float
    processor: float


@dataclass(frozen=True)
class Grown:
    """What one number of devices took.

    Attributes:
        clients: how many.
        enrolment: of all.
        upload: each asks for its assignment, fetches the model, sends its update; up to the last receipt.
        close: from the last receipt until a device that waits knows of the next model.
        memory: of all processes of the service at its peak, MB.
        database: its files at the end, MB.
        load: of the machine before, the average of a minute.
    """

    clients: int
    enrolment: Phase
    upload: Phase
    close: Phase
    memory: float
    database: float
    load: float


class _Clock:
    """Takes the time of one phase after the other."""

    def __init__(self, pid: int):
        self._pid = pid
        self._begun, self._before = time.perf_counter(), processor_seconds(pid)

    def lap(self) -> Phase:
        """Return what passed since the last one."""
        now, used = time.perf_counter(), processor_seconds(self._pid)
        phase = Phase(now - self._begun, used - self._before)
        self._begun, self._before = now, used
        return phase


def _size(home: Path) -> float:
    return sum(path.stat().st_size for path in home.glob("*.db*")) / 1e6


async def _round(system: Ours, folder: Path, clients: int) -> tuple[Phase, Phase, Phase]:
    """Enrol, let everybody take part in one round, wait for its model."""
    model = folder / "tiny.safetensors"
    base = write_model("tiny", model)
    payloads = [Payload.of(base, number) for number in range(min(clients, PAYLOADS))]
    await system.create(model, clients)
    bar, waiting = tqdm(total=2 * clients, desc=f"{clients:,} devices"), list[asyncio.Task[Any]]()

    async def enrol(number: int) -> None:
        await system.enrol(number)
        bar.update()

    async def deliver(number: int) -> None:
        round_ = rounds[number] if number in rounds else await system.opened(number, None)
        await system.fetch(round_, number)
        await system.send(round_, number, payloads[number % len(payloads)])
        if number < WATCHERS:
            waiting.append(asyncio.ensure_future(system.opened(number, round_)))
        bar.update()

    clock = _Clock(system.pid)
    await gathered(AT_ONCE, enrol, range(clients))
    enrolment = clock.lap()
    watchers = range(min(clients, WATCHERS))
    polled = await asyncio.gather(*(system.opened(number, None) for number in watchers))
    rounds = dict(zip(watchers, polled, strict=True))
    await gathered(AT_ONCE, deliver, range(clients))
    upload = clock.lap()
    following, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    close = clock.lap()
    await asyncio.gather(*waiting)
    bar.close()
    if clients <= PAYLOADS:
        await system.fetch(next(iter(following)).result(), 0, folder / "round.safetensors")
        check_mean(folder / "round.safetensors", base, clients)
    return enrolment, upload, close


def measured(clients: int, folder: Path) -> Grown:
    """Return what so many devices take of a new installation.

    Args:
        folder: empty; the installation's, and the log's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    load = round(os.getloadavg()[0], 1)

    async def run(service: LocalService) -> tuple[Phase, Phase, Phase]:
        system = Ours(service.url, service.pid or 0, service.token)
        try:
            return await _round(system, folder, clients)
        finally:
            await system.http.aclose()

    with LocalService(folder / "home", folder / "log", env=LIMITS) as service, Peak(service.pid or 0) as peak:
        phases = asyncio.run(run(service))
        return Grown(clients, *phases, peak.most, _size(folder / "home"), load)


def table(found: Sequence[Grown]) -> list[str]:
    """Return rows: processor milliseconds a device, and the clock's, of each phase; memory and database."""
    head = [
        "devices",
        *(f"{phase}, cpu ms (clock ms) a device" for phase in PHASES),
        "memory, MB",
        "database, MB",
        "load",
    ]
    rows = [head, ["---"] * len(head)]
    for each in found:
        phases: list[Phase] = [getattr(each, phase) for phase in PHASES]
        cells = [f"{1e3 * p.processor / each.clients:.1f} ({1e3 * p.seconds / each.clients:.1f})" for p in phases]
        rows.append([f"{each.clients:,}", *cells, f"{each.memory:.0f}", f"{each.database:.1f}", f"{each.load:g}"])
    return [f"| {' | '.join(row)} |" for row in rows]


def draw(path: Path, found: Sequence[Grown]) -> None:
    """Draw seconds by devices, both logarithmic: of the processor, of the clock (dotted), in proportion (grey)."""
    figure, axis = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    clients = [each.clients for each in found]
    for phase, color in zip(PHASES, ("#1f77b4", "#d62728", "#2ca02c"), strict=True):
        taken: list[Phase] = [getattr(each, phase) for each in found]
        used = [p.processor for p in taken]
        axis.plot(clients, used, color=color, marker="o", label=f"{phase}, processor")
        axis.plot(clients, [p.seconds for p in taken], color=color, linestyle=":", alpha=0.7, label=f"{phase}, clock")
        middle = len(clients) // 2
        straight = [used[middle] * n / clients[middle] for n in clients]
        axis.plot(
            clients,
            straight,
            color="#999999",
            linewidth=0.8,
            zorder=0,
            label="in proportion" if phase == PHASES[0] else None,
        )
    axis.set(xscale="log", yscale="log", xlabel="devices", ylabel="seconds of the service, all devices together")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    parser.add_argument("--plot", type=Path, help="draw them there")
    options = parser.parse_args()
    found: list[Grown] = []
    for clients in options.clients:
        with tempfile.TemporaryDirectory(prefix="potstill-growth-") as folder:
            found.append(measured(clients, Path(folder)))
        if options.output:  # each, for a run may be ended before its largest
            said = {"machine": machine.description(), "rounds": [asdict(each) for each in found]}
            options.output.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    print(*table(found), sep="\n")
    if options.plot:
        draw(options.plot, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
