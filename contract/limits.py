"""What a choice goes with alone: kinds of task, a choice of another slot, updates that began from one model."""

from dataclasses import dataclass

from contract.tasks import TaskKind


@dataclass(frozen=True)
class Partner:
    """The choice of another slot that this one needs: its kind, and what is said where it is missing."""

    kind: str
    missing: str


@dataclass(frozen=True)
class Only:
    """The kinds of task that a choice has a meaning for.

    Attributes:
        kinds: these.
        why: why it has none for others.
        instead: what to choose there.
    """

    kinds: frozenset[TaskKind]
    why: str
    instead: str


@dataclass(frozen=True)
class OneBase:
    """A choice has a meaning only where all updates of a round began from one model, as in rounds that wait.

    Attributes:
        why: why it has none for others.
        instead: what to choose there.
    """

    why: str
    instead: str
