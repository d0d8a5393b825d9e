"""How fast simulated devices are: a log-normal spread, works that never arrive, and a clock of no machine's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from contract.bodies import Part
from contract.seeds import derive_seed
from contract.wire.plans import RoundsPlan

_WITHIN = 1.959964
"""So many standard deviations on either side hold 95 % of a normal distribution."""


class Speeds(Part):
    """What a device's work takes by the virtual clock."""

    sample_seconds: float = Field(
        0.01, gt=0, le=3600, description="of one sample in one epoch, on a device of middle speed"
    )
    spread: float = Field(
        30.0, ge=1, le=1e6, description="95 % of the devices lie within this factor of each other; log-normal"
    )
    jitter: float = Field(
        0.1, ge=0, le=3, description="of the logarithm of one device's times, from one work to the next"
    )
    link_seconds: float = Field(1.0, ge=0, le=86_400, description="of a work's download and upload together")
    fuse_seconds: float = Field(0.0, ge=0, le=86_400, description="of the service, from the last update to the model")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="share of works that are never delivered: the device goes, and asks anew later"
    )


@dataclass(frozen=True)
class Pace:
    """The devices of one federation, drawn by its seed and their names.

    Attributes:
        speeds: how they are drawn.
        seed: the federation's.
    """

    speeds: Speeds
    seed: int

    def _draws(self, *path: str | int) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self.seed, "simulate", "speeds", *path))

    def slowness(self, name: str) -> float:
        """Return what a device's times are multiplied by."""
        deviation = math.log(self.speeds.spread) / (2 * _WITHIN)
        return math.exp(deviation * float(self._draws(name).standard_normal()))

    def seconds(self, name: str, number: int, samples: int) -> float:
        """Return what a work takes: of so many samples in all epochs, the device's work of that number."""
        varies = math.exp(self.speeds.jitter * float(self._draws(name, number).standard_normal()))
        return self.speeds.link_seconds + self.speeds.sample_seconds * samples * self.slowness(name) * varies

    def drops(self, name: str, number: int) -> bool:
        """Whether nothing comes of a work."""
        return bool(self._draws(name, number, "drops").random() < self.speeds.dropout)


@dataclass(frozen=True)
class Answers:
    """Who answered a round that waits, in the order of arrival, and how long the round lasted."""

    names: Sequence[str]
    seconds: float


def waited_for(pace: Pace, plan: RoundsPlan, number: int, samples: Mapping[str, int], needed: int) -> Answers:
    """Return who answers a synchronous round, and when it ends.

    It ends with the last answer that it needs, or when it knows that nobody else comes: so long after a device was lost
    as the plan has patience with silent ones. At the deadline at the latest.

    Args:
        pace: the devices.
        plan: of the rounds.
        number: of the round.
        samples: who is asked -> samples that it trains on, in all epochs.
        needed: answers that close the round.
    """
    times = {name: pace.seconds(name, number, count) for name, count in samples.items()}
    gone = {name for name in times if pace.drops(name, number)}
    came = sorted((seconds, name) for name, seconds in times.items() if name not in gone)
    in_time = [(seconds, name) for seconds, name in came if seconds <= plan.deadline_seconds][:needed]
    names = [name for _, name in in_time]
    last = in_time[-1][0] if in_time else 0.0
    if len(in_time) >= needed:
        return Answers(names, last)
    silent = plan.heartbeat_seconds * plan.lost_after
    known = max([last, *(times[name] + silent for name in gone)])
    late = len(in_time) < len(came)
    return Answers(names, float(plan.deadline_seconds) if late else min(known, float(plan.deadline_seconds)))
