"""Teachers, labels and students in whole rounds, against slow references; what is evaluated how often."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.recipes import parts, presets
from contract.tensors import write_file
from tests.reference import ensembles as slow
from tests.reference import fusing as slow_fusing
from worker.pipeline import run, teachers
from worker.pipeline.data import Augmenter, server_set
from worker.pipeline.networks import build_network, recalibrate
from worker.specs import Datasets, JobFailure, NetworkRef, UpdateSpec

Read = Callable[[Path], dict[str, np.ndarray]]
MLP: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [5]}}
CNN: dict[str, Any] = {"architecture": "cnn-digits", "options": {"widths": [3, 4]}}
SHORT: dict[str, Any] = {"schedule": {"epochs": 2, "batch_size": 8}}
HEADS: dict[str, dict[str, Any]] = {
    "small": {"architecture": "mlp", "options": {"hidden": [4], "common_head": True}},
    "other": {"architecture": "mlp", "options": {"hidden": [5, 3], "common_head": True}},
    "absent": {"architecture": "mlp", "options": {"hidden": [6], "common_head": True}},
}
SERVER: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [9], "common_head": True}}


def outputs(world: Any, updates: list[UpdateSpec], inputs: np.ndarray) -> np.ndarray:
    """Return all clients' logits [m, S, C] at once."""
    rows = []
    for update in updates:
        ref = NetworkRef(**world.networks[update.prototype], weights=update.weights)
        with torch.no_grad():
            module = build_network(ref, world.task, "cpu", owner="reference").eval()
            rows.append(module(torch.from_numpy(inputs)).double().numpy())
    return np.stack(rows)


def entropy(target: Any) -> float:
    return float(-(target * np.log(np.maximum(target, 1e-300))).sum(axis=1).mean())


# --------------------------------------------------------------------------------------------------------------- labels
@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({"kind": "probs", "sharpen": 3.0}, lambda logits: slow.sharpened(slow.average_probs(logits), 3.0)),
        ({"kind": "era", "temperature": 0.2}, lambda logits: slow.era(slow.average_probs(logits), 0.2)),
    ],
    ids=["sharpen", "era"],
)
def test_labels_of_probabilities_equal_the_slow_reference(
    tmp_path: Path, federation: Any, tensors: Read, options: dict[str, Any], target: Callable[[Any], Any]
) -> None:
    world = federation(tmp_path, presets.build("feddf", SHORT | {"combine": options}), prototypes={"main": MLP})
    logits = outputs(world, world.updates(), tensors(tmp_path / "unlabeled")["inputs"])
    assert world.round().metrics["ensemble"]["entropy"] == pytest.approx(entropy(target(logits)), rel=1e-4)


def test_a_product_is_the_normalised_product_of_its_factors(tmp_path: Path, federation: Any, tensors: Read) -> None:
    factors = [{"kind": "odds", "link": "sigmoid"}, {"kind": "variance"}, {"kind": "entropy", "tau": 0.5}]
    recipe = presets.build("fedgo-small", SHORT | {"weigh": {"kind": "product", "factors": factors}})
    world = federation(tmp_path, recipe, prototypes={"main": MLP})
    logits = outputs(world, world.updates(), tensors(tmp_path / "unlabeled")["inputs"])
    scores = np.stack([tensors(tmp_path / f"scores-{name}")["unlabeled"] for name in world.names])
    counts = [world.samples_of(name) for name in world.names]
    given = slow.odds(counts, scores, "sigmoid"), slow.by_variance(logits), slow.by_entropy(logits, 0.5)
    product = np.prod(np.asarray(given), axis=0)
    expected = (product / product.sum(axis=0)).mean(axis=1)
    weights = world.round().metrics["teacher_weights"]
    assert weights == pytest.approx(dict(zip(world.names, expected, strict=True)), rel=1e-4)


# ------------------------------------------------------------------------------------------------------ FedSDD's groups
def fedsdd(**changes: Any) -> Any:
    options = {"count": 3, "rounds": 2, "schedule": {"steps": 3, "batch_size": 8}}
    return presets.build("fedsdd", options | changes)


@pytest.mark.parametrize("clients", [3, 6])
def test_fedsdds_cost_does_not_depend_on_the_clients(tmp_path: Path, federation: Any, clients: int) -> None:
    world = federation(tmp_path, fedsdd(), clients=clients)
    forwards = [world.round().metrics["teacher_forwards"] for _ in range(3)]
    assert forwards == [3 * 1 * 21, 3 * 2 * 21, 3 * 2 * 21]  # K R_available |U|
    assert set(world.state) == {f"past.main{copy}.{index}" for copy in ("", "~1", "~2") for index in (2, 3)}


def test_only_the_main_model_of_fedsdd_is_distilled(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(tmp_path, fedsdd())
    result = world.round()
    assert set(result.metrics["distil"]) == {"main"}
    assert set(result.models) == {"main", "main~1", "main~2"}
    for name in ("main~1", "main~2"):
        assert result.models[name].read_bytes() == world.state[f"past.{name}.1"].read_bytes()
    distilled, before = tensors(result.models["main"]), tensors(world.state["past.main.1"])
    assert not np.array_equal(distilled["0.weight"], before["0.weight"])
    assert result.metrics["accuracy"] == result.metrics["model"]["prototypes"]["main"]


def test_empty_groups_teach_as_they_were_sent_out_and_an_empty_main_one_learns(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    world = federation(tmp_path, fedsdd())
    sent = {name: path.read_bytes() for name, path in world.models.items()}
    result = world.round([update for update in world.updates() if update.prototype == "main~1"])
    assert set(result.models) == {"main", "main~1"}
    assert result.metrics["teacher_forwards"] == 3 * 21
    assert world.state["past.main~2.1"].read_bytes() == sent["main~2"] == world.models["main~2"].read_bytes()
    assert world.state["past.main.1"].read_bytes() == sent["main"] != world.models["main"].read_bytes()


def test_the_ensemble_of_groups_holds_models_before_distillation(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    world = federation(tmp_path, fedsdd(rounds=1), prototypes={"main": MLP})
    result = world.round()
    means = [
        UpdateSpec(client=name, prototype=name, weights=world.state[f"past.{name}.1"], num_samples=1)
        for name in world.networks
    ]
    logits = outputs(world, means, tensors(tmp_path / "unlabeled")["inputs"])
    assert result.metrics["ensemble"]["entropy"] == pytest.approx(entropy(slow.average_logits(logits)), rel=1e-4)


@pytest.mark.parametrize("kind", ["samples", "odds", "dafkd"])
def test_groups_of_two_rounds_count_what_their_clients_did(
    tmp_path: Path, federation: Any, tensors: Read, kind: str
) -> None:
    """Those of round 1 by who trained them then; a group without clients counts nothing, and is kept all the same."""
    reads = {"discriminators": {"plan": {"architecture": "disc-mlp"}}} if kind != "samples" else {}
    world = federation(tmp_path, fedsdd(weigh={"kind": kind}, **reads), clients=5)
    first, rows = world.updates(), {}
    scores = {name: tensors(tmp_path / f"scores-{name}")["unlabeled"] for name in world.names}
    world.round(first)
    second = [update for update in world.updates() if update.prototype != "main~2"]
    result = world.round(second)
    counts = [float(world.samples_of(name)) for name in world.names]
    given = [scores[name] for name in world.names]
    weight = {
        "samples": lambda k, j: counts[k],
        "odds": lambda k, j: counts[k] * np.exp(slow.sigmoid(float(given[k][j]))),
        "dafkd": lambda k, j: slow.sigmoid(float(given[k][j])),
    }[kind]
    for index, sent in ((1, first), (2, second)):
        for model in world.networks:
            members = [world.names.index(update.client) for update in sent if update.prototype == model]
            rows[f"{model} of round {index}"] = [sum(weight(k, j) for k in members) for j in range(21)]
    expected = np.mean(slow.shared(list(rows.values())), axis=1)
    found = result.metrics["teacher_weights"]
    assert found == pytest.approx(dict(zip(rows, expected, strict=True)), rel=1e-5, abs=1e-12)
    assert found["main~2 of round 2"] == 0 < found["main~2 of round 1"]
    third = world.round()
    assert {name for name in world.state if name.startswith("counted.")} == {
        f"counted.{model}.{index}" for model in world.networks for index in (2, 3) if (model, index) != ("main~2", 2)
    }
    assert sum(third.metrics["teacher_weights"].values()) == pytest.approx(1)


def test_codistillation_warms_up_and_then_teaches_every_model(tmp_path: Path, federation: Any) -> None:
    recipe = presets.build("codistillation", {"count": 2, "warmup_rounds": 1, "schedule": {"steps": 2}})
    world = federation(tmp_path, recipe)
    first, second = world.round(), world.round()
    assert first.metrics["warm_up"]
    assert first.metrics["teacher_forwards"] == 0
    assert "distil" not in first.metrics
    assert set(second.metrics["distil"]) == {"main", "main~1"}


def test_an_ensemble_without_students_is_measured_and_labels_nothing(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    world = federation(tmp_path, presets.build("one-shot-ensemble"), prototypes={"main": MLP})
    data = tensors(tmp_path / "test")
    probs = np.asarray(slow.average_probs(outputs(world, world.updates(), data["inputs"])))
    right = probs.argmax(axis=1) == data["labels"]
    result = world.round(datasets=Datasets(test=tmp_path / "test"))
    assert result.metrics["accuracy"] == pytest.approx(right.mean()) == result.metrics["ensemble"]["accuracy"]
    assert result.metrics["teacher_forwards"] == 0
    assert set(result.models) == {"main"}
    blind = world.round(datasets=Datasets())
    assert "ensemble" not in blind.metrics


# ------------------------------------------------------------------------------------------------- labels of their own
ONE_STEP: dict[str, Any] = {"steps": 1, "batch_size": 21, "optimizer": {"kind": "sgd", "lr": 0.1}, "early_stop": None}
SURE = 1e6
"""A logit beside zeros: all of the probability, in the reference's softmax too."""


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        ({"kind": "soft_ce"}, slow.soft_cross_entropy),
        ({"kind": "kl", "temperature": 4.0}, lambda student, hard: slow.kl(student, SURE * np.asarray(hard), 4.0)),
        ({"kind": "kl", "temperature": 50.0}, lambda student, hard: slow.kl(student, SURE * np.asarray(hard), 50.0)),
    ],
    ids=["soft_ce", "kl 4", "kl 50"],
)
def test_students_of_a_sets_own_labels_equal_the_slow_reference(
    tmp_path: Path, federation: Any, tensors: Read, objective: dict[str, Any], loss: Callable[[Any, Any], float]
) -> None:
    options = {"data": {"kind": "labeled"}, "objective": objective, "schedule": ONE_STEP}
    world = federation(tmp_path, presets.build("feddf", options), prototypes={"main": MLP})
    data, updates = tensors(tmp_path / "unlabeled"), world.updates()
    states, counts = [tensors(each.weights) for each in updates], [each.num_samples for each in updates]
    average = {
        name: np.reshape(slow_fusing.average([state[name].ravel() for state in states], counts), value.shape)
        for name, value in states[0].items()
    }
    write_file(tmp_path / "slow-mean", {name: value.astype(np.float32) for name, value in average.items()})
    at_mean = updates[0].model_copy(update={"weights": tmp_path / "slow-mean"})
    student = outputs(world, [at_mean], data["inputs"])[0]
    metrics = world.round(updates).metrics
    assert metrics["distil"]["main"]["curve"][0]["loss"] == pytest.approx(
        loss(student, np.eye(3)[data["labels"]]), rel=1e-4
    )
    assert metrics["teacher_forwards"] == 0


def test_teachers_are_measured_beside_labels_and_not_asked_without_a_test_set(tmp_path: Path, federation: Any) -> None:
    options = SHORT | {"data": {"kind": "labeled"}, "schedule": ONE_STEP}
    world = federation(tmp_path, presets.build("feddf", options), prototypes={"main": MLP})
    unlabeled = world.spec("taught").datasets.unlabeled
    taught, untaught = (
        run(world.spec(name, datasets=Datasets(unlabeled=unlabeled, test=test)), lambda progress: None)
        for name, test in (("with", tmp_path / "test"), ("without", None))
    )
    plain = world.spec("plain", recipe=presets.build("feddf", {"schedule": ONE_STEP}))
    ensemble = run(plain, lambda progress: None).metrics["ensemble"]
    assert taught.metrics["ensemble"]["accuracy"] == ensemble["accuracy"]
    assert "ensemble" not in untaught.metrics
    assert taught.models["main"].read_bytes() == untaught.models["main"].read_bytes()


@pytest.mark.parametrize(
    ("labels", "code", "said"),
    [
        (None, "bad_option", "has no labels"),
        ([0] * 20, "schema_mismatch", "20 labels for 21 samples"),
        ([0] * 20 + [3], "bad_option", "label 3; the federation's 3 classes are 0 to 2"),
    ],
    ids=["none", "too few", "out of range"],
)
def test_labels_that_cannot_be_learnt(
    tmp_path: Path, federation: Any, tensors: Read, labels: list[int] | None, code: str, said: str
) -> None:
    world = federation(tmp_path, presets.build("feddf", SHORT | {"data": {"kind": "labeled"}}))
    arrays = {"inputs": tensors(tmp_path / "unlabeled")["inputs"]}
    write_file(tmp_path / "odd", arrays | ({} if labels is None else {"labels": np.array(labels)}))
    with pytest.raises(JobFailure, match=said) as caught:
        world.round(datasets=Datasets(unlabeled=tmp_path / "odd"))
    assert caught.value.code == code


# ---------------------------------------------------------------------------------------------------- FedBE's posterior
def posterior(**changes: Any) -> Any:
    return presets.build("feddf", SHORT | {"members": {"kind": "posterior", "samples": 3} | changes})


def test_posterior_teachers_are_clients_mean_and_samples(tmp_path: Path, federation: Any) -> None:
    result = federation(tmp_path, posterior()).round()
    assert result.metrics["teacher_forwards"] == (5 + 1 + 3) * 21
    assert list(result.metrics["teacher_weights"]) == [
        "ward-1", "ward-2", "ward-3", "ward-4", "ward-5", "mean of main",
        "sample 0 of main", "sample 1 of main", "sample 2 of main",
    ]  # fmt: skip


SUBSETS = [(s, a, c) for s in (0, 2) for a in (False, True) for c in (False, True) if s or a or c]


@pytest.mark.parametrize(("samples", "mean", "clients"), SUBSETS)
def test_any_of_samples_average_and_clients_teach(
    tmp_path: Path, federation: Any, tensors: Read, samples: int, mean: bool, clients: bool
) -> None:
    """FedBE's S, A and C, and every mixture of them; samples of scale 0 are the average, whatever is drawn."""
    chosen = {"samples": samples, "mean": mean, "clients": clients, "posterior": {"kind": "gaussian", "scale": 0.0}}
    world = federation(tmp_path, posterior(**chosen), prototypes={"main": MLP})
    updates = world.updates()
    states, counts = [tensors(each.weights) for each in updates], [each.num_samples for each in updates]
    average = {
        name: np.reshape(slow_fusing.average([state[name].ravel() for state in states], counts), value.shape)
        for name, value in states[0].items()
    }
    write_file(tmp_path / "slow-mean", {name: value.astype(np.float32) for name, value in average.items()})
    at_mean = updates[0].model_copy(update={"weights": tmp_path / "slow-mean"})
    asked = [*(updates if clients else []), *[at_mean] * (int(mean) + samples)]
    target = slow.average_logits(outputs(world, asked, tensors(tmp_path / "unlabeled")["inputs"]))
    metrics = world.round(updates).metrics
    names = [*(world.names if clients else []), *(["mean of main"] if mean else [])]
    assert list(metrics["teacher_weights"]) == names + [f"sample {number} of main" for number in range(samples)]
    assert metrics["teacher_forwards"] == len(asked) * 21
    assert metrics["ensemble"]["entropy"] == pytest.approx(entropy(target), rel=1e-4)


@pytest.mark.parametrize("kind", ["gaussian", "dirichlet", "swag"])
def test_one_client_is_its_own_posterior_and_counts_once(tmp_path: Path, federation: Any, kind: str) -> None:
    world = federation(tmp_path, posterior(posterior={"kind": kind}, clients=False))
    result = world.round(world.updates()[:1])
    assert result.metrics["teacher_weights"] == {"ward-1": 1.0}
    assert result.metrics["teacher_forwards"] == 21


@pytest.mark.parametrize("kind", ["gaussian", "dirichlet", "swag"])
def test_no_more_than_one_sampled_model_exists(
    tmp_path: Path, federation: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    seen: list[int] = []
    real = teachers._samples

    def watched(*arguments: Any) -> Any:
        for teacher in real(*arguments):
            seen.append(len(list((tmp_path / "round-1").glob("sample*"))))
            yield teacher

    monkeypatch.setattr(teachers, "_samples", watched)
    world = federation(tmp_path, posterior(posterior={"kind": kind}))
    world.round()
    assert seen == [1, 1, 1]
    assert not list((tmp_path / "round-1").glob("sample*"))


def test_samples_are_drawn_anew_in_every_round_and_for_every_seed(tmp_path: Path, federation: Any) -> None:
    recipe = posterior(posterior={"kind": "gaussian", "scale": 1.0}, clients=False, mean=False)
    world = federation(tmp_path, recipe, prototypes={"main": MLP})
    changes: list[dict[str, int]] = [{}, {"round_index": 2}, {"seed": 4}]
    specs = [world.spec(f"draw-{number}", **change) for number, change in enumerate(changes)]
    assert len({run(spec, lambda progress: None).metrics["ensemble"]["entropy"] for spec in specs}) == 3


def test_a_student_of_its_own_average_alone_does_not_move(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """FedBE C.3: without augmentation the gradient is zero."""
    at_the_mean = {"kind": "gaussian", "scale": 0.0}
    recipe = presets.build(
        "feddf",
        {
            "members": {"kind": "posterior", "samples": 1, "clients": False, "posterior": at_the_mean},
            "schedule": {"steps": 20, "optimizer": {"kind": "sgd", "lr": 1.0}},
            "batch_norm": "frozen",
        },
    )  # fmt: skip
    world = federation(tmp_path, recipe)
    averaged = federation_average(world, tmp_path, tensors)
    made = tensors(world.round().models["main"])
    for name, values in made.items():
        np.testing.assert_allclose(values, averaged[name], atol=2e-5)


def federation_average(world: Any, tmp_path: Path, tensors: Read) -> dict[str, np.ndarray]:
    plain = world.spec("plain", recipe=presets.build("fedavg"))
    return tensors(run(plain, lambda progress: None).models["main"])


# --------------------------------------------------------------------------------------------------------------- Fed-ET
def fedet_world(tmp_path: Path, federation: Any, **options: Any) -> Any:
    recipe = presets.build("fedet", SHORT | options)
    return federation(tmp_path, recipe, prototypes=HEADS, server=SERVER, clients=6)


def test_fed_et_trains_the_server_and_gives_its_head_to_everybody(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    world = fedet_world(tmp_path, federation)
    updates = [update for update in world.updates() if update.prototype != "absent"]
    before = tensors(world.models["absent"])
    result = world.round(updates)
    assert set(result.models) == {"small", "other", "absent", "server"}
    assert set(result.metrics["distil"]) == {"server"}
    assert result.metrics["teacher_forwards"] == 4 * 21
    assert result.metrics["accuracy"] == result.metrics["model"]["prototypes"]["server"]
    server = tensors(result.models["server"])
    heads = [name for name in server if name.startswith("head.")]
    assert len(heads) == 4
    for name in HEADS:
        made = tensors(result.models[name])
        assert all(np.array_equal(made[head], server[head]) for head in heads)
    after = tensors(result.models["absent"])
    assert all(np.array_equal(after[name], before[name]) for name in before if name not in heads)
    mine = [tensors(update.weights) for update in updates if update.prototype == "small"]
    small = tensors(result.models["small"])
    body = next(name for name in small if name not in heads)
    np.testing.assert_allclose(small[body], np.mean([state[body] for state in mine], axis=0), rtol=1e-5, atol=1e-7)
    start, all_states = tensors(tmp_path / "round-1/average-server.safetensors"), [tensors(u.weights) for u in updates]
    for head in heads:
        expected = np.mean([state[head] for state in all_states], axis=0)
        np.testing.assert_allclose(start[head], expected, rtol=1e-5, atol=1e-7)
        assert not np.array_equal(start[head], server[head])


def test_fed_ets_labels_equal_the_slow_reference(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = fedet_world(tmp_path, federation, diversity=0.5)
    updates = world.updates()
    logits = outputs(world, updates, tensors(tmp_path / "unlabeled")["inputs"])
    alpha = slow.by_variance(logits)
    mean, _, diverse = slow.consensus(logits, alpha)
    result = world.round(updates)
    assert result.metrics["ensemble"]["dissent"] == pytest.approx(np.sum(diverse, axis=1).mean(), rel=1e-4)
    assert result.metrics["ensemble"]["dissent"] > 0
    assert result.metrics["ensemble"]["entropy"] == pytest.approx(entropy(mean), rel=1e-4)
    names = [update.client for update in updates]
    assert result.metrics["teacher_weights"] == pytest.approx(
        dict(zip(names, np.mean(alpha, axis=1), strict=True)), rel=1e-4
    )
    assert not list((tmp_path / "round-1").glob("outputs-*"))


def test_a_consensus_of_other_weights_is_theirs(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = fedet_world(tmp_path, federation, weigh={"kind": "samples"})
    updates = world.updates()
    logits = outputs(world, updates, tensors(tmp_path / "unlabeled")["inputs"])
    mean, _, diverse = slow.consensus(logits, slow.by_samples([update.num_samples for update in updates], 21))
    of_variance = slow.consensus(logits, slow.by_variance(logits))[2]
    ensemble = world.round(updates).metrics["ensemble"]
    assert ensemble["dissent"] == pytest.approx(np.sum(diverse, axis=1).mean(), rel=1e-4)
    assert ensemble["dissent"] != pytest.approx(np.sum(of_variance, axis=1).mean(), rel=1e-3)
    assert ensemble["entropy"] == pytest.approx(entropy(mean), rel=1e-4)


def test_heads_that_differ_are_refused_with_the_remedy(tmp_path: Path, federation: Any) -> None:
    plain = {"small": {"architecture": "mlp", "options": {"hidden": [4]}}}
    world = federation(tmp_path, presets.build("fedet", SHORT), prototypes=plain, server=SERVER)
    with pytest.raises(JobFailure, match="common_head") as caught:
        world.round()
    assert caught.value.code == "schema_mismatch"
    with pytest.raises(JobFailure, match="server_model"):
        world.round(server_model=None)


# -------------------------------------------------------------------------------------------------- how students learn
def test_recalibrated_statistics_are_those_of_the_plain_server_set(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    mirrored = {"kind": "unlabeled", "augment": {"flip": True}}
    recipe = presets.build("feddf", SHORT | {"batch_norm": "recalibrate", "data": mirrored})
    world = federation(tmp_path, recipe)
    made = world.round().models["main"]
    state, inputs = tensors(made), torch.from_numpy(tensors(tmp_path / "unlabeled")["inputs"])
    convolved = torch.nn.functional.conv2d(
        inputs, torch.from_numpy(state["0.weight"]), torch.from_numpy(state["0.bias"]) if "0.bias" in state else None,
        stride=2, padding=1,
    )  # fmt: skip
    np.testing.assert_allclose(state["1.running_mean"], convolved.mean(dim=(0, 2, 3)).numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state["1.running_var"], convolved.var(dim=(0, 2, 3)).numpy(), rtol=1e-4, atol=1e-5)


def test_recalibration_leaves_out_a_last_batch_of_one_and_keeps_counters() -> None:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5))
    module.get_buffer("0.num_batches_tracked").add_(7)
    inputs = torch.randn(257, 2, generator=torch.Generator().manual_seed(1))
    recalibrate(module, inputs, "cpu")
    torch.testing.assert_close(module[0].running_mean, inputs[:256].mean(dim=0))
    assert int(module.get_buffer("0.num_batches_tracked")) == 7
    assert module[0].momentum == 0.1
    assert not module[0].training


def swa(cycle: int, start: int, **schedule: Any) -> Any:
    given = {"batch_size": 8, "swa": {"cycle": cycle, "start": start, "lr_high": 0.1, "lr_low": 0.01}, **schedule}
    return presets.build("v-distillation", {"schedule": given})


def test_swa_returns_the_mean_of_its_snapshots(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """Runs that end after two and four steps give the two snapshots of the longer one."""
    ends = []
    for steps in (2, 4):
        (tmp_path / str(steps)).mkdir()
        recipe = swa(2, steps - 1, steps=steps)
        ends.append(tensors(federation(tmp_path / str(steps), recipe, prototypes={"main": MLP}).round().models["main"]))
    (tmp_path / "mean").mkdir()
    world = federation(tmp_path / "mean", swa(2, 0, steps=4), prototypes={"main": MLP})
    result = world.round()
    assert result.metrics["distil"]["main"]["snapshots"] == 2
    for name, values in tensors(result.models["main"]).items():
        np.testing.assert_allclose(values, (ends[0][name] + ends[1][name]) / 2, rtol=1e-5, atol=1e-6)
    rates = [point["lr"] for point in result.metrics["distil"]["main"]["curve"]]
    assert rates == pytest.approx([0.055, 0.01, 0.055, 0.01])


def test_swa_without_a_whole_cycle_returns_the_last_student(tmp_path: Path, federation: Any) -> None:
    figures = federation(tmp_path, swa(25, 250, steps=3)).round().metrics["distil"]["main"]
    assert figures["snapshots"] == 0
    assert figures["steps"] == 3


# ----------------------------------------------------------------------------------------------------------------- data
def test_augmented_images_are_mirrored_or_shifted_and_nothing_else(federation: Any) -> None:
    images = torch.arange(2 * 2 * 4 * 4, dtype=torch.float32).reshape(2, 2, 4, 4) + 1
    flip = Augmenter(parts.Augment(flip=True), federation.task, seed=3)
    seen = [flip(images) for _ in range(20)]
    assert all(torch.equal(one[i], images[i]) or torch.equal(one[i], images[i].flip(2)) for one in seen for i in (0, 1))
    assert len({one.numpy().tobytes() for one in seen}) == 4
    crop = Augmenter(parts.Augment(pad=1), federation.task, seed=3)
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    places = [padded[:, :, top : top + 4, left : left + 4] for top in range(3) for left in range(3)]
    found = {i: set[int]() for i in (0, 1)}
    for made in (crop(images) for _ in range(60)):
        for i in (0, 1):
            (place,) = [number for number, each in enumerate(places) if torch.equal(made[i], each[i])]
            found[i].add(place)
    assert found == {0: set(range(9)), 1: set(range(9))}
    again = Augmenter(parts.Augment(flip=True), federation.task, seed=3)
    assert all(torch.equal(again(images), one) for one in seen)


def test_noise_is_the_same_in_every_round_and_within_its_bounds(federation: Any) -> None:
    choice = parts.DataNoise(count=50, low=-2.0, high=3.0)
    drawn = server_set(choice, federation.task, None, 5)
    assert drawn.shape == (50, 1, 4, 4)
    assert -2 <= float(drawn.min()) < -1.5 < 2.5 < float(drawn.max()) <= 3
    assert torch.equal(drawn, server_set(choice, federation.task, None, 5))
    assert not torch.equal(drawn, server_set(choice, federation.task, None, 6))


def test_generated_data_of_another_number_are_refused(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedgo-small", SHORT | {"data": {"kind": "generated", "count": 20}}))
    with pytest.raises(JobFailure, match="21 generated samples"):
        world.round()
    with pytest.raises(JobFailure, match=r"datasets\.unlabeled"):
        world.round(datasets=Datasets())


def test_teachers_see_each_sample_once_whatever_the_number_of_students(tmp_path: Path, federation: Any) -> None:
    recipe = presets.build("feddf", SHORT)
    networks = {"a": MLP, "b": CNN, "c": {"architecture": "mlp", "options": {"hidden": [4]}}}
    result = federation(tmp_path, recipe, prototypes=networks).round()
    assert set(result.metrics["distil"]) == {"a", "b", "c"}
    assert result.metrics["teacher_forwards"] == 5 * 21


def test_all_students_learn_even_those_that_nobody_trained(tmp_path: Path, federation: Any) -> None:
    recipe = presets.build("feddf", SHORT | {"students": {"kind": "all"}})
    world = federation(tmp_path, recipe, prototypes={"a": MLP, "b": CNN})
    only_a = [update for update in world.updates() if update.prototype == "a"]
    assert set(world.round(only_a).models) == {"a", "b"}


def test_a_student_from_previous_starts_where_the_round_began(tmp_path: Path, federation: Any, tensors: Any) -> None:
    """FedDF Table 5: with a rate of almost nothing the student is what it started as."""
    still = {"schedule": {"steps": 1, "batch_size": 8, "optimizer": {"kind": "sgd", "lr": 1e-12}, "clip_norm": None}}
    for start in ("average", "previous"):
        (tmp_path / start).mkdir()
        recipe = presets.build("feddf", still | {"students": {"start": start}})
        world = federation(tmp_path / start, recipe, prototypes={"main": MLP})
        began, updates = tensors(world.models["main"]), world.updates()
        sent = [tensors(update.weights) for update in updates]
        weights = np.array([update.num_samples for update in updates], np.float64)
        made = tensors(world.round(updates).models["main"])
        for name, values in made.items():
            mean = np.tensordot(weights / weights.sum(), np.stack([state[name] for state in sent]), 1)
            np.testing.assert_allclose(values, mean if start == "average" else began[name], atol=1e-6)


@pytest.mark.parametrize("name", ["feddf", "ds-fl"])
def test_a_servers_own_model_learns_beside_the_prototypes_and_shares_nothing(
    name: str, tmp_path: Path, federation: Any, tensors: Any
) -> None:
    """It starts where it was and takes the step of the same labels; the prototypes' models are as without it."""
    one = {"schedule": {"steps": 1, "batch_size": 21, "optimizer": {"kind": "sgd", "lr": 0.5}, "lr": "constant"}}
    larger = {"architecture": "mlp", "options": {"hidden": [9]}}
    made = {}
    for kind, server in (("prototypes", None), ("prototypes_and_server", larger)):
        (tmp_path / kind).mkdir()
        recipe = presets.build(name, one | {"students": {"kind": kind}})
        world = federation(tmp_path / kind, recipe, presets.PRESETS[name].local, {"main": MLP}, server)
        before = {each: tensors(path) for each, path in world.models.items()}
        result = world.round()
        made[kind] = tensors(result.models["main"])
    assert {each: values.tolist() for each, values in made["prototypes"].items()} == {
        each: values.tolist() for each, values in made["prototypes_and_server"].items()
    }
    server_now = tensors(result.models["server"])
    assert {each: v.shape for each, v in server_now.items()} == {each: v.shape for each, v in before["server"].items()}
    assert any(np.abs(values - before["server"][each]).max() > 1e-4 for each, values in server_now.items())
    assert set(result.metrics["distil"]) == {"main", "server"}
