"""A round's figures tell how far each update lies; what is beyond `rounds.max_distance` is left out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.local import BinaryPrecision, LocalPlan
from contract.recipes.presets import PRESETS, build
from contract.tensors import FLOATS, TensorFile, write_file
from worker.pipeline import run
from worker.specs import JobFailure, Progress, UpdateSpec

Change = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ignore(_: Progress) -> None:
    """Take progress and do nothing with it."""


def hundredfold(sent: np.ndarray, base: np.ndarray) -> np.ndarray:
    return 100 * sent


def changed(made: Any, update: UpdateSpec, change: Change) -> UpdateSpec:
    """Return an update whose floats were changed."""
    with TensorFile(made.models[update.prototype]) as base, TensorFile(update.weights) as file:
        arrays = {
            name: change(file.read(name), base.read(name)).astype(np.float32)
            if file.info(name).dtype in FLOATS and "running" not in name
            else file.read(name)
            for name in file.names
        }
        metadata = file.header.metadata
    path = update.weights.with_name(f"{update.weights.name}-{change.__name__}")
    write_file(path, arrays, metadata)
    return update.model_copy(update={"weights": path})


@pytest.fixture
def made(federation: Any, tmp_path: Path) -> Any:
    return federation(tmp_path, build("fedavg"))


def test_honest_updates_have_figures_and_none_stands_out(made: Any) -> None:
    metrics = made.round().metrics
    assert set(metrics["distances"]) == set(made.names)
    for figures in metrics["distances"].values():
        assert set(figures) == {"distance", "relative", "norm_ratio"}
        assert 0 < figures["relative"] < 5 and figures["distance"] > 0
    assert "outliers" not in metrics and "excluded" not in metrics


def test_one_that_is_scaled_is_named_and_counts_all_the_same(made: Any) -> None:
    updates = made.updates()
    updates[2] = changed(made, updates[2], hundredfold)
    result = run(made.spec("scaled", updates), ignore)
    assert set(result.metrics["outliers"]) == {"ward-3"}
    assert set(result.metrics["weights"]) == set(made.names)


def test_what_is_too_far_is_left_out_and_the_model_is_that_of_the_others(made: Any) -> None:
    updates = made.updates()
    updates[2] = changed(made, updates[2], hundredfold)
    result = run(made.spec("limited", updates, max_distance=20.0), ignore)
    others = run(made.spec("others", [*updates[:2], *updates[3:]]), ignore)
    assert result.models["main"].read_bytes() == others.models["main"].read_bytes()
    assert set(result.metrics["excluded"]) == {"ward-3"}
    assert "rounds.max_distance is 20" in result.metrics["excluded"]["ward-3"]
    assert "ward-3" not in result.metrics["weights"]
    assert "ward-3" in result.metrics["distances"]


def test_fewer_than_are_needed_fail_the_round_with_the_names(made: Any) -> None:
    updates = [changed(made, update, hundredfold) for update in made.updates()]
    with pytest.raises(JobFailure, match="ward-1: it lies .*rounds.max_distance") as caught:
        run(made.spec("none", updates, max_distance=20.0), ignore)
    assert caught.value.code == "too_few_updates"
    with pytest.raises(JobFailure, match="4 of 5 updates are left"):
        mixed = [updates[0], *made.updates()[1:]]
        run(made.spec("few", mixed, max_distance=20.0, min_updates=5), ignore)


def test_the_order_of_updates_changes_no_figure(made: Any) -> None:
    updates = made.updates()
    first = run(made.spec("one", updates), ignore).metrics["distances"]
    assert run(made.spec("two", updates[::-1]), ignore).metrics["distances"] == first


def test_a_mean_measures_as_it_reads_and_before_it_where_somebody_may_be_left_out(made: Any) -> None:
    told: list[Progress] = []
    plain = run(made.spec("one", made.updates()), told.append)
    assert "distances" not in {each.phase for each in told}
    strict = run(made.spec("two", made.updates(), max_distance=1e5), told.append)
    assert "distances" in {each.phase for each in told}
    assert strict.metrics["distances"] == plain.metrics["distances"]
    assert [path.read_bytes() for path in strict.models.values()] == [p.read_bytes() for p in plain.models.values()]


def test_updates_of_bits_are_measured_as_the_weights_that_they_mean(federation: Any, tmp_path: Path) -> None:
    made = federation(tmp_path, build("fedavg"), LocalPlan(precision=BinaryPrecision()))
    metrics = made.round().metrics
    assert set(metrics["distances"]) == set(made.names)


def test_predictions_have_no_distance(federation: Any, tmp_path: Path) -> None:
    made = federation(tmp_path, build("ds-fl"), PRESETS["ds-fl"].local)
    assert "distances" not in made.round().metrics


def test_prototypes_are_judged_among_their_own(federation: Any, tmp_path: Path) -> None:
    small = {"architecture": "mlp", "options": {"hidden": [3]}}
    large = {"architecture": "mlp", "options": {"hidden": [40, 40]}}
    made = federation(tmp_path, build("fedavg"), prototypes={"small": small, "large": large}, clients=8)
    metrics = made.round().metrics
    assert set(metrics["distances"]) == set(made.names) and "outliers" not in metrics
