"""What a federation has cost, put together from what each of its rounds has. Simulations use it, too."""

from collections.abc import Sequence

from contract.wire.report import Cost, RoundCost, TargetCost


def total(before: Cost, rounds: Sequence[RoundCost]) -> Cost:
    """Return the sum of what was before the rounds and of these."""
    return sum((Cost.model_validate(each.model_dump(include=set(Cost.model_fields))) for each in rounds), before)


def to_target(target: float, first: float | None, before: Cost, rounds: Sequence[RoundCost]) -> TargetCost:
    """Return what it cost until the published model first had an accuracy (Fed-ET's C_acc).

    Args:
        target: in [0, 1].
        first: accuracy of the first model, None if it was not measured.
        before: cost of what was before the rounds.
        rounds: all, in their order; those that published nothing cost, too.
    """
    if first is not None and first >= target:
        return TargetCost(target=target, round=0, cost=before)
    for count, each in enumerate(rounds, start=1):
        if each.accuracy is not None and each.accuracy >= target:
            return TargetCost(target=target, round=each.round, cost=total(before, rounds[:count]))
    return TargetCost(target=target)
