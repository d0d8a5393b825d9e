"""Verdicts: one row of an experiment's table, and how a row is made from one figure a seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev

FRESH = "fresh seeds"
"""Heading of what was measured with seeds that no bar was chosen by."""
OFTEN = 0.9
"""The bar on the share of the seeds in which something is ahead, where that was seen in all twenty.

Below twenty of twenty it is two standard errors of the difference of two such counts under what was seen, rounded
down, so that another twenty reach it.
"""


@dataclass(frozen=True)
class Verdict:
    """One row of the table.

    Attributes:
        what: the quantity.
        bar: what it must reach; a dash for a figure that is only reported.
        ours: what was measured, mean ± standard deviation over seeds.
        reference: what the reference implementation saw.
        held: whether the bar was reached, by the fresh seeds too where there are any; None where there is none.
        fresh: what was measured with seeds that no bar was chosen by; None where there are none.
    """

    what: str
    bar: str
    ours: str
    reference: str
    held: bool | None
    fresh: str | None = None


@dataclass
class Section:
    """One experiment's part of the page.

    Attributes:
        text: setting and remarks, in Markdown.
        verdicts: its table.
        pictures: alternative text -> file beside the page, as a relative link.
        seconds: how long it took, fresh seeds included.
        fresh: the seeds that no bar was chosen by.
    """

    text: str
    verdicts: list[Verdict]
    pictures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    fresh: Sequence[int] = ()

    @property
    def held(self) -> bool:
        """Whether every bar was reached."""
        return all(verdict.held is not False for verdict in self.verdicts)


@dataclass(frozen=True)
class Setting:
    """What an experiment is given.

    Attributes:
        seeds: it is repeated for each.
        folder: for its files; empty, thrown away afterwards.
        images: where plots go.
        progress: takes one line of text at a time.
        data_dir: folder of data sets that are not part of potstill; None for the environment's.
    """

    seeds: Sequence[int]
    folder: Path
    images: Path
    progress: Callable[[str], None]
    data_dir: Path | None = None


def validated(section: Section, again: Section, fresh: Sequence[int]) -> Section:
    """Return a section whose bars are judged on fresh seeds too.

    Args:
        section: of the seeds that the bars were chosen by; its text and pictures stay.
        again: the same experiment with `fresh`.
        fresh: seeds that no bar was chosen by.

    Raises:
        ValueError: the two have other rows or other bars.
    """
    rows, others = ([(v.what, v.bar) for v in each.verdicts] for each in (section, again))
    if rows != others:
        raise ValueError(f"two runs of one experiment have rows {rows} and {others}")
    verdicts = [_both(one, other) for one, other in zip(section.verdicts, again.verdicts, strict=True)]
    return replace(section, verdicts=verdicts, seconds=section.seconds + again.seconds, fresh=fresh)


def _both(one: Verdict, other: Verdict) -> Verdict:
    held = None if one.held is None else one.held and other.held is True
    return replace(one, fresh=other.ours, held=held)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return ' ± standard deviation', nothing for a single value."""
    return f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""


def level(what: str, least: float | None, values: Sequence[float], reference: str) -> Verdict:
    """Return the verdict on a share, given in [0, 1] per seed: its mean must reach `least` percent."""
    percent = [100 * value for value in values]
    bar = "–" if least is None else f"≥ {least:g} %"
    held = None if least is None else mean(percent) >= least
    return Verdict(what, bar, f"{mean(percent):.1f} %{spread(percent)}", reference, held)


def ahead(
    what: str,
    least: float | None,
    one: Sequence[float],
    other: Sequence[float],
    reference: str,
    in_share: float | None = None,
) -> Verdict:
    """Return the verdict on a paired difference of shares in percentage points.

    Args:
        what: the quantity.
        least: bar on the mean; None to report it only.
        one: in [0, 1], a value per seed; `other` likewise.
        reference: what the reference saw.
        in_share: share of the seeds in which `one` must be strictly above `other`; None for no such bar.
    """
    differences = [100 * (a - b) for a, b in zip(one, other, strict=True)]
    wins, seeds = sum(difference > 0 for difference in differences), len(differences)
    bar = "–" if least is None else f"≥ {least:+g}"
    held = None if least is None else mean(differences) >= least
    if in_share is not None:
        bar = (bar + ", " if least is not None else "") + f"ahead in ≥ {in_share:.0%} of the seeds"
        held = held is not False and wins >= in_share * seeds
    ours = f"{mean(differences):+.1f}{spread(differences)}, ahead in {wins} of {seeds}"
    return Verdict(what, bar, ours, reference, held)


def exactly(what: str, bar: str, ours: str, held: bool, reference: str = "exact") -> Verdict:
    """Return the verdict on something that holds exactly or not at all."""
    return Verdict(what, bar, ours, reference, held)
