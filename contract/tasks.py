"""What networks learn: one row for each kind of task. Devices, workers, gates and whoever shows figures read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

TaskKind = Literal["classification", "multilabel", "regression", "dense", "tokens"]
KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
OF_CLASSES: frozenset[TaskKind] = frozenset({"classification", "multilabel", "dense", "tokens"})
"""Kinds whose outputs are logits of classes, at one position or at many; multilabel: of two at each label."""
OF_VECTORS: frozenset[TaskKind] = frozenset({"classification", "multilabel", "regression"})
"""Kinds whose networks end in one vector a sample, [B, C]."""


@dataclass(frozen=True)
class Metric:
    """A figure of a model on labelled data.

    Attributes:
        name: as in figures.
        what: in words.
        higher_is_better: which way is better.
        is_share: it lies in [0, 1], and people are shown percent.
    """

    name: str
    what: str
    higher_is_better: bool = True
    is_share: bool = True

    def better(self, one: float, other: float) -> bool:
        """Whether one value is strictly better than another."""
        return one > other if self.higher_is_better else one < other

    @property
    def key(self) -> str:
        """What its value is called among a round's figures: `accuracy`, or `measured` of every other main metric."""
        return "accuracy" if self.name == "accuracy" else "measured"

    def goodness(self, value: float) -> float:
        """Return a number that is the higher the better."""
        return value if self.higher_is_better else -value

    def loss_of(self, before: float, after: float) -> float:
        """Return by how much a value became worse; negative where it became better."""
        return before - after if self.higher_is_better else after - before


@dataclass(frozen=True)
class Kind:
    """One kind of task.

    Attributes:
        what: what a network decides.
        labels: of B samples, in words.
        outputs: of a network, likewise.
        metrics: what is measured; the first is the main one where a task names none.
        ignored: label of a position that counts nowhere.
    """

    what: str
    labels: str
    outputs: str
    metrics: tuple[Metric, ...]
    ignored: int | None = None

    def metric(self, name: str | None) -> Metric:
        """Return a metric by name; by default the main one.

        Raises:
            ValueError: this kind has no such metric.
        """
        found = next((each for each in self.metrics if name in (None, each.name)), None)
        if found is None:
            known = ", ".join(each.name for each in self.metrics)
            raise ValueError(f"metric: {name!r} is none of this kind of task; take one of {known}")
        return found


_MACRO_F1 = Metric("macro_f1", "mean over the classes of F1, those that are neither labelled nor predicted left out")

TASKS: Mapping[TaskKind, Kind] = {
    "classification": Kind(
        "one class a sample",
        "class numbers [B]",
        "logits [B, C]",
        (Metric("accuracy", "share of samples whose largest logit is the label's"), _MACRO_F1),
    ),
    "multilabel": Kind(
        "which of C labels a sample has, any number of them",
        "0 or 1 [B, C]",
        "logits [B, C], each of one label",
        (
            Metric("micro_f1", "F1 of all labels of all samples together, predicted at a probability of 0.5"),
            Metric("macro_f1", "mean over the labels of F1, those that are neither there nor predicted left out"),
            Metric("mean_average_precision", "mean over the labels that are there of the average precision"),
        ),
    ),
    "regression": Kind(
        "C numbers a sample",
        "floats [B, C]",
        "values [B, C]",
        (
            Metric("rmse", "root of the mean squared error of all values", higher_is_better=False, is_share=False),
            Metric("mae", "mean absolute error of all values", higher_is_better=False, is_share=False),
            Metric("r2", "mean over the columns of 1 - squared errors / squared deviations", is_share=False),
        ),
    ),
    "dense": Kind(
        "one class a pixel or voxel",
        "class numbers [B, H, W] or [B, D, H, W], 255 ignored",
        "logits [B, C, H, W] or [B, C, D, H, W]",
        (
            Metric("mean_iou", "mean over the classes of intersection over union, absent ones left out"),
            Metric("dice", "mean over the classes of 2 intersection / (labelled + predicted), absent ones left out"),
            Metric("pixel_accuracy", "share of positions whose largest logit is the label's"),
        ),
        ignored=255,
    ),
    "tokens": Kind(
        "one class a token: a tag, or the next token",
        "class numbers [B, L], -100 ignored",
        "logits [B, L, C]",
        (
            Metric("accuracy", "share of positions whose largest logit is the label's"),
            Metric("perplexity", "exp of the mean cross-entropy of a position", higher_is_better=False, is_share=False),
            _MACRO_F1,
        ),
        ignored=-100,
    ),
}

ACCURACY = TASKS["classification"].metric(None)


def measured_of(figures: Mapping[str, Any]) -> float | None:
    """Return the main figure among a round's, a model's or an ensemble's figures; None where nothing was measured."""
    found = figures.get("measured", figures.get("accuracy"))
    return None if found is None else float(found)


def without_measured(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures without the main one: that of models that nobody gets."""
    return {name: value for name, value in figures.items() if name not in ("measured", "accuracy", "metric")}
