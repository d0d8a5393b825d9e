"""How long a round of many teachers takes on several GPUs, by arithmetic: operations, bytes, and the store between.

    python -m experiments.scale --output docs/img/scale-labels.png

No part of it is measured here: operations of a network are counted (`worker.parts.flops`), what a GPU does of them in a
second, and the store's bytes, are assumed and can be given. Every worker has a link as fast as the store's; the store
itself serves all of them with `--store`.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

from contract.wire.federations import Task
from worker.parts.flops import effort_of

GPUS = range(1, 9)
STORES = (0.1e9, 0.5e9, 1e9, 5e9)
"""Bytes a second that a store gives to all workers together: a small bucket to a good one."""
LINK = 1.25e9
"""Bytes a second of one worker's network: ten gigabits."""


@dataclass(frozen=True)
class Round:
    """What is labelled.

    Attributes:
        teachers: m.
        samples: S, of all sets together.
        flops: operations of one sample's way through a teacher.
        model: bytes of a teacher.
        values: numbers that a teacher says of a sample.
    """

    teachers: int
    samples: int
    flops: int
    model: int
    values: int

    @property
    def logits(self) -> int:
        """Bytes of what all teachers say: 4 m S C."""
        return 4 * self.teachers * self.samples * self.values

    @property
    def models(self) -> int:
        """Bytes of all teachers."""
        return self.teachers * self.model


@dataclass(frozen=True)
class Times:
    """Seconds of a round on some GPUs, up to its labels.

    Attributes:
        asking: of GPUs that ask teachers.
        bringing: of the store and the network: teachers to who asks them, what they say to the round's job, and to that
            one the updates that its worker has not yet, for it averages them.
    """

    asking: float
    bringing: float

    @property
    def whole(self) -> float:
        """Both, one after the other: a worker asks when its files are there."""
        return self.asking + self.bringing


def times(round_: Round, gpus: int, speed: float, store: float, link: float = LINK) -> Times:
    """Return the seconds of a round up to its labels.

    One GPU: its worker brings every update and asks. Several: each brings and asks 1/n of them and writes what they
    say; the round's worker then brings the other (n-1)/n, and what was said.

    Args:
        round_: what is labelled.
        gpus: n.
        speed: operations a second of one.
        store: bytes a second that it gives to all.
        link: bytes a second of one worker.
    """
    compute, one = round_.teachers * round_.samples * round_.flops / speed, min(store, link)
    if gpus == 1:
        return Times(compute, round_.models / one)
    shards = (round_.models + round_.logits) / gpus / min(store / gpus, link)
    return Times(compute / gpus, shards + (round_.models * (gpus - 1) / gpus + round_.logits) / one)


def store_is_the_limit(round_: Round, speed: float, store: float) -> int | None:
    """Return from how many GPUs on the store takes longer than they do; None where a thousand do not get there."""
    found = ((n, times(round_, n, speed, store)) for n in range(1, 1001))
    return next((n for n, each in found if each.bringing > each.asking), None)


def resnet18(teachers: int, samples: int) -> Round:
    """Return a round of ResNet-18 teachers on images of 32 x 32 in ten classes."""
    task = Task.model_validate({"num_classes": 10, "input": {"shape": [3, 32, 32]}})
    effort = effort_of("resnet-18", {}, task)
    assert effort is not None and effort.forward is not None
    return Round(teachers, samples, effort.forward, 4 * effort.parameters, task.num_classes)


def table(round_: Round, speed: float) -> list[str]:
    """Return the rows of a table: stores by GPUs."""
    rows = ["| store, MB/s | " + " | ".join(f"{n} GPU{'s' * (n > 1)}" for n in GPUS) + " | store the limit from |"]
    rows.append("|" + " --- |" * (len(GPUS) + 2))
    for store in STORES:
        cells = [f"{times(round_, n, speed, store).whole:.0f} s" for n in GPUS]
        limit = store_is_the_limit(round_, speed, store)
        rows.append(f"| {store / 1e6:.0f} | " + " | ".join(cells) + f" | {'–' if limit is None else limit} |")
    return rows


def draw(path: Path, rounds: Sequence[tuple[str, Round]], speed: float) -> None:
    """Draw seconds by GPUs, one panel a round, one line a store."""
    figure, axes = plt.subplots(1, len(rounds), figsize=(5 * len(rounds), 3.6), layout="constrained", squeeze=False)
    for axis, (title, round_) in zip(axes[0], rounds, strict=True):
        ideal = [times(round_, 1, speed, math.inf, math.inf).whole / n for n in GPUS]
        axis.plot(GPUS, ideal, color="#999999", linestyle="--", label="asking alone, by 1/n")
        for store in STORES:
            seconds = [times(round_, n, speed, store).whole for n in GPUS]
            axis.plot(GPUS, seconds, marker="o", markersize=3, label=f"store of {store / 1e6:.0f} MB/s")
        axis.set(title=title, xlabel="GPUs", ylabel="seconds up to the labels", yscale="log")
        for ticks in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
            ticks(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", type=int, default=100)
    parser.add_argument("--samples", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--teraflops", type=float, default=15.0, help="of one GPU, as networks run on it")
    parser.add_argument("--output", type=Path, help="draw it there")
    options = parser.parse_args()
    speed, rounds = options.teraflops * 1e12, []
    for samples in options.samples:
        round_ = resnet18(options.teachers, samples)
        rounds.append((f"{options.teachers} ResNet-18, {samples:,} images", round_))
        gigabytes, logits = round_.models / 1e9, round_.logits / 1e6
        print(f"{rounds[-1][0]}: {round_.flops / 1e9:.2f} GFLOP a sample, {gigabytes:.2f} GB of models", end="")
        print(f", {logits:.0f} MB of logits", *table(round_, speed), "", sep="\n")
    if options.output:
        draw(options.output, rounds, speed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
