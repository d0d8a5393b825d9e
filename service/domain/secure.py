"""How the phases of a secure round follow each other: what was said in, what comes next out. No database, no clock.

A round's groups (one for each model that is trained) go through the phases together. One that becomes too small drops
out by itself: its model stays as it is.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from contract.secure.graph import Graph, build
from contract.wire.plans import SecurePlan
from service.domain.rounds import Decision


@dataclass(frozen=True)
class Member:
    """One device of a group.

    Attributes:
        name: the client's.
        here: it can still say something: it is not revoked.
        mask_key: that it advertised.
        shared: whether its shares came.
        uploaded: whether its masked update came.
        survives: whether that is one of those that are added up.
        signed: whether it has signed the list of survivors.
        seeds, keys: whose shares it has revealed, each by name.
    """

    name: str
    here: bool
    mask_key: bytes
    shared: bool = False
    uploaded: bool = False
    survives: bool = False
    signed: bool = False
    revealed: bool = False
    seeds: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Group:
    """The devices that train one model, in one session."""

    model: str
    members: Mapping[str, Member]
    plan: SecurePlan
    graph: Graph = field(init=False)

    def __post_init__(self) -> None:
        keys = {name: member.mask_key for name, member in self.members.items()}
        object.__setattr__(self, "graph", build(keys, self.plan.threshold))

    @property
    def least(self) -> int:
        """How many of the group must be left in every phase after the keys."""
        return max(self.plan.min_group, self.graph.quorum)

    @property
    def sharing(self) -> list[str]:
        """Who shares secrets with the others, sorted: whose masks are in the sum."""
        return sorted(name for name, member in self.members.items() if member.shared)

    @property
    def survivors(self) -> list[str]:
        """Whose updates are added up, sorted."""
        return sorted(name for name, member in self.members.items() if member.survives)

    def is_open(self, said: str, among: Collection[str]) -> bool:
        """Whether somebody of these could still say something."""
        return any(self.members[name].here and not getattr(self.members[name], said) for name in among)

    def counts(self, said: str) -> int:
        """Return how many have said something."""
        return sum(getattr(member, said) for member in self.members.values())

    def is_unmasked(self) -> bool:
        """Whether enough shares of every mask that is left in the sum are here."""
        here = self.survivors
        for name in here:
            held = sum(name in self.members[who].seeds for who in self.graph.holders(name))
            if held < self.graph.threshold(name):
                return False
        for lost in set(self.sharing) - set(here):
            around = any(name in here for name in self.graph.adjacent[lost])
            held = sum(lost in self.members[who].keys for who in self.graph.adjacent[lost])
            if around and held < self.graph.threshold(lost):
                return False
        return True


def in_large_groups(models: Mapping[str, str], plan: SecurePlan) -> dict[str, str]:
    """Return those of the devices, by name, whose groups are large enough to begin with.

    Args:
        models: name -> the model that it trains.
    """
    sizes = Counter(models.values())
    return {name: model for name, model in models.items() if sizes[model] >= plan.min_group}


def too_few(count: int, said: str, needed: int) -> Decision:
    """Return what becomes of a round in which too few devices have said something."""
    return Decision("skip", f"got {said} of {count} devices; {needed} are needed, in groups large enough")
