"""Who is in which of FedSDD's K groups: sizes as even as can be, members drawn anew each round.

The draw sorts clients by a number derived from seed, round and name, so it does not depend on the order of arrival.
"""

from collections.abc import Sequence

from contract.errors import RuleError
from contract.seeds import derive_seed


def group_sizes(num_clients: int, groups: int) -> list[int]:
    """Return K sizes that differ by one at most; the remainder goes to groups 0, 1, … (FedSDD 3.1.1, App. A.2).

    With fewer clients than groups the last groups are empty.

    Raises:
        RuleError: bad_option (K below 1), bad_counts (a negative number of clients).
    """
    if groups < 1:
        raise RuleError("bad_option", f"{groups} groups; at least 1 is needed")
    if num_clients < 0:
        raise RuleError("bad_counts", f"{num_clients} clients cannot be split")
    size, rest = divmod(num_clients, groups)
    return [size + (1 if group < rest else 0) for group in range(groups)]


def split(names: Sequence[str], groups: int, *, seed: int, round_index: int) -> list[list[str]]:
    """Return the K groups' clients, each sorted by name (FedSDD Alg. 1: the participants are shuffled every round).

    Args:
        names: clients' names, in any order, each once.
        groups: K.
        seed: the federation's.
        round_index: of the round that is drawn.

    Raises:
        RuleError: bad_option (K below 1, or a name that appears twice).
    """
    if len(set(names)) != len(names):
        raise RuleError("bad_option", "a client appears twice among the participants")
    drawn = sorted(names, key=lambda name: (derive_seed(seed, "round", round_index, "group", name), name))
    result, start = [], 0
    for size in group_sizes(len(drawn), groups):
        result.append(sorted(drawn[start : start + size]))
        start += size
    return result
