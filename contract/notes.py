"""Notes: what the service left out, took by default or changed because of what else a federation was asked to be.

Each part of a recipe or a plan says by itself what becomes of it among others, in its `remarks`
(`contract.choices.Options`). `contract.settling` asks all of them: when a federation is created, and when its plan is
changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from contract.bodies import Part
from contract.tasks import TaskKind

Inputs = Literal["images", "tokens", "values"]


class _Keep:
    """Stands for: the option stays as it is."""

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final = _Keep()


class Note(Part):
    """One thing that is otherwise than it was asked for, or than one would think."""

    model_config = ConfigDict(extra="ignore")  # of a newer service

    path: str = Field(
        description="the field of the request that it is about", examples=["recipe.distil.schedule.early_stop"]
    )
    note: str = Field(description="what was left out, taken by default or changed", examples=["left out"])
    why: str = Field(examples=["it is judged on datasets.validation, and there is none"])

    def __str__(self) -> str:
        return f"{self.path}: {self.note}; {self.why}"


@dataclass(frozen=True)
class Remark:
    """What a part says of one of its options.

    Attributes:
        option: its name, dotted where it lies deeper; empty for the part itself.
        note: what was left out, taken by default or changed.
        why: the reason, and what to do for another result.
        becomes: the option's new value; a value that was asked for by name is never changed, nor is anything said then.
    """

    option: str
    note: str
    why: str
    becomes: Any = KEEP


@dataclass(frozen=True)
class Setting:
    """What else there is in the federation that a part is in.

    Attributes:
        task: what networks decide.
        inputs: what samples are: images [C, H, W], token ids, or other values.
        sets: the server sets that are there, of `unlabeled`, `validation` and `test`.
        selection: how clients are drawn, as the recipe says.
        rounds: how many there are.
        gated: new models are measured before they are published.
        secure: only sums of updates are read.
        objective_reads: devices are sent something beside the model, which a round's end brings.
        normalises: whether a network has layers that normalise, by prototype; None where nobody knows.
        projects: whether a network ends in a projection head, by prototype.
        asked: dotted paths of the options that were asked for by name; all that lies below one was.
    """

    task: TaskKind = "classification"
    inputs: Inputs = "values"
    sets: frozenset[str] = frozenset()
    selection: str = "uniform"
    rounds: int = 10
    gated: bool = False
    secure: bool = False
    objective_reads: bool = False
    normalises: Mapping[str, bool | None] = field(default_factory=dict)
    projects: Mapping[str, bool] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()

    def was_asked(self, path: str) -> bool:
        """Whether an option was asked for by name, a part of it, or the whole that it is in."""
        return any(_within(path, each) or _within(each, path) for each in self.asked)


def _within(path: str, whole: str) -> bool:
    return path == whole or path.startswith(f"{whole}.")
