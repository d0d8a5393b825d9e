"""DS-FL's round: predictions come instead of weights, become targets, and the server's model learns them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.local import DsFlObjective, LocalPlan
from contract.nn.codec import load_state
from contract.nn.registry import build as build_network
from contract.recipes.presets import build
from contract.tensors import TensorFile, write_file
from worker.pipeline import fusing, run
from worker.specs import JobFailure, UpdateSpec

PLAN = LocalPlan(objective=DsFlObjective())
MLP: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [4]}}
ONE_STEP = {"steps": 1, "batch_size": 21, "optimizer": {"kind": "sgd", "lr": 0.5}}
Tensors = Callable[[Path], dict[str, np.ndarray]]


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@pytest.fixture
def world(tmp_path: Path, federation: Any) -> Any:
    return federation(tmp_path, build("ds-fl", {"schedule": ONE_STEP}), PLAN, {"main": MLP}, clients=3)


def predictions(world: Any, client: str, values: Any) -> UpdateSpec:
    path = world.root / f"predicted-{client}"
    write_file(path, {"predictions": np.asarray(values, np.float32)}, {"num_samples": "1"})
    return UpdateSpec(client=client, prototype="main", weights=path, num_samples=1)


def test_the_first_job_makes_the_public_set_without_labels(world: Any, tensors: Tensors) -> None:
    assert set(world.state) == {"send.public"}
    made, source = tensors(world.state["send.public"]), tensors(world.datasets.unlabeled)
    assert set(made) == {"inputs"}
    assert np.array_equal(made["inputs"], source["inputs"])


def test_a_round_by_hand(world: Any, tensors: Tensors) -> None:
    """p is the plain mean, whatever n_k; target = softmax(p / 0.1); one step of cross-entropy from the old model."""
    updates = world.updates()
    assert len({each.num_samples for each in updates}) == 3
    sent = np.stack([tensors(each.weights)["predictions"] for each in updates]).astype(np.float64)
    target = softmax(sent.mean(axis=0) / 0.1)
    base, inputs = world.models["main"], torch.from_numpy(tensors(world.datasets.unlabeled)["inputs"])
    student = build_network(name=MLP["architecture"], options=MLP["options"], task=world.task)
    load_state(student, base)
    loss = -(torch.from_numpy(target) * torch.log_softmax(student(inputs), 1)).sum(1).mean()
    loss.backward()
    result = world.round(updates)
    assert result.state is not None and set(result.state) == {"send.public", "send.targets"}
    found = tensors(result.state["send.targets"])["targets"]
    assert found.dtype == np.float32 and found == pytest.approx(target, abs=1e-6)
    published = tensors(result.models["main"])
    for name, parameter in student.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0
        expected = (parameter - 0.5 * parameter.grad).detach().numpy()
        assert published[name] == pytest.approx(expected, abs=1e-6)


def test_nothing_is_averaged_and_no_teacher_is_run(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("average_files", "_average"):
        monkeypatch.setattr(fusing, name, None)
    metrics = world.round().metrics
    assert "weights" not in metrics and "average" not in metrics and metrics["teacher_forwards"] == 0
    assert metrics["teacher_weights"] == pytest.approx(dict.fromkeys(world.names, 1 / 3))
    assert metrics["ensemble"]["teachers"] == 3 and "accuracy" not in metrics["ensemble"]
    assert set(metrics["distil"]) == {"main"}


def test_targets_follow_the_rounds_and_the_public_set_stays(world: Any) -> None:
    first, second = world.round(), world.round()
    assert first.state is not None and second.state is not None
    assert first.state["send.public"] == second.state["send.public"]
    assert first.state["send.targets"].read_bytes() != second.state["send.targets"].read_bytes()


def test_the_order_of_the_updates_makes_no_difference(world: Any, repeatable: Callable[[Any], Any]) -> None:
    repeatable(world)


def test_hard_predictions_are_taken_and_ties_stay_ties(world: Any, tensors: Tensors) -> None:
    rows = [np.tile(np.eye(3)[number], (21, 1)) for number in range(2)]
    result = world.round([predictions(world, f"ward-{n + 1}", row) for n, row in enumerate(rows)])
    assert result.state is not None
    target = tensors(result.state["send.targets"])["targets"]
    assert target == pytest.approx(np.tile(softmax(np.array([[5.0, 5.0, 0.0]])), (21, 1)), abs=1e-6)


def test_models_of_several_networks_learn_one_target_and_absent_ones_stay(tmp_path: Path, federation: Any) -> None:
    networks = {name: {"architecture": "mlp", "options": {"hidden": [n]}} for n, name in enumerate("abc", start=2)}
    world = federation(tmp_path, build("ds-fl", {"schedule": ONE_STEP}), PLAN, networks, clients=2)
    trained = {each.prototype for each in world.updates()}
    assert len(trained) == 2
    assert set(world.round().models) == trained
    everybody = build("ds-fl", {"schedule": ONE_STEP, "students": {"kind": "all"}})
    (tmp_path / "all").mkdir()
    assert set(federation(tmp_path / "all", everybody, PLAN, networks, clients=2).round().models) == set(networks)


def test_noise_can_be_the_public_set_and_other_parts_label_it(tmp_path: Path, federation: Any) -> None:
    changes = {
        "schedule": ONE_STEP,
        "data": {"kind": "noise", "count": 8},
        "weigh": {"kind": "entropy"},
        "combine": {"kind": "logits"},
        "objective": {"kind": "kl"},
    }
    world = federation(tmp_path, build("ds-fl", changes), PLAN, {"main": MLP})
    result = world.round()
    with TensorFile(result.state["send.targets"]) as targets, TensorFile(result.state["send.public"]) as public:
        assert targets.info("targets").shape == (8, 3) and public.info("inputs").shape == (8, 1, 4, 4)
    assert len(set(result.metrics["teacher_weights"].values())) > 1


FAIR = np.full((21, 3), 1 / 3)


def changed(row: list[float]) -> np.ndarray:
    values = FAIR.copy()
    values[4] = row
    return values


@pytest.mark.parametrize(
    ("values", "code", "said"),
    [
        (changed([0.5, 0.5, 0.5]), "no_probabilities", "row 4"),
        (changed([1.2, -0.1, -0.1]), "no_probabilities", "row 4"),
        (changed([np.nan, 0.5, 0.5]), "no_probabilities", "row 4"),
        (np.log(FAIR), "no_probabilities", "send the softmax"),
        (FAIR[:20], "schema_mismatch", "predictions"),
        (np.full((21, 4), 0.25), "schema_mismatch", "predictions"),
    ],
)
def test_what_is_no_prediction_fails_and_names_the_client(world: Any, values: Any, code: str, said: str) -> None:
    updates = [predictions(world, "ward-1", FAIR), predictions(world, "ward-2", values)]
    with pytest.raises(JobFailure, match=r"ward-2.*" + said) as caught:
        run(world.spec("out", updates), lambda _: None)
    assert caught.value.code == code


def test_weights_are_no_predictions_and_without_a_public_set_there_are_none(world: Any) -> None:
    updates = world.updates()
    with pytest.raises(JobFailure) as caught:
        run(world.spec("out", updates, state={}), lambda _: None)
    assert caught.value.code == "schema_mismatch"
    assert "public set" in caught.value.detail
    weights = updates[0].model_copy(update={"weights": world.models["main"]})
    with pytest.raises(JobFailure, match="ward-1"):
        run(world.spec("out", [weights]), lambda _: None)
