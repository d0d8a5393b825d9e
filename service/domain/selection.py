"""Who is asked in a round: a pure function of the seed, the round and the names."""

import math
from collections.abc import Mapping
from typing import Literal

from contract.federation import FederationConfig
from contract.grouping import split
from contract.groups import copies
from contract.seeds import derive_uniform
from contract.wire.plans import RoundsPlan


def needed(plan: RoundsPlan, enrolled: int) -> int:
    """Return how many updates close a round early: the count, the fraction of `enrolled`, or everybody."""
    asked = plan.clients_per_round
    enrolled = enrolled if plan.secure is None else min(enrolled, plan.secure.max_clients)
    if asked is None:
        return enrolled
    if isinstance(asked, float) and asked <= 1:
        return max(1, math.ceil(asked * enrolled - 1e-9))
    return min(int(asked), enrolled)


def ranking(
    seed: int, round_index: int, sizes: Mapping[str, int], by: Literal["uniform", "samples"] = "uniform"
) -> list[str]:
    """Return all names in the order in which a round asks them.

    Every name draws a number u in (0, 1) from (seed, round, name), and the lowest -ln(u) / w come first, with w = 1 or
    the number of samples: successive draws without replacement in proportion to w (Efraimidis and Spirakis 2006; Fed-ET
    section 3). It depends neither on the order of enrolment nor on ids, so that runs can be repeated and compared.

    Args:
        seed: the federation's.
        round_index: the round's.
        sizes: name -> number of samples.
        by: whether all count alike or by their samples.
    """

    def key(name: str) -> tuple[float, str]:
        weight = max(1, sizes[name]) if by == "samples" else 1
        return -math.log(derive_uniform(seed, "selection", round_index, name)) / weight, name

    return sorted(sizes, key=key)


def choose(
    plan: RoundsPlan,
    seed: int,
    round_index: int,
    sizes: Mapping[str, int],
    by: Literal["uniform", "samples"] = "uniform",
) -> list[str]:
    """Return the names asked in a round, sorted: the first ones of its ranking, as many as `plan` says."""
    ranked = ranking(seed, round_index, sizes, by)
    count = min(len(ranked), math.ceil(needed(plan, len(ranked)) * plan.over_selection - 1e-9))
    count = count if plan.secure is None else min(count, plan.secure.max_clients)
    return sorted(ranked[:count])


def deal(config: FederationConfig, seed: int, round_index: int, asked: Mapping[str, str]) -> dict[str, str]:
    """Return what everybody who is asked trains: the prototype, or in a grouped federation a group's copy of it.

    Args:
        config: the federation's.
        seed: the federation's.
        round_index: the round's.
        asked: name -> prototype.
    """
    found: dict[str, str] = {}
    for prototype in config.prototypes:
        names = [name for name, own in asked.items() if own == prototype.name]
        groups = split(names, config.group_count, seed=seed, round_index=round_index)
        for copy, members in zip(copies(prototype.name, config.group_count), groups, strict=True):
            found |= dict.fromkeys(members, copy)
    return found
