"""Ensembles that rounds keep say of any set what the teachers said, bit for bit; and what is kept of them, and how."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.ensembles import rule_of, why_none
from contract.local import LocalPlan
from contract.recipes import presets
from contract.tensors import write_file
from contract.wire.plans import SecurePlan
from worker.masks import SecureSum
from worker.pipeline import labels, run
from worker.specs import EnsembleSpec, JobFailure, JobResult, MemberSpec, NetworkRef, PredictSpec, RoundSpec

from .conftest import ignore

Read = Callable[[Path], dict[str, np.ndarray]]
SHORT: dict[str, Any] = {"schedule": {"steps": 2, "batch_size": 8}}
MLP: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [5]}}
HEAD: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [4], "common_head": True}}
POSTERIOR = {"kind": "posterior", "samples": 3}
GROUPS = {"groups": {"kind": "random", "count": 2}, "members": {"kind": "groups", "rounds": 2}}
FACTORS = [{"kind": "samples"}, {"kind": "variance"}]
CASES: dict[str, dict[str, Any]] = {
    "clients by entropy, two networks": {"weigh": {"kind": "entropy"}, "networks": {"main": MLP, "other": HEAD}},
    "clients by samples": {"weigh": {"kind": "samples"}},
    "sharpened means of probabilities": {"combine": {"kind": "probs", "sharpen": 2.0}},
    "era": {"combine": {"kind": "era", "temperature": 0.2}},
    "samples, their mean and clients": {"members": POSTERIOR},
    "samples with statistics of their own": {
        "members": POSTERIOR | {"posterior": {"kind": "swag"}, "clients": False, "mean": False}
    },
    "groups of two rounds by samples": GROUPS
    | {"weigh": {"kind": "product", "factors": [{"kind": "samples"}, {"kind": "variance"}]}},
    "one bit a weight": {"local": LocalPlan.model_validate({"precision": {"kind": "binary"}})},
    "a consensus": {"recipe": "fedet", "networks": {"main": HEAD}, "server": HEAD},
}


def world_of(tmp_path: Path, federation: Any, case: dict[str, Any]) -> Any:
    options = dict(case)
    recipe, networks = options.pop("recipe", "feddf"), options.pop("networks", None)
    more = {"server": options.pop("server", None), "local": options.pop("local", None)}
    return federation(tmp_path, presets.build(recipe, SHORT | options), prototypes=networks, **more)


def together(world: Any, result: JobResult, dataset: Path, out: str) -> JobResult:
    """Predict a set with what a round has kept."""
    weigh, combine = rule_of(world.recipe)
    members = [
        MemberSpec(
            name=each.name,
            network=each.network,
            num_samples=each.num_samples,
            is_group=each.is_group,
            counted=each.counted,
        )
        for each in result.ensemble or ()
    ]
    ensemble = EnsembleSpec(members=members, weigh=weigh, combine=combine)
    spec = PredictSpec(task=world.task, dataset=dataset, ensemble=ensemble, output_dir=world.root / out)
    return run(PredictSpec.model_validate_json(spec.model_dump_json()), ignore)


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_says_what_the_teachers_said(
    tmp_path: Path, federation: Any, tensors: Read, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    said: list[labels.Ensemble] = []
    label = labels.Labeller.label

    def heard(self: labels.Labeller, *args: Any) -> dict[str, labels.Ensemble]:
        found = label(self, *args)
        said.append(found["test"])
        return found

    world = world_of(tmp_path, federation, CASES[name])
    world.round(keep_ensemble=True)
    with monkeypatch.context() as patch:
        patch.setattr(labels.Labeller, "label", heard)
        result = world.round(keep_ensemble=True)
    made = together(world, result, tmp_path / "test", "predicted")
    found = tensors(made.models["predictions"])
    assert found["logits"].tobytes() == said[0].targets.logits.numpy().tobytes()
    assert made.metrics["accuracy"] == result.metrics["ensemble"]["accuracy"]
    assert made.metrics["teacher_weights"] == labels.teacher_weights(said[0])
    assert [each.name for each in result.ensemble or ()] == said[0].names


def test_keeping_changes_nothing_of_the_round_and_makes_the_same_members_again(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    world = world_of(tmp_path, federation, CASES["samples, their mean and clients"])
    updates = world.updates()
    plain = run(world.spec("plain", updates), ignore)
    kept, turned = (
        run(world.spec(out, given, keep_ensemble=True), ignore) for out, given in (("a", updates), ("b", updates[::-1]))
    )
    assert plain.ensemble is None
    assert plain.models["main"].read_bytes() == kept.models["main"].read_bytes()

    def files(result: JobResult) -> list[tuple[str, bytes]]:
        return [(m.name, m.network.weights.read_bytes()) for m in result.ensemble or () if m.network.weights]

    assert files(kept) == files(turned)
    assert [name for name, _ in files(kept)][-2:] == ["sample 1 of main", "sample 2 of main"]
    theirs = [each for each in kept.ensemble or () if each.client is not None]
    assert [each.network.weights for each in theirs] == [each.weights for each in updates], "an update is not copied"


def test_where_nothing_is_distilled_clients_are_the_ensemble(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(tmp_path, presets.build("fedavg", {}), prototypes={"main": MLP})
    result = world.round(keep_ensemble=True)
    assert [(each.name, each.client, each.num_samples) for each in result.ensemble or ()] == [
        (name, name, world.samples_of(name)) for name in world.names
    ]
    alone = []
    for number, each in enumerate(result.ensemble or ()):
        spec = PredictSpec(
            task=world.task, dataset=tmp_path / "test", network=each.network, output_dir=tmp_path / f"alone-{number}"
        )
        alone.append(tensors(run(spec, ignore).models["predictions"])["logits"].astype(np.float64))
    logits = tensors(together(world, result, tmp_path / "test", "predicted").models["predictions"])["logits"]
    mean = np.mean(alone, axis=0)
    assert np.allclose(logits - logits.max(axis=1, keepdims=True), mean - mean.max(axis=1, keepdims=True), atol=1e-5)


def test_a_set_without_labels_is_predicted_and_one_of_another_shape_is_refused(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedavg", {}), prototypes={"main": MLP})
    network = NetworkRef(**MLP, weights=world.models["main"])
    spec = PredictSpec(task=world.task, dataset=tmp_path / "unlabeled", network=network, output_dir=tmp_path / "out")
    assert "accuracy" not in run(spec, ignore).metrics
    write_file(tmp_path / "flat", {"inputs": np.zeros((3, 16), np.float32)})
    with pytest.raises(JobFailure) as refused:
        run(spec.model_copy(update={"dataset": tmp_path / "flat"}), ignore)
    assert refused.value.code == "schema_mismatch"


def test_of_secure_rounds_groups_alone_are_seen(tmp_path: Path, federation: Any) -> None:
    assert why_none(presets.build("fedavg", {}), secure=True) is not None
    recipe = presets.build("fedsdd", SHORT | {"groups": {"count": 2}, "members": {"rounds": 2}})
    assert why_none(recipe, secure=True) is None
    world = federation(tmp_path, recipe, prototypes={"main": MLP}, clients=6)
    secure = SecureSum(plan=SecurePlan(min_group=2))
    world.round(keep_ensemble=True, secure=secure)
    result = world.round(keep_ensemble=True, secure=secure)
    assert [each.client for each in result.ensemble or ()] == [None] * 4
    made = together(world, result, tmp_path / "test", "predicted")
    assert made.metrics["accuracy"] == result.metrics["ensemble"]["accuracy"]


def test_documents_of_rounds_before_ensembles_are_read(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedavg", {}), prototypes={"main": MLP})
    document = world.spec("out").model_dump(mode="json")
    del document["keep_ensemble"]
    assert RoundSpec.model_validate(document).keep_ensemble is False
