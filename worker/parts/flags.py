"""Which clients are not like the others, in words; by medians, so that a few of them cannot move what is usual."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from worker.parts.directions import Direction
from worker.parts.distances import NEAR
from worker.parts.votes import SURE, Agreement

FEW = 3
"""Of fewer clients nobody can say which of them is the odd one."""
OPPOSED = -0.1
"""Cosine to the mean of the others; devices whose data have little in common are about at right angles."""
REVERSED = -0.75
"""Cosine below which a change is that of the others turned round, however right the model still is."""
SPREADS = 3.0
"""Median absolute deviations, as of a normal distribution, that a client must lie off the median."""
LEAST_SPREAD = 0.05
"""Of cosines and of agreement beyond chance."""
USUAL = 0.3
"""Agreement beyond chance that others must have: before, nobody has learnt what could be disagreed about."""
FEEBLE = 0.5
"""Of the median agreement beyond chance: a client that has less has learnt something else than the others."""
_MAD = 1.4826


@dataclass(frozen=True)
class Flag:
    """What is odd about a client.

    Attributes:
        kind: opposes, idle, copies, disagrees or not_finite.
        detail: in words, with the numbers.
    """

    kind: str
    detail: str


def opposing(found: Mapping[str, Direction], right: Collection[str] | None = None) -> dict[str, Flag]:
    """Return the clients whose change points away from that of all others: a flipped sign, a loss that is maximised.

    So does the change of whoever has data that nobody else has; but its model is right where it knows something.

    Args:
        found: where each change points to.
        right: whose votes are as right as the others' (`sound`): they are named only where the change is the others'
            turned round. None where nobody's votes are known, which the words then say.
    """
    cosines = {name: each.cosine for name, each in found.items() if each.cosine is not None}
    if len(cosines) < FEW:
        return {}
    median, low = _usual(list(cosines.values()))
    usual = f"the median {median:.2f}"
    if right is None:
        usual += "; or its data are like nobody else's, which no votes tell here"
    return {
        name: Flag("opposes", f"its change points against the others': cosine {value:.2f}, {usual}")
        for name, value in cosines.items()
        if value < min(OPPOSED, low) and (name not in (right or ()) or value < REVERSED)
    }


def sound(beyond: Mapping[str, float]) -> set[str] | None:
    """Return the clients whose votes are as right as the others', or more; None where that says nothing yet.

    Args:
        beyond: agreement beyond chance, of the clients of which it is known.
    """
    median = float(np.median(list(beyond.values()))) if len(beyond) >= FEW else 0.0
    if median < USUAL:
        return None
    return {name for name, value in beyond.items() if value >= median - LEAST_SPREAD}


def idle(lengths: Mapping[str, float]) -> dict[str, Flag]:
    """Return the clients that sent the round's model back, or as good as that.

    Args:
        lengths: ||d_k||, of the clients that trained one model.
    """
    if len(lengths) < FEW:
        return {}
    median = float(np.median(list(lengths.values())))
    return {name: Flag("idle", _idle(each, median)) for name, each in lengths.items() if each < NEAR * median}


def _idle(distance: float, median: float) -> str:
    if distance == 0:
        return "it sent the round's model back, unchanged"
    return f"it sent the round's model back, almost: its change is {distance / median:.2g} of the median"


def copying(groups: Sequence[Sequence[str]]) -> dict[str, Flag]:
    """Return the clients that sent the same change as another one; who had it first, nobody can say."""
    found = {}
    for group in groups:
        for name in group:
            others = ", ".join(other for other in group if other != name)
            found[name] = Flag("copies", f"its change is that of {others}: one of them is a copy, or their data are")
    return found


def disagreeing(found: Mapping[str, Agreement], with_whom: str) -> dict[str, Flag]:
    """Return the clients whose votes agree far less with what the samples are than the others' do.

    Args:
        found: of each client's votes.
        with_whom: in words, what they were compared with.
    """
    values = {name: each.beyond_chance for name, each in found.items() if each.beyond_chance is not None}
    if len(values) < FEW:
        return {}
    median, low = _usual(list(values.values()))
    if median < USUAL:
        return {}
    flags = {}
    for name, value in values.items():
        error = found[name].error or 0.0
        if value < min(FEEBLE * median, low) and median - value > SURE * error:
            flags[name] = Flag("disagrees", _disagreement(found[name], value, median, with_whom))
    return flags


def _disagreement(found: Agreement, value: float, median: float, with_whom: str) -> str:
    seen = [(label, share) for label, share in enumerate(found.by_class) if share is not None]
    good = [label for label, share in seen if share >= 0.5]
    where = "on every class" if not good else "on all classes but " + ", ".join(map(str, good))
    numbers = f"agreement beyond chance {value:.2f}, the median {median:.2f}"
    return f"disagrees with {with_whom} {where} ({found.share:.0%} of the samples; {numbers})"


def _usual(values: Sequence[float]) -> tuple[float, float]:
    """Return the median of values, and what is too far below it."""
    median = float(np.median(values))
    spread = max(_MAD * float(np.median(np.abs(np.asarray(values) - median))), LEAST_SPREAD)
    return median, median - SPREADS * spread
