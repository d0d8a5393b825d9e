"""Who masks with whom, and how many it takes: pure functions of who has advertised keys.

Up to `COMPLETE` devices each masks with each (Bonawitz et al. 2017); of more, each with `neighbours` others on a ring
in an order that follows from all their keys (Bell et al. 2020, section 3: a Harary graph of a random order).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

COMPLETE = 64
"""Devices up to which everybody masks with everybody."""
CORRUPT, AWAY = Fraction(1, 5), Fraction(1, 5)
"""Shares of the devices that the sparse graph allows to collude with the server, and to drop out."""
SECURITY_BITS, FAILURE_BITS = 40, 30
"""The sparse graph gives a secret away, or loses one, with chances below 2^-40 and 2^-30 a device."""


def least(count: int, share: float) -> int:
    """Return how many of `count` it takes: the share of them, rounded up, and always more than half."""
    return max(count // 2 + 1, math.ceil(share * count - 1e-9))


@dataclass(frozen=True)
class Graph:
    """Who of a group masks with whom.

    Attributes:
        members: names, sorted; a member's point, at which secrets are shared with it, is its place in this list plus 1.
        adjacent: name -> names that it masks with, sorted; symmetric, without itself.
        share: of a group's devices, that its thresholds ask for.
    """

    members: tuple[str, ...]
    adjacent: Mapping[str, tuple[str, ...]]
    share: float

    @property
    def quorum(self) -> int:
        """How many of the group must upload, sign and reveal."""
        return least(len(self.members), self.share)

    def point(self, name: str) -> int:
        """Return at which point secrets are shared with a member."""
        return self.members.index(name) + 1

    def holders(self, name: str) -> tuple[str, ...]:
        """Return who holds shares of a member's secrets: its neighbours and itself, sorted."""
        return tuple(sorted((*self.adjacent[name], name)))

    def threshold(self, name: str) -> int:
        """Return how many shares give a member's secrets back: more than half of them, so nobody can get both."""
        holders = len(self.adjacent[name]) + 1
        return least(holders, self.share) if holders == len(self.members) else holders // 2 + 1


def build(keys: Mapping[str, bytes], share: float) -> Graph:
    """Return the graph of those who have advertised keys.

    Args:
        keys: name -> its public key; they decide the order on the ring, which nobody can choose alone.
        share: of the devices, that thresholds ask for: 0.5 to 1.
    """
    members = tuple(sorted(keys))
    degree = neighbours(len(members))
    if degree >= len(members) - 1:
        adjacent = {name: tuple(other for other in members if other != name) for name in members}
    else:
        adjacent = _ring(_order(members, keys), degree)
    return Graph(members, adjacent, share)


def _order(members: Sequence[str], keys: Mapping[str, bytes]) -> list[str]:
    everything = hashlib.sha256(b"".join(hashlib.sha256(keys[name]).digest() for name in members)).digest()
    return sorted(members, key=lambda name: hashlib.sha256(everything + name.encode()).digest())


def _ring(order: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
    size, half = len(order), degree // 2
    return {
        name: tuple(sorted(order[(place + step) % size] for step in range(-half, half + 1) if step))
        for place, name in enumerate(order)
    }


def neighbours(count: int) -> int:
    """Return with how many others each masks: the fewest, an even number, for which both chances below are small.

    With t = k/2 + 1 of k + 1 shares (Bell et al. 2020, Theorem 3.10, by the hypergeometric tails themselves): that t of
    a device's k + 1 holders collude, which would give its secrets away, and that fewer than t are still there, which
    would lose the round.
    """
    if count <= COMPLETE:
        return count - 1
    corrupt, away = int(CORRUPT * count), int(AWAY * count)
    for degree in range(2, count - 1, 2):
        threshold = degree // 2 + 1
        betrayed = _tail(count - 1, corrupt, degree, threshold)
        lost = _tail(count - 1, away, degree, degree + 1 - threshold + 1)
        if betrayed < Fraction(1, 1 << SECURITY_BITS) and lost < Fraction(1, 1 << FAILURE_BITS):
            return degree
    return count - 1


def _tail(population: int, marked: int, drawn: int, least_: int) -> Fraction:
    """Return the chance that of `drawn` out of a population at least `least_` are marked."""
    hits = sum(
        math.comb(marked, hit) * math.comb(population - marked, drawn - hit)
        for hit in range(least_, min(marked, drawn) + 1)
    )
    return Fraction(hits, math.comb(population, drawn))
