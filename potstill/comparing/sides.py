"""What is compared: reports, of a service or of a simulation's file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from contract.tasks import Metric
from contract.wire.report import Cost, FederationReport, Flops, RoundCost
from potstill.console import CliError
from potstill.figures import metric_of

REPORT = "report.json"
Time = Literal["wall clock", "virtual clock", "computing"]
"""Whose seconds: of the wall clock, of a simulation's virtual clock, or what a simulation took to compute."""


@dataclass(frozen=True)
class Point:
    """A round whose models were measured, the first models as round 0.

    Attributes:
        round: its number.
        value: of what the task is measured by.
        size: bytes of devices' files up to and with it, down and up.
        seconds: up to its end.
    """

    round: int
    value: float
    size: int
    seconds: float


@dataclass(frozen=True)
class Side:
    """One of those that are compared."""

    name: str
    report: FederationReport

    @cached_property
    def metric(self) -> Metric:
        """What it is measured by."""
        return metric_of(self.report.metric)

    @cached_property
    def time(self) -> Time:
        """Whose seconds its seconds are."""
        if self.report.federation_id:
            return "wall clock"
        rounds = self.report.rounds
        return "virtual clock" if rounds and all(each.clock is not None for each in rounds) else "computing"

    @cached_property
    def curve(self) -> list[Point]:
        """The measured rounds, with what it had cost up to each."""
        found, report, key = list[Point](), self.report, self.metric.key
        files = report.before.files
        if report.first is not None:
            found.append(Point(0, report.first, files.down + files.up, 0.0))
        for count, each in enumerate(report.rounds, start=1):
            files += each.files
            value = getattr(each, key)
            if value is not None:
                found.append(Point(each.round, value, files.down + files.up, self.seconds(report.rounds[:count])))
        return found

    def seconds(self, rounds: Sequence[RoundCost]) -> float:
        """Return the seconds from the first round's opening to the end of the last of these; 0 of none."""
        if self.time == "computing":
            return sum(each.seconds.devices + each.seconds.jobs for each in rounds)
        return max((each.clock for each in rounds if each.clock is not None), default=0.0)

    @property
    def best(self) -> Point | None:
        """The best round, the first of several."""
        good = self.metric.goodness
        return max(self.curve, key=lambda each: good(each.value), default=None)


def devices_of(flops: Flops) -> int:
    """Return the operations of devices."""
    return flops.training + flops.discriminators


def server_of(flops: Flops) -> int:
    """Return the operations of the server."""
    return flops.labelling + flops.distillation


def size_of(cost: Cost) -> int:
    """Return the bytes of devices' files, both ways."""
    return cost.files.down + cost.files.up


def files_of(place: Path) -> list[Path]:
    """Return the reports that a file or a simulation's folder holds.

    Raises:
        CliError: it has none.
    """
    found = sorted(place.rglob(REPORT)) if place.is_dir() else [place]
    if not found:
        raise CliError(f"{place} holds no {REPORT}; name a folder that `potstill simulate --out` wrote")
    return found


def read(file: Path) -> FederationReport:
    """Return the report that a file holds.

    Raises:
        CliError: it is none.
    """
    try:
        return FederationReport.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise CliError(
            f"{file} is no report; a simulation's are seed-N/RECIPE/{REPORT}, a federation's are what "
            "`potstill federation report --json` prints"
        ) from error


def sides_of(reports: Sequence[FederationReport]) -> list[Side]:
    """Return reports by names of their own: where several have one, with the seeds that differ, then by number."""
    seeds: dict[str, set[Any]] = {}
    for each in reports:
        seeds.setdefault(each.name, set()).add(each.parts.get("seed"))
    seen, found = Counter[str](), list[Side]()
    for report in reports:
        name = report.name
        if len(seeds[name]) > 1:
            name = f"{name}, seed {report.parts.get('seed')}"
        seen[name] += 1
        found.append(Side(name if seen[name] == 1 else f"{name} ({seen[name]})", report))
    return found
