"""Who is asked in a round: a pure function of the seed, the round and the names."""

import math
from collections.abc import Collection

from contract.seeds import derive_uniform
from contract.wire.federations import RoundsPlan


def needed(plan: RoundsPlan, enrolled: int) -> int:
    """Return how many updates close a round early: the count, the fraction of `enrolled`, or everybody."""
    asked = plan.clients_per_round
    if asked is None:
        return enrolled
    if isinstance(asked, float) and asked <= 1:
        return max(1, math.ceil(asked * enrolled - 1e-9))
    return min(int(asked), enrolled)


def choose(plan: RoundsPlan, seed: int, round_index: int, names: Collection[str]) -> list[str]:
    """Return the names asked in a round, sorted.

    Every name draws a number from (seed, round, name) and the lowest win: a uniform sample without replacement that
    depends neither on the order of enrolment nor on ids, so that runs can be repeated and compared.
    """
    ranked = sorted(names, key=lambda name: (derive_uniform(seed, "selection", round_index, name), name))
    count = min(len(ranked), math.ceil(needed(plan, len(ranked)) * plan.over_selection - 1e-9))
    return sorted(ranked[:count])
