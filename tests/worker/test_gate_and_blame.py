"""The gate's figures, and rounds that leave a client out whose network gives NaN."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.recipes import presets
from contract.tensors import TensorFile, write_file
from contract.wire.plans import Gate
from worker.pipeline import run
from worker.pipeline.networks import build_network, outputs, read_inputs
from worker.specs import Datasets, JobFailure, NetworkRef, UpdateSpec

SHORT = {"schedule": {"epochs": 1, "batch_size": 8}}


def ignore(_: object) -> None:
    """Take progress and do nothing with it."""


def spoiled(root: Path, update: UpdateSpec) -> UpdateSpec:
    """Return the update with finite weights whose network overflows."""
    with TensorFile(update.weights) as file:
        arrays = {name: file.read(name) for name in file.names}
    arrays = {name: np.full_like(a, 3e38) if a.dtype == np.float32 and a.ndim > 1 else a for name, a in arrays.items()}
    path = root / f"spoiled-{update.client}"
    write_file(path, arrays, {"num_samples": "1"})
    return update.model_copy(update={"weights": path})


@pytest.fixture
def made(federation: Any, tmp_path: Path) -> Any:
    return federation(tmp_path, presets.build("feddf", SHORT), clients=3)


def test_the_gate_measures_the_new_model_beside_the_old_one(made: Any) -> None:
    plain = made.spec("plain")
    gated = made.spec("gated", gate=Gate(max_drop=0.1))
    assert gated.needs_networks
    without, result = run(plain, ignore), run(gated, ignore)
    assert without.models["main"].read_bytes() == result.models["main"].read_bytes()  # to measure changes nothing
    figures = result.metrics["gate"]
    assert figures["metric"] == "validation_accuracy"
    assert set(figures["models"]) == {"main"}
    for value in figures["models"]["main"].values():
        assert (value * 9) == pytest.approx(round(value * 9))  # nine samples
    tested = run(made.spec("tested", gate=Gate(metric="test_accuracy")), ignore).metrics
    assert tested["gate"]["models"]["main"]["after"] == tested["model"]["prototypes"]["main"]


def test_a_round_that_only_averages_is_measured_too(federation: Any, tmp_path: Path) -> None:
    made = federation(tmp_path, presets.build("fedavg"), clients=3)
    made.datasets = made.datasets.model_copy(update={"test": None})
    spec = made.spec("gated", gate=Gate())
    assert spec.needs_networks
    assert set(run(spec, ignore).metrics["gate"]["models"]["main"]) == {"before", "after"}
    missing = made.datasets.model_copy(update={"validation": None})
    with pytest.raises(JobFailure, match=r"datasets\.validation"):
        run(made.spec("missing", gate=Gate(), datasets=missing), ignore)


def test_a_bad_teacher_fails_the_round_unless_it_is_to_be_left_out(made: Any, tmp_path: Path) -> None:
    updates = made.updates()
    updates[1] = spoiled(tmp_path, updates[1])
    with pytest.raises(JobFailure) as caught:
        run(made.spec("failed", updates), ignore)
    assert (caught.value.code, caught.value.client) == ("non_finite", "ward-2")
    result = run(made.spec("left-out", updates, on_bad_teacher="exclude"), ignore)
    alone = run(made.spec("alone", [updates[0], updates[2]]), ignore)
    assert result.models["main"].read_bytes() == alone.models["main"].read_bytes()
    assert list(result.metrics["excluded"]) == ["ward-2"]
    assert result.metrics["excluded"]["ward-2"].startswith("non_finite: update of 'ward-2'")
    assert set(result.metrics["weights"]) == {"ward-1", "ward-3"}
    assert sum(result.metrics["weights"].values()) == pytest.approx(1)
    assert result.metrics["teacher_forwards"] == alone.metrics["teacher_forwards"]


def test_too_few_that_are_sound(made: Any, tmp_path: Path) -> None:
    updates = [spoiled(tmp_path, update) for update in made.updates()]
    with pytest.raises(JobFailure) as caught:
        run(made.spec("none", updates, on_bad_teacher="exclude"), ignore)
    assert caught.value.code == "too_few_updates"
    one = [updates[0], *made.updates()[1:]]
    with pytest.raises(JobFailure, match="2 of 3 updates are left without ward-1"):
        run(made.spec("few", one, on_bad_teacher="exclude", min_updates=3), ignore)


def test_a_model_that_is_worse_than_chance_cannot_be_judged_when_it_is_bad(federation: Any, tmp_path: Path) -> None:
    made = federation(tmp_path, presets.build("feddf", SHORT | {"drop_worst": {"factor": 0.1}}), clients=3)
    updates = made.updates()
    updates[0] = spoiled(tmp_path, updates[0])
    result = run(made.spec("left-out", updates, on_bad_teacher="exclude"), ignore)
    assert list(result.metrics["excluded"]) == ["ward-1"]


@pytest.mark.parametrize("recipe", ["fedadam", "fedyogi", "fedavg"])
def test_a_finite_value_that_overflows_later_is_somebodys(federation: Any, tmp_path: Path, recipe: str) -> None:
    """The optimiser's moments, or the forward pass of the mean, overflow: the client is named, and can be left out."""
    made = federation(tmp_path, presets.build(recipe), clients=3)
    first, second, third = made.updates()
    liar = spoiled(tmp_path, second)
    updates = [first, liar, third]
    with pytest.raises(JobFailure, match=f"Client '{liar.client}' sent values up to 3e[+]38") as caught:
        run(made.spec("fails", updates), ignore)
    assert (caught.value.code, caught.value.client) == ("non_finite", liar.client)
    result = run(made.spec("left-out", updates, on_bad_teacher="exclude"), ignore)
    assert list(result.metrics["excluded"]) == [liar.client]
    honest = run(made.spec("honest", [first, third]), ignore)
    assert result.models["main"].read_bytes() == honest.models["main"].read_bytes()


@pytest.mark.parametrize("steps", range(48, 53))
def test_a_student_that_is_no_longer_finite_anywhere_is_no_result(federation: Any, tmp_path: Path, steps: int) -> None:
    """Between the last finite loss and the first weight that is not, its network overflows on the server's samples."""
    wild = {"optimizer": {"kind": "sgd", "lr": 10, "momentum": 0.99}, "steps": steps, "batch_size": 8, "lr": "constant"}
    recipe = presets.build("feddf", {"schedule": wild | {"clip_norm": None}})
    network = {"architecture": "mlp", "options": {"hidden": [8]}}
    world = federation(tmp_path, recipe, None, {"main": network})
    inputs = read_inputs(world.datasets.unlabeled, world.task, "unlabeled")
    world.datasets = Datasets(unlabeled=world.datasets.unlabeled)  # and no set on which it would be measured
    try:
        made = world.round().models["main"]
    except JobFailure as failure:
        assert failure.code == "non_finite"
        return
    module = build_network(NetworkRef(**network, weights=made), world.task, "cpu", owner="student")
    assert [len(values) for _, values in outputs(module, inputs, "cpu", owner="student")] == [len(inputs)]
