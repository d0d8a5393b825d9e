"""Kinds of task: what a task may say of itself, which labels it takes, and what has no meaning for it."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from contract.local import LocalPlan, Privacy
from contract.recipes.checks import check_with_task
from contract.recipes.errors import RecipeError
from contract.recipes.presets import build
from contract.targets import conform
from contract.tasks import TASKS, TaskKind, measured_of, without_measured
from contract.wire.federations import InputSpec, Task

IMAGE = {"shape": [1, 4, 4]}
IDS = {"shape": [5], "dtype": "int64"}


def task(kind: str, count: int = 3, **more: Any) -> Task:
    given = IDS if kind == "tokens" else IMAGE
    return Task.model_validate({"kind": kind, "num_classes": count, "input": given} | more)


@pytest.mark.parametrize(
    ("kind", "labels", "outputs"),
    [
        ("classification", (), (3,)),
        ("multilabel", (3,), (3,)),
        ("regression", (3,), (3,)),
        ("dense", (4, 4), (3, 4, 4)),
        ("tokens", (5,), (5, 3)),
    ],
)
def test_shapes_of_one_sample(kind: str, labels: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    assert (task(kind).label_shape, task(kind).output_shape) == (labels, outputs)


def test_a_volume_is_labelled_at_its_voxels() -> None:
    assert task("dense", input={"shape": [2, 3, 4, 5]}).output_shape == (3, 3, 4, 5)


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("classification", {"num_classes": 1}, "num_classes: one class"),
        ("classification", {"huber": 1.0}, "huber: a classification task"),
        ("classification", {"metric": "rmse"}, "take one of accuracy, macro_f1"),
        ("dense", {"input": {"shape": [4, 4]}}, r"input.shape: dense tasks label images \[C, H, W\]"),
        ("dense", {"num_classes": 256}, "label 255 is the one ignored"),
        ("dense", {"num_classes": 200, "input": {"shape": [1, 1000, 1000]}}, "would give more than"),
        ("tokens", {"input": IMAGE}, "take kind 'classification'"),
    ],
)
def test_tasks_that_cannot_be(kind: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        task(kind, **change)


def test_what_was_stored_before_there_were_kinds_is_a_classification_and_says_nothing_new() -> None:
    stored = {"num_classes": 3, "input": {"shape": [2]}}
    again = Task.model_validate(stored).model_dump()
    assert again == {"kind": "classification", "classes": None, **stored, "input": {"shape": [2], "dtype": "float32"}}


def test_bytes_are_scaled_to_one_unless_it_is_said_otherwise() -> None:
    spec = InputSpec(shape=[3, 2, 2], dtype="uint8")
    assert spec.normalisation == ([0.0], [255.0]) and spec.read_as == "float32"
    assert InputSpec(shape=[3, 2, 2], dtype="uint8", mean=[1, 2, 3]).normalisation == ([1, 2, 3], [255.0])
    assert InputSpec(shape=[2]).normalisation is None


LABELS: dict[str, tuple[str, Any, Any]] = {
    "truth values": ("multilabel", [[True, False, True]], np.uint8),
    "floats that are whole": ("multilabel", [[1.0, 0.0, 1.0]], np.uint8),
    "classes as floats": ("classification", np.array([0.0, 2.0, 1.0], np.float16), np.int64),
    "classes of one byte": ("classification", np.array([0, 2], np.int8), np.int64),
    "masks as floats": ("dense", np.full((1, 4, 4), 255.0, np.float32), np.uint8),
    "tags as floats": ("tokens", np.array([[0, 1, 2, -100, -100]], np.float64), np.int64),
    "whole numbers as values": ("regression", [[1, 2, 3]], np.float32),
    "pixels": ("dense", np.full((1, 4, 4), 255), np.uint8),
    "tokens": ("tokens", [[0, 1, 2, -100, -100]], np.int64),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_that_fit(case: str) -> None:
    kind, labels, dtype = LABELS[case]
    found = conform(np.asarray(labels), task(kind))
    assert found.dtype == dtype and found.tolist() == np.asarray(labels).tolist()


def test_one_number_a_sample_needs_no_second_axis() -> None:
    assert conform(np.array([1.5, 2.5]), task("regression", 1)).tolist() == [[1.5], [2.5]]


WRONG: dict[str, tuple[str, Any, str]] = {
    "a class number": ("multilabel", [0, 1], r"have shape \[\], wanted is \[3\]: .*C = 3; .*eye\(3\)\[y\]"),
    "another number": ("multilabel", [[0, 1, 1], [0, 2, 1]], r"sample 11 has label 2 at \[1\]; .*there, 1, or not, 0"),
    "a share": ("multilabel", [[0.5, 0, 1]], r"sample 10 has label 0.5 at \[0\]; labels with fractions"),
    "a class between two": ("classification", [0, 0.5], r"sample 11 has label 0.5; labels with fractions"),
    "too large for int64": (
        "classification",
        np.array([2**64 - 1], np.uint64),
        r"sample 10 has label 1.8\d*e\+19; the",
    ),
    "no number": ("regression", [[0, 1, 2], [0, np.nan, 2]], r"sample 11 has label nan at \[1\]; every value"),
    "too large": ("regression", [[0, 1e39, 0]], "finite float32"),
    "truth values": ("regression", [[True, False, True]], "take kind 'multilabel'"),
    "words": ("regression", [["a", "b", "c"]], "labels are no numbers"),
    "one class more": (
        "dense",
        np.full((1, 4, 4), 3),
        r"sample 10 has label 3 at \[0, 0\]; the federation's 3 classes are 0 to 2",
    ),
    "one channel": ("dense", np.zeros((1, 1, 4, 4)), r"take y\[:, 0\]"),
    "one channel at the end": ("dense", np.zeros((1, 4, 4, 1)), r"take y\[..., 0\]"),
    "one-hot": ("dense", np.zeros((1, 3, 4, 4)), r"argmax\(1\)"),
    "one-hot tokens": ("tokens", np.zeros((1, 5, 3)), r"argmax\(-1\)"),
    "smaller masks": ("dense", np.zeros((1, 2, 2)), "resize the masks as the inputs are"),
    "no number at a pixel": ("dense", np.full((1, 4, 4), np.nan), "every sample needs a class"),
    "below 0": ("dense", np.full((1, 4, 4), -1), "has label -1"),
    "one short": ("tokens", [[0, 1, 2, 0]], r"have shape \[4\], wanted is \[5\]"),
    "255": ("tokens", [[0, 1, 2, 0, 255]], "classes are 0 to 2, and -100 is ignored"),
}


@pytest.mark.parametrize("case", WRONG)
def test_labels_that_do_not_fit_name_sample_and_remedy(case: str) -> None:
    kind, labels, said = WRONG[case]
    with pytest.raises(ValueError, match=said):
        conform(np.asarray(labels), task(kind), rows=[10, 11])


@pytest.mark.parametrize(
    ("kind", "recipe", "options", "field", "remedy"),
    [
        ("regression", "feddf", {"weigh": {"kind": "entropy"}}, "distil.weigh", "'odds' of discriminators"),
        (
            "regression",
            "feddf",
            {"weigh": {"kind": "product", "factors": [{"kind": "samples"}, {"kind": "variance"}]}},
            "distil.weigh",
            "'uniform'",
        ),
        ("regression", "feddf", {}, "distil.objective", "take 'error'"),
        ("classification", "feddf", {"objective": {"kind": "error"}}, "distil.objective", "'kl' or 'soft_ce'"),
        ("multilabel", "feddisco", {}, "fuse", "'weighted_mean'"),
        ("multilabel", "fedet", {}, "distil.combine", "'logits' or 'probs'"),
        ("dense", "ds-fl", {}, "fuse", "recipe feddf"),
        ("tokens", "feddf", {"drop_worst": {}}, "drop_worst", "leave it out"),
        ("dense", "feddf", {"augment": {"flip": True}}, "distil.data.augment", "leave it out"),
    ],
)
def test_what_has_no_meaning_is_refused_with_what_to_take(
    kind: TaskKind, recipe: str, options: dict[str, Any], field: str, remedy: str
) -> None:
    with pytest.raises(RecipeError, match=remedy) as caught:
        check_with_task(build(recipe, options), LocalPlan(), kind)
    assert caught.value.field == field


def test_positions_have_no_bounded_share_in_a_batch() -> None:
    private = LocalPlan(privacy=Privacy())
    check_with_task(build("fedavg", {}), private, "multilabel")
    with pytest.raises(RecipeError, match="no sample's share is bounded"):
        check_with_task(build("fedavg", {}), private, "dense")


def test_metrics_know_which_way_is_better() -> None:
    rmse, iou = task("regression").main_metric, task("dense").main_metric
    assert rmse.better(1.0, 2.0) and not rmse.better(2.0, 2.0) and rmse.loss_of(1.0, 1.5) == 0.5
    assert iou.better(0.5, 0.4) and iou.loss_of(0.5, 0.4) == pytest.approx(0.1)
    assert (rmse.key, task("tokens").main_metric.key, iou.key) == ("measured", "accuracy", "measured")
    assert task("regression", metric="r2").main_metric.higher_is_better
    assert {kind: row.metrics[0].name for kind, row in TASKS.items()}["multilabel"] == "micro_f1"


def test_the_figure_of_models_that_nobody_gets_is_taken_away() -> None:
    figures = {"measured": 0.5, "metric": "rmse", "model": {}}
    assert measured_of(figures) == 0.5 and measured_of({"accuracy": 1}) == 1.0 and measured_of({}) is None
    assert without_measured(figures) == {"model": {}}
