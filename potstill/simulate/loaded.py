"""A data set as simulations have it: its parts, the kind of its task, and what it is dealt by."""

from dataclasses import dataclass, replace

from contract.tasks import TaskKind
from potstill.samples import Inputs, Samples
from potstill.simulate import kinds


@dataclass(frozen=True)
class Loaded:
    """A data set.

    Attributes:
        name: its name, of a file its stem.
        num_classes: C.
        train: what is dealt to the clients.
        test: None where it has no test part of its own; `server` likewise.
        other: inputs [M, *shape] that the server has instead of some of this set; None for some of this set.
        kind: of its task.
        dealt_by: what `train` is dealt by, in words.
        server_share: of what is left without the test, where it has no server part.
    """

    name: str
    num_classes: int
    train: Samples
    test: Samples | None = None
    server: Samples | None = None
    other: Inputs | None = None
    kind: TaskKind = "classification"
    dealt_by: str = kinds.DEALT_BY["classification"]
    server_share: float = 0.1

    @property
    def strata(self) -> int:
        """How many strata samples are dealt by, S."""
        most = int(self.train.dealt_by.max(initial=0)) + 1
        return max(most, self.num_classes) if self.train.strata is None else most

    @property
    def vocabulary(self) -> int | None:
        """Token ids that networks know, where its inputs are such: those that are there, and of tokens the classes."""
        parts = [each.inputs for each in (self.train, self.test, self.server) if each is not None]
        parts += [] if self.other is None else [self.other]
        if kinds.dtype_of(parts[0]) != "int64":
            return None
        classes = self.num_classes if self.kind == "tokens" else 0
        return max(2, classes, *(int(each.max(initial=0)) + 1 for each in parts if each.dtype.kind == "i"))


def with_strata(loaded: Loaded) -> Loaded:
    """Return a data set that is dealt by what follows from its labels."""
    task = kinds.task_of(loaded.kind, loaded.num_classes, loaded.train.inputs)
    train = replace(loaded.train, strata=kinds.strata(loaded.train.labels, task))
    return replace(loaded, train=train, dealt_by=kinds.DEALT_BY[loaded.kind])
