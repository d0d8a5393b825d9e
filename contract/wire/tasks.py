"""What the networks of a federation read and decide."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from contract.bodies import Part
from contract.bounds import MOST_OUTPUTS, MOST_VALUES, VALUE, AtMost, DataValue, Label
from contract.labels import MOST_CLASSES
from contract.tasks import TASKS, Metric, TaskKind

Dtype = Literal["float32", "float16", "uint8", "int64"]
_Scale = Annotated[float, Field(gt=0, le=VALUE)]


class InputSpec(Part):
    """Shape and type of one sample, without the batch dimension.

    Networks read float32, or int64 token ids. Other floats and bytes are how samples are stored and sent.
    """

    shape: list[Annotated[int, Field(ge=1, le=MOST_VALUES)]] = Field(min_length=1, max_length=5, examples=[[1, 8, 8]])
    dtype: Dtype = Field(
        "float32", description="of data sets; float16 and uint8 (bytes of images) become float32 before a network"
    )
    mean: list[DataValue] | None = Field(
        None,
        min_length=1,
        max_length=4096,
        exclude_if=lambda value: value is None,
        description="networks read (x - mean) / scale: one number, or one for each edge of the first axis; default 0",
    )
    scale: list[_Scale] | None = Field(
        None,
        min_length=1,
        max_length=4096,
        exclude_if=lambda value: value is None,
        description="of the same; default 1, of uint8 255",
        examples=[[255.0]],
    )

    @model_validator(mode="after")
    def _bounded(self) -> "InputSpec":
        if math.prod(self.shape) > MOST_VALUES:
            raise ValueError("one sample may have at most 10,000,000 values")
        for name, values in (("mean", self.mean), ("scale", self.scale)):
            if values is None:
                continue
            if self.dtype == "int64":
                raise ValueError(f"{name}: token ids are no quantities; leave it out")
            if len(values) not in (1, self.shape[0]):
                raise ValueError(
                    f"{name}: {len(values)} numbers for {self.shape[0]} channels; give one, or one for each channel"
                )
        return self

    @property
    def is_tokens(self) -> bool:
        """Whether samples are token ids, which are never scaled."""
        return self.dtype == "int64"

    @property
    def is_image(self) -> bool:
        """Whether samples are images [C, H, W]."""
        return len(self.shape) == 3 and not self.is_tokens

    @property
    def read_as(self) -> Literal["float32", "int64"]:
        """What networks read."""
        return "int64" if self.is_tokens else "float32"

    @property
    def normalisation(self) -> tuple[list[float], list[float]] | None:
        """Mean and scale, each of one number or one a channel; None where samples are read as they are."""
        if self.mean is None and self.scale is None and self.dtype != "uint8":
            return None
        return self.mean or [0.0], self.scale or [255.0 if self.dtype == "uint8" else 1.0]


class Task(Part):
    """What the networks decide (`contract.tasks.TASKS` says what each kind is)."""

    kind: TaskKind = "classification"
    num_classes: int = Field(
        ge=1,
        le=MOST_CLASSES,
        description="C, columns of a network's output: classes, two at least; of multilabel how many labels there are, "
        "of regression how many numbers a sample has",
        examples=[10],
    )
    input: InputSpec
    classes: Annotated[list[Label], AtMost(MOST_CLASSES)] | None = Field(
        None,
        description="names of the classes in the order of their numbers; a device must then declare the same list",
        examples=[["cat", "dog", "fox"]],
    )
    metric: Label | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="what gates, early stopping and the figure of a round read; null: the kind's first",
        examples=["macro_f1"],
    )
    huber: float | None = Field(
        None,
        gt=0,
        le=VALUE,
        exclude_if=lambda value: value is None,
        description="regression: errors beyond it count linearly (Huber's loss); null: squared errors",
    )

    @model_validator(mode="after")
    def _possible(self) -> "Task":
        if self.classes is not None:
            if len(self.classes) != self.num_classes:
                raise ValueError(f"classes: {len(self.classes)} names for {self.num_classes} classes")
            if len(set(self.classes)) != len(self.classes):
                raise ValueError("classes: a name is there twice")
        TASKS[self.kind].metric(self.metric)
        if self.huber is not None and self.kind != "regression":
            raise ValueError(f"huber: a {self.kind} task has no errors to bound; leave it out")
        if self.num_classes < 2 and self.kind not in ("multilabel", "regression"):
            raise ValueError("num_classes: one class leaves nothing to decide; give two at least")
        self._check_input()
        if math.prod(self.output_shape) > MOST_OUTPUTS:
            raise ValueError(f"input.shape: a network would give more than {MOST_OUTPUTS} values of one sample")
        return self

    def _check_input(self) -> None:
        shape = self.input.shape
        if self.kind == "dense":
            if self.input.is_tokens or len(shape) not in (3, 4):
                raise ValueError(
                    f"input.shape: dense tasks label images [C, H, W] or volumes [C, D, H, W] of floats; this is "
                    f"{self.input.dtype} {shape}"
                )
            if self.num_classes > 255:
                raise ValueError("num_classes: a dense task has 255 classes at most; label 255 is the one ignored")
        if self.kind == "tokens" and not (self.input.is_tokens and len(shape) == 1):
            raise ValueError(
                f"input: tasks of tokens read token ids, int64 [L]; this is {self.input.dtype} {shape}. For one class "
                "a text take kind 'classification'"
            )

    @property
    def positions(self) -> tuple[int, ...]:
        """Shape of what is labelled of one sample, each with one class; () where a sample is labelled as a whole."""
        if self.kind == "dense":
            return tuple(self.input.shape[1:])
        return tuple(self.input.shape) if self.kind == "tokens" else ()

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Shape of one sample's labels."""
        return (self.num_classes,) if self.kind in ("multilabel", "regression") else self.positions

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what a network gives of one sample."""
        return (*self.positions, self.num_classes) if self.kind == "tokens" else (self.num_classes, *self.positions)

    @property
    def main_metric(self) -> Metric:
        """What gates, early stopping and the figure of a round read."""
        return TASKS[self.kind].metric(self.metric)
