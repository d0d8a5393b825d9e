"""The storm: federations run while their installation is killed at random moments; in the end nothing is different."""

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx

from client_sdk.errors import PotstillError
from tools.chaos.crowd import Crowd
from tools.chaos.world import UNLIKE, Outcome, World

CHANCES = {"child": 4, "worker": 3, "api": 3, "broker": 2, "database": 2, "device": 8}
LASTING = ("feddf", "fedgo")  # whose jobs keep states
SHARED = ("shards",)  # whose labels take long enough to be hit
END_SECONDS = 900.0  # within which a federation ends: on a machine that others keep busy a shard takes a minute
PATIENCE = 120.0  # with devices that train before such a job begins


@dataclass
class Report:
    """What a storm did and found."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    federations: int = 0
    equal: int = 0
    updates: int = 0
    attempts: int = 0
    resumed: int = 0
    shards: int = 0
    again: int = 0
    within: Counter[str] = field(default_factory=Counter)
    secure: int = 0
    means: int = 0
    skipped: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.kills.values())

    def table(self) -> str:
        rows = [f"{kind:<24}{count:>6}" for kind, count in sorted(self.kills.items())]
        rows += [
            f"{'kills in all':<24}{self.total:>6}",
            f"{'federations':<24}{self.federations:>6}",
            f"{'equal, bit for bit':<24}{self.equal:>6}",
            f"{'updates, counted once':<24}{self.updates:>6}",
            f"{'attempts of jobs':<24}{self.attempts:>6}",
            f"{'attempts that went on':<24}{self.resumed:>6}",
            f"{'shards of labels':<24}{self.shards:>6}",
            f"{'shards tried again':<24}{self.again:>6}",
            *(f"{f'kills within {kind}':<24}{count:>6}" for kind, count in sorted(self.within.items())),
            f"{'secure federations':<24}{self.secure:>6}",
            f"{'secure sums, as the mean':<24}{self.means:>6}",
            f"{'secure rounds, skipped':<24}{self.skipped:>6}",
            f"{'faults':<24}{len(self.faults):>6}",
            f"{'seconds':<24}{self.seconds:>6.0f}",
        ]
        return "\n".join(rows)


Say = Callable[[str], None]


def say(line: str) -> None:
    """Print a line of progress, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


class Storm:
    """Kills in one installation, at moments that a seed decides as far as a machine's haste can be decided.

    Args:
        world: the installation.
        report: where kills and findings are counted.
        seed: of kinds and moments.
        longest: seconds between two kills, at most.
        moments: what to wait for before a kill, one of them by chance.
    """

    def __init__(
        self,
        world: World,
        report: Report,
        seed: int,
        longest: float = 2.0,
        out: Say = say,
        moments: tuple[str, ...] = ("any", "job", "upload", "state", "state"),
    ):
        self.world, self.report, self.out = world, report, out
        self._rng, self._longest, self._moments = random.Random(seed), longest, moments
        self._states: set[Path] = set()
        self._calm: dict[str, list[tuple[Any, ...]]] = {}

    def calm(self, recipe: str) -> None:
        """Run a federation undisturbed: what every other of its kind must equal."""
        begun = time.monotonic()
        created, devices = self.world.begin(recipe, f"calm-{recipe}")
        outcome = self.world.conclude(recipe, created, devices, END_SECONDS)
        assert not outcome.faults, outcome.faults
        self._calm[recipe] = outcome.digests
        self.out(f"{self.world.mode}: {recipe} undisturbed, {time.monotonic() - begun:.0f} s")

    def federation(self, recipe: str, kills: int, only: list[str] | None = None) -> Outcome:
        """Run a federation under so many kills, or as many as fit into its life: of any kind, or in turn of some."""
        label = f"storm-{recipe}-{self.report.federations + self.report.secure}"
        created, devices = self.world.begin(recipe, label)
        kinds = [kind for kind in self.world.kinds for _ in range(CHANCES.get(kind, 0))]
        turns, done = cycle(only or []), 0
        while done < kills and not self._over(created.id):
            kind = next(turns) if only else self._rng.choice(kinds)
            fitting = self._moment(recipe, created.id, devices)
            if fitting and not only:
                kind = self._rng.choice(fitting)
            where, self.world.hit = self._where(created.id), ""
            if self.world.kinds[kind](self._rng):
                done += 1
                self.report.kills[f"{self.world.mode} {kind}"] += 1
                self.report.within.update([self.world.hit] if self.world.hit else [])
                self.out(f"kill {self.report.total}: {self.world.mode} {kind}, {label} {where}")
            self.world.mend()
        outcome = self.world.conclude(recipe, created, devices, END_SECONDS)
        self.judge(label, outcome)
        return outcome

    def judge(self, label: str, outcome: Outcome) -> None:
        """Note what became of a federation, and whether it is what it is in calm weather."""
        report, like = self.report, outcome.recipe not in UNLIKE
        equal = outcome.digests == self._calm[outcome.recipe] if like else not outcome.faults
        if like and not equal:
            outcome.faults.append(f"models differ: {outcome.digests} and undisturbed {self._calm[outcome.recipe]}")
        report.federations += 1
        report.equal += equal
        report.updates += outcome.acknowledged
        report.attempts += outcome.attempts
        report.shards += outcome.shards
        report.again += outcome.again
        report.faults += [f"{self.world.mode} {label}: {fault}" for fault in outcome.faults]
        verdict = "equal" if equal and not outcome.faults else f"FAULTS {outcome.faults}"
        self.out(f"{self.world.mode} {label}: {outcome.attempts} attempts, {verdict}")

    def _over(self, id_: str) -> bool:
        return self.world.state(id_) in ("finished", "failed", "cancelled")

    def _moment(self, recipe: str, id_: str, devices: Crowd) -> list[str]:
        """Wait: for any moment, a job that runs, an upload on its way, or a job that has put a state on the disk, or
        one that makes a shard.

        Return the kinds of kills that fit it; empty for any.
        """
        rng = self._rng
        moments = [each for each in self._moments if each != "state" or recipe in LASTING]
        if recipe in SHARED and rng.random() < 0.7:
            return self._shard(id_)
        kind, pause = rng.choice(moments), rng.uniform(0, self._longest)
        end = time.monotonic() + self._longest
        if kind == "job":
            while not self._where(id_) and time.monotonic() < end:
                time.sleep(0.02)
            time.sleep(pause / 3)
        elif kind == "state":
            folder = self.world.deployment.settings.resolved_blob_dir / "tmp"
            while not (new := set(folder.glob("checkpoints-*/*.safetensors")) - self._states):
                if self._over(id_) or time.monotonic() > end + PATIENCE:
                    return []
                self.world.mend()
                time.sleep(0.02)
            self._states |= new  # the next one waits until an attempt went on and wrote its own
            time.sleep(pause / 10)
            return ["child", "worker"]  # who is gone leaves the state to the next one
        elif kind == "upload":
            taken = sum(devices.taken.values())
            folder = self.world.deployment.settings.resolved_blob_dir / "tmp"
            while time.monotonic() < end and sum(devices.taken.values()) == taken and not any(folder.glob("up-*")):
                time.sleep(0.005)
        else:
            time.sleep(pause)
        return []

    def _shard(self, id_: str) -> list[str]:
        """Wait for a shard that is made."""
        end = time.monotonic() + PATIENCE
        while "labels" not in self._where(id_):
            if self._over(id_) or time.monotonic() > end:
                return []
            self.world.mend()
            time.sleep(0.02)
        return ["shard"]

    def _where(self, id_: str) -> str:
        try:
            running = self.world.deployment.operator.jobs(federation=id_, state="running").items
        except (PotstillError, httpx.HTTPError):
            return ""
        return ", ".join(
            f"{job.kind} {job.progress.phase} {job.progress.step}/{job.progress.of}" if job.progress else job.kind
            for job in running
        )


def run(folder: Path, kills: int, seed: int, modes: list[str], recipes: list[str], out: Say = say) -> Report:
    """Let a storm go over each kind of installation until so many kills are done in all."""
    report, begun = Report(seed), time.monotonic()
    for number, mode in enumerate(modes):
        world = World(folder / mode, mode)
        try:
            storm = Storm(world, report, seed + number, out=out)
            for recipe in recipes:
                storm.calm(recipe)
            world.reinforce()
            goal, turn = kills * (number + 1) // len(modes), 0
            share = max(1, min(20, math.ceil((goal - report.total) / len(recipes))))  # a few kills are for all of them
            while report.total < goal:
                storm.federation(recipes[turn % len(recipes)], min(share, goal - report.total))
                turn += 1
        finally:
            report.faults += [f"{mode}: {fault}" for fault in world.close()]
            report.resumed += world.resumed()
    report.seconds = time.monotonic() - begun
    return report
