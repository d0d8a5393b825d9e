"""Whole rounds on tiny data: what is promised of every job, whatever its recipe."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.nn.codec import save_state
from contract.nn.registry import initialise
from contract.recipes import presets
from contract.recipes.recipe import Recipe
from contract.tensors import TensorFile, write_file
from contract.wire.federations import Task
from tests.reference import ensembles as slow
from worker.pipeline import run
from worker.specs import (
    Datasets,
    JobFailure,
    JobResult,
    NetworkRef,
    Progress,
    PrototypeSpec,
    RoundSpec,
    UpdateSpec,
)

TASK = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 4, 4]}})
CNN: dict[str, Any] = {"architecture": "cnn-digits", "options": {"widths": [3, 4]}}
MLP: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [8]}}
CLIENTS = ("ward-1", "ward-2", "ward-3", "ward-4")
SHORT = {"schedule": {"epochs": 2, "batch_size": 8}}


def ignore(_: Progress) -> None:
    """Take progress and do nothing with it."""


class World:
    """Files of a small federation under one folder."""

    def __init__(self, root: Path):
        self.root = root
        rng = np.random.default_rng(5)
        for name, size in (("unlabeled", 21), ("test", 10), ("validation", 9)):
            inputs = rng.normal(size=(size, 1, 4, 4)).astype(np.float32)
            labels = rng.integers(0, 3, size).astype(np.int64)
            arrays: dict[str, np.ndarray] = (
                {"inputs": inputs} if name == "unlabeled" else {"inputs": inputs, "labels": labels}
            )
            write_file(root / name, arrays)
        for index, client in enumerate(CLIENTS):
            self.network(f"cnn-{client}", CNN, seed=index)
            self.network(f"mlp-{client}", MLP, seed=index)
            scores = {
                name: rng.normal(size=size).astype(np.float32) for name, size in (("unlabeled", 21), ("test", 10))
            }
            write_file(root / f"scores-{client}", scores)
        self.network("cnn-base", CNN, seed=100)
        self.network("mlp-base", MLP, seed=101)

    def network(self, name: str, ref: dict[str, Any], seed: int) -> Path:
        module = initialise(ref["architecture"], ref["options"], TASK, seed)
        for buffer, value in module.named_buffers():
            if buffer.endswith("running_mean"):
                value += seed + 1
            if buffer.endswith("num_batches_tracked"):
                value += 7 * seed
        save_state(module, self.root / name)
        return self.root / name

    def update(self, client: str, samples: int, kind: str = "cnn") -> UpdateSpec:
        return UpdateSpec(client=client, prototype=kind, weights=self.root / f"{kind}-{client}", num_samples=samples)

    def spec(self, recipe: Recipe, out: str, updates: list[UpdateSpec], **changes: Any) -> RoundSpec:
        fields: dict[str, Any] = {
            "seed": 11,
            "round_index": 1,
            "rounds_total": 4,
            "task": TASK,
            "recipe": recipe,
            "prototypes": [self.prototype("cnn", CNN)],
            "updates": updates,
            "datasets": Datasets(unlabeled=self.root / "unlabeled", test=self.root / "test"),
            "scores": {client: self.root / f"scores-{client}" for client in CLIENTS},
            "output_dir": self.root / out,
        }
        return RoundSpec(**(fields | changes))

    def prototype(self, kind: str, ref: dict[str, Any]) -> PrototypeSpec:
        return PrototypeSpec(name=kind, network=NetworkRef(**ref, weights=self.root / f"{kind}-base"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    torch.set_deterministic_debug_mode("error")
    return World(tmp_path_factory.mktemp("world"))


def three(world: World) -> list[UpdateSpec]:
    return [world.update("ward-2", 5), world.update("ward-1", 10), world.update("ward-3", 3)]


def state_of(path: Path) -> dict[str, np.ndarray]:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


def bytes_of(result: JobResult) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in result.models.items()}


RECIPES = {
    "fedavg": presets.build("fedavg"),
    "feddf": presets.build("feddf", SHORT | {"clip_norm": 5.0}),
    "fedgo": presets.build("fedgo-small", SHORT),
    "fedgo-sigmoid": presets.build("fedgo-small", SHORT | {"link": "sigmoid"}),
    "variance": presets.build("feddf", SHORT | {"weigh": {"kind": "variance"}}),
    "entropy-probs": presets.build("feddf", SHORT | {"weigh": {"kind": "entropy"}, "combine": {"kind": "probs"}}),
    "soft-ce": presets.build("feddf", SHORT | {"objective": {"kind": "soft_ce"}, "weigh": {"kind": "samples"}}),
    "dafkd": presets.build("fedgo-small", SHORT | {"weigh": {"kind": "dafkd"}}),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_round_repeats_itself_and_ignores_the_order_of_arrival(world: World, name: str) -> None:
    updates = three(world)
    before = {update.client: update.weights.read_bytes() for update in updates}
    first = run(world.spec(RECIPES[name], f"{name}-a", updates), ignore)
    again = run(world.spec(RECIPES[name], f"{name}-b", updates), ignore)
    turned = run(world.spec(RECIPES[name], f"{name}-c", updates[::-1]), ignore)
    assert bytes_of(first) == bytes_of(again) == bytes_of(turned)
    drop = lambda metrics: {key: value for key, value in metrics.items() if key != "seconds"}  # noqa: E731
    assert drop(first.metrics) == drop(again.metrics) == drop(turned.metrics)
    assert {update.client: update.weights.read_bytes() for update in updates} == before
    with TensorFile(first.models["cnn"]) as made, TensorFile(world.root / "cnn-base") as base:
        assert made.names == base.names
        assert made.header.buffers == base.header.buffers != frozenset()
        assert {n: (i.dtype, i.shape) for n, i in made.header.tensors.items()} == {
            n: (i.dtype, i.shape) for n, i in base.header.tensors.items()
        }
        assert all(np.isfinite(made.read(name).astype(np.float64)).all() for name in made.names)


def test_fedavg_is_the_weighted_mean_with_the_integer_rule(world: World) -> None:
    result = run(world.spec(RECIPES["fedavg"], "mean", three(world)), ignore)
    parts = {"ward-1": 10 / 18, "ward-2": 5 / 18, "ward-3": 3 / 18}
    assert result.metrics["weights"] == pytest.approx(parts)
    got = state_of(result.models["cnn"])
    expected: dict[str, Any] = {}
    for client, part in parts.items():
        with TensorFile(world.root / f"cnn-{client}") as file:
            for name in file.names:
                values = file.read(name)
                if values.dtype == np.int64:
                    expected[name] = np.maximum(expected.get(name, values), values)
                else:
                    expected[name] = expected.get(name, 0) + part * values.astype(np.float64)
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-6, atol=1e-7)
    assert int(got["1.num_batches_tracked"]) == 14


def test_uniform_mean_counts_everybody_alike(world: World) -> None:
    recipe = presets.build("fedavg", {"fuse": {"kind": "uniform_mean"}})
    updates = three(world)
    result = run(world.spec(recipe, "uniform", updates), ignore)
    assert result.metrics["weights"] == pytest.approx(dict.fromkeys(("ward-1", "ward-2", "ward-3"), 1 / 3))
    sent = [state_of(update.weights) for update in updates]
    for name, values in state_of(result.models["cnn"]).items():
        if values.dtype.kind == "f":
            mean = np.mean([state[name].astype(np.float64) for state in sent], axis=0)
            np.testing.assert_allclose(values, mean, rtol=1e-6, atol=1e-7)


def test_one_client_comes_back_byte_for_byte(world: World) -> None:
    result = run(world.spec(RECIPES["fedavg"], "one", [world.update("ward-1", 7)]), ignore)
    with TensorFile(result.models["cnn"]) as made, TensorFile(world.root / "cnn-ward-1") as sent:
        for name in sent.names:
            assert made.read(name).tobytes() == sent.read(name).tobytes()


def reference_logits(world: World, updates: list[UpdateSpec], inputs: torch.Tensor) -> np.ndarray:
    rows = []
    for update in sorted(updates, key=lambda each: each.client):
        module = initialise(CNN["architecture"], CNN["options"], TASK, 0)
        with TensorFile(update.weights) as file:
            module.load_state_dict({name: torch.from_numpy(file.read(name)) for name in file.names})
        with torch.no_grad():
            rows.append(module.eval()(inputs).double().numpy())
    return np.stack(rows)


@pytest.mark.parametrize("name", ["feddf", "fedgo", "fedgo-sigmoid", "variance", "entropy-probs", "soft-ce", "dafkd"])
def test_streamed_labels_equal_the_slow_reference(world: World, name: str) -> None:
    """One sample after another through the papers' formulas gives the figures of the streaming pass."""
    updates, recipe = three(world), RECIPES[name]
    result = run(world.spec(recipe, f"ref-{name}", updates), ignore)
    with TensorFile(world.root / "unlabeled") as file:
        logits = reference_logits(world, updates, torch.from_numpy(file.read("inputs")))
    clients = sorted(update.client for update in updates)
    counts = [10, 5, 3]
    score_rows = []
    for client in clients:
        with TensorFile(world.root / f"scores-{client}") as file:
            score_rows.append(file.read("unlabeled").astype(np.float64))
    scores = np.stack(score_rows)
    shares = {
        "feddf": lambda: slow.uniform(3, 21),
        "soft-ce": lambda: slow.by_samples(counts, 21),
        "variance": lambda: slow.by_variance(logits),
        "entropy-probs": lambda: slow.by_entropy(logits),
        "dafkd": lambda: slow.dafkd(1 / (1 + np.exp(-scores))),
        "fedgo": lambda: slow.odds(counts, scores, "double_sigmoid"),
        "fedgo-sigmoid": lambda: slow.odds(counts, scores, "sigmoid"),
    }[name]()
    weights = np.asarray(shares)
    means = dict(zip(clients, weights.mean(axis=1), strict=True))
    assert result.metrics["teacher_weights"] == pytest.approx(means, rel=1e-5)
    if recipe.distil is not None and recipe.distil.combine.kind == "probs":
        target = np.asarray(slow.average_probs(logits, weights))
    else:
        target = np.asarray(slow.average_logits(logits, weights))
    entropy = -(target * np.log(target)).sum(axis=1).mean()
    assert result.metrics["ensemble"]["entropy"] == pytest.approx(entropy, rel=1e-5)
    effective = (1 / (weights**2).sum(axis=0)).min()
    assert result.metrics["ensemble"]["effective_teachers"]["min"] == pytest.approx(effective, rel=1e-5)


def two_prototypes(world: World, out: str, updates: list[UpdateSpec], **changes: Any) -> RoundSpec:
    prototypes = [world.prototype("cnn", CNN), world.prototype("mlp", MLP)]
    return world.spec(RECIPES["feddf"], out, updates, prototypes=prototypes, **changes)


def test_teachers_see_each_sample_once_however_many_students(world: World) -> None:
    updates = [*three(world), world.update("ward-4", 6, "mlp")]
    result = run(two_prototypes(world, "two", updates), ignore)
    assert result.metrics["teacher_forwards"] == 4 * 21
    assert set(result.models) == {"cnn", "mlp"} == set(result.metrics["distil"])
    assert result.metrics["accuracy"] == pytest.approx(np.mean(list(result.metrics["model"]["prototypes"].values())))
    single = run(world.spec(RECIPES["feddf"], "two-single", three(world)), ignore)
    assert single.metrics["teacher_forwards"] == 3 * 21


def test_a_prototype_without_participants_is_left_out(world: World) -> None:
    result = run(two_prototypes(world, "absent", three(world)), ignore)
    assert set(result.models) == {"cnn"}
    assert set(result.metrics["model"]["prototypes"]) == {"cnn"}


def test_clients_without_samples_take_no_part(world: World) -> None:
    """Not even their file is read."""
    ghost = UpdateSpec(client="a-ghost", prototype="cnn", weights=world.root / "no-such-file", num_samples=0)
    with_ghost = run(world.spec(RECIPES["feddf"], "ghost", [ghost, *three(world)]), ignore)
    without = run(world.spec(RECIPES["feddf"], "no-ghost", three(world)), ignore)
    assert bytes_of(with_ghost) == bytes_of(without)


def test_a_client_without_a_discriminator_is_averaged_but_no_teacher(world: World) -> None:
    scores = {client: world.root / f"scores-{client}" for client in ("ward-1", "ward-2")}
    result = run(world.spec(RECIPES["fedgo"], "unscored", three(world), scores=scores), ignore)
    assert result.metrics["not_teachers"] == ["ward-3"]
    assert set(result.metrics["teacher_weights"]) == {"ward-1", "ward-2"}
    assert set(result.metrics["weights"]) == {"ward-1", "ward-2", "ward-3"}


def test_cosine_across_rounds_ends_near_zero(world: World) -> None:
    def rate(index: int) -> float:
        result = run(world.spec(RECIPES["fedgo"], f"lr-{index}", three(world), round_index=index), ignore)
        return float(result.metrics["distil"]["cnn"]["curve"][0]["lr"])

    assert rate(1) == pytest.approx(1e-3)
    assert rate(4) == pytest.approx(1e-3 / 2 * (1 + np.cos(np.pi * 3 / 4)))


def test_early_stop_returns_the_best_student(world: World) -> None:
    """A rate that is far too high: the student gets worse, the best one on the validation set is kept."""
    recipe = presets.build(
        "feddf",
        {"schedule": {"steps": 60, "batch_size": 8, "lr": "constant", "early_stop": {"eval_every": 2, "patience": 6}}},
    )
    datasets = Datasets(
        unlabeled=world.root / "unlabeled", test=world.root / "validation", validation=world.root / "validation"
    )
    result = run(world.spec(recipe, "early", three(world), datasets=datasets), ignore)
    figures = result.metrics["distil"]["cnn"]
    assert figures["stop"] == "no improvement"
    assert figures["steps"] == figures["best_step"] + 6 < 60
    assert result.metrics["accuracy"] == pytest.approx(figures["best_validation_accuracy"])


def test_frozen_batch_norm_keeps_the_average_statistics(world: World) -> None:
    recipe = presets.build("feddf", SHORT | {"batch_norm": "frozen"})
    averaged = run(world.spec(RECIPES["fedavg"], "frozen-avg", three(world)), ignore)
    frozen = run(world.spec(recipe, "frozen", three(world)), ignore)
    trained = run(world.spec(RECIPES["feddf"], "trained", three(world)), ignore)
    means = []
    for result in (averaged, frozen, trained):
        with TensorFile(result.models["cnn"]) as file:
            means.append(file.read("1.running_mean"))
    assert np.array_equal(means[0], means[1])
    assert not np.array_equal(means[0], means[2])


@pytest.mark.parametrize(
    ("updates", "code"), [([], "no_participants"), ([("ward-1", 0)], "no_positive_weight")], ids=["nobody", "empty"]
)
def test_rounds_that_cannot_be_fused(world: World, updates: list[tuple[str, int]], code: str) -> None:
    with pytest.raises(JobFailure) as caught:
        run(world.spec(RECIPES["fedavg"], "none", [world.update(*each) for each in updates]), ignore)
    assert caught.value.code == code


def test_a_teacher_with_infinite_logits_is_named(world: World) -> None:
    """Weights are finite and so is the average, but the network overflows on data."""
    module = initialise(CNN["architecture"], CNN["options"], TASK, 3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1e30)
    save_state(module, world.root / "cnn-broken")
    broken = UpdateSpec(client="broken", prototype="cnn", weights=world.root / "cnn-broken", num_samples=4)
    with pytest.raises(JobFailure, match="broken") as caught:
        run(world.spec(RECIPES["feddf"], "broken", [broken, *three(world)]), ignore)
    assert caught.value.code == "non_finite"


def test_distilling_without_server_data_is_refused(world: World) -> None:
    with pytest.raises(JobFailure, match=r"datasets\.unlabeled") as caught:
        run(world.spec(RECIPES["feddf"], "dataless", three(world), datasets=Datasets()), ignore)
    assert caught.value.code == "bad_option"


def test_progress_names_every_phase(world: World) -> None:
    seen: list[Progress] = []
    run(world.spec(RECIPES["feddf"], "progress", three(world)), seen.append)
    assert list(dict.fromkeys(each.phase for each in seen)) == [
        "average",
        "label",
        "distil cnn",
        "evaluate",
    ]
    assert max(each.step for each in seen if each.phase == "label") == 3


def test_a_round_that_only_averages_never_loads_torch(world: World) -> None:
    spec = world.spec(RECIPES["fedavg"], "torchless", three(world), datasets=Datasets())
    code = (
        "import sys; from worker.pipeline import run; from worker.specs import RoundSpec\n"
        "run(RoundSpec.model_validate_json(sys.stdin.read()), lambda p: None)\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'"
    )
    subprocess.run([sys.executable, "-c", code], input=spec.model_dump_json(), text=True, check=True, timeout=60)
