"""Fuse in whole rounds: the files that come out are what the rules say of the files that went in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract import lowbit
from contract.local import BinaryPrecision, FedTgpObjective, LocalPlan, ScaffoldObjective, Sgd
from contract.recipes import presets
from contract.tensors import write_file
from contract.updates import binary_weights
from worker.parts import disco
from worker.pipeline.job import header_of
from worker.specs import Datasets, JobFailure, JobResult

State = dict[str, np.ndarray]
Read = Callable[[Path], State]
PLAIN: dict[str, Any] = {"datasets": Datasets()}
MLP = {"architecture": "mlp", "options": {"hidden": [5]}}


def states(world: Any, tensors: Read) -> list[State]:
    return [tensors(update.weights) for update in world.updates()]


def counts(world: Any) -> np.ndarray:
    return np.array([world.samples_of(name) for name in world.names], dtype=np.float64)


def mean(models: list[State], weights: np.ndarray) -> dict[str, np.ndarray]:
    parts = weights / weights.sum()
    return {
        name: np.tensordot(parts, np.stack([model[name].astype(np.float64) for model in models]), axes=1)
        for name in models[0]
    }


def is_statistic(name: str) -> bool:
    return "running" in name


def is_counter(name: str) -> bool:
    return name.endswith("num_batches_tracked")


def assert_buffers_are_the_weighted_mean(made: State, models: list[State], weights: np.ndarray) -> None:
    expected = mean(models, weights)
    for name, values in made.items():
        if is_statistic(name):
            np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-6)
        if is_counter(name):
            assert int(values) == max(int(model[name]) for model in models)


@pytest.mark.parametrize("form", ["sum", "ema"])
def test_server_momentum_over_two_rounds(tmp_path: Path, federation: Any, tensors: Read, form: str) -> None:
    recipe = presets.build("fedavgm", {"beta": 0.4, "lr": 0.5, "form": form})
    world = federation(tmp_path, recipe)
    theta = tensors(world.models["main"])
    velocity = {name: np.zeros(array.shape) for name, array in theta.items()}
    for _ in range(2):
        models = states(world, tensors)
        average = mean(models, counts(world))
        made = tensors(world.round(**PLAIN).models["main"])
        for name, old in theta.items():
            if is_statistic(name) or is_counter(name):
                continue
            gain = 1.0 if form == "sum" else 0.6
            velocity[name] = 0.4 * velocity[name] + gain * (old - average[name])
            np.testing.assert_allclose(made[name], old - 0.5 * velocity[name], rtol=1e-4, atol=1e-6)
        assert_buffers_are_the_weighted_mean(made, models, counts(world))
        theta = made
    assert set(world.state) == {"velocity.main"}


@pytest.mark.parametrize("kind", ["adam", "yogi", "adagrad"])
def test_adaptive_servers_over_two_rounds(tmp_path: Path, federation: Any, tensors: Read, kind: str) -> None:
    recipe = presets.build("fedavg", {"fuse": {"kind": kind, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 0.01}})
    world = federation(tmp_path, recipe)
    theta = tensors(world.models["main"])
    first, second = ({name: np.full(a.shape, start) for name, a in theta.items()} for start in (0.0, 1e-4))
    for _ in range(2):
        models = states(world, tensors)
        average = mean(models, counts(world))
        made = tensors(world.round(**PLAIN).models["main"])
        for name, old in theta.items():
            if is_statistic(name) or is_counter(name):
                continue
            delta = average[name] - old
            first[name] = 0.9 * first[name] + 0.1 * delta
            square, before = delta**2, second[name]
            second[name] = {
                "adam": 0.99 * before + 0.01 * square,
                "yogi": before - 0.01 * square * np.sign(before - square),
                "adagrad": before + square,
            }[kind]
            step = 0.1 * first[name] / (np.sqrt(second[name]) + 0.01)
            np.testing.assert_allclose(made[name], old + step, rtol=1e-4, atol=1e-5)
        assert_buffers_are_the_weighted_mean(made, models, counts(world))
        theta = made


def test_a_round_without_a_server_optimisers_prototype_keeps_its_memory(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedavgm"), prototypes={"a": MLP, "b": MLP})
    world.round(**PLAIN)
    kept = world.state["velocity.b"].read_bytes()
    only_a = [update for update in world.updates() if update.prototype == "a"]
    result = world.round(only_a, **PLAIN)
    assert set(result.models) == {"a"}
    assert world.state["velocity.b"].read_bytes() == kept


# ------------------------------------------------------------------------------------------------------------- SCAFFOLD
SCAFFOLD = LocalPlan(objective=ScaffoldObjective(), optimizer=Sgd(lr=0.1))


def test_scaffold_moves_model_and_control_by_the_clients_changes(
    tmp_path: Path, federation: Any, tensors: Read
) -> None:
    world = federation(tmp_path, presets.build("scaffold", {"lr": 0.5}), SCAFFOLD)
    control: dict[str, Any] = {}
    for _ in range(2):
        start, sent = tensors(world.models["main"]), states(world, tensors)
        result = world.round(**PLAIN, clients_total={"main": 20})
        made, kept = tensors(result.models["main"]), tensors(world.state["send.control.main"])
        alike = mean([{name: model[name] for name in start} for model in sent], np.ones(5))
        for name in kept:
            np.testing.assert_allclose(
                made[name], start[name] + 0.5 * (alike[name] - start[name]), rtol=1e-4, atol=1e-6
            )
            change = np.sum([model[f"control.{name}"] for model in sent], axis=0) / 20
            control[name] = control.get(name, 0) + change
            np.testing.assert_allclose(kept[name], control[name], rtol=1e-4, atol=1e-6)
        assert set(kept) == {name for name in start if not is_statistic(name) and not is_counter(name)}
        assert_buffers_are_the_weighted_mean(made, [{n: m[n] for n in start} for m in sent], counts(world))
        assert result.metrics["weights"] == pytest.approx(dict.fromkeys(world.names, 0.2))


def test_a_lost_control_variate_is_left_out_of_c(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(tmp_path, presets.build("scaffold"), SCAFFOLD)
    updates = world.updates()
    lost = [each.model_copy(update={"control_reset": each.client == "ward-2"}) for each in updates]
    others = [tensors(each.weights) for each in updates if each.client != "ward-2"]
    result = world.round(lost, **PLAIN)
    for name, values in tensors(world.state["send.control.main"]).items():
        expected = np.sum([state[f"control.{name}"] for state in others], axis=0) / 5
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)
    assert result.metrics["control_reset"] == ["ward-2"]
    assert result.metrics["weights"]["ward-2"] == pytest.approx(0.2)


def test_a_prototypes_c_is_divided_by_its_own_clients(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """c = c + (1/N) sum dc_i with the N of the prototype: others have a c of their own."""
    world = federation(tmp_path, presets.build("scaffold"), SCAFFOLD, prototypes={"a": MLP, "b": MLP})
    sent = {update.client: (update.prototype, tensors(update.weights)) for update in world.updates()}
    world.round(**PLAIN, clients_total={"a": 4, "b": 10})
    for prototype, registered in (("a", 4), ("b", 10)):
        own = [state for model, state in sent.values() if model == prototype]
        for name, values in tensors(world.state[f"send.control.{prototype}"]).items():
            expected = np.sum([state[f"control.{name}"] for state in own], axis=0) / registered
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)


def test_a_document_with_one_number_of_clients_is_read_as_it_was_fused(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("scaffold", {"groups": {"kind": "random", "count": 2}}), SCAFFOLD)
    assert world.spec("earlier", clients_total=7).clients_total == {"main": 7}


def test_groups_share_one_control_variate(tmp_path: Path, federation: Any, tensors: Read) -> None:
    recipe = presets.build("scaffold", {"groups": {"kind": "random", "count": 2}})
    world = federation(tmp_path, recipe, SCAFFOLD)
    sent = states(world, tensors)
    world.round(**PLAIN)
    ways = [tensors(world.state[f"send.control.{name}"]) for name in ("main", "main~1")]
    for name in ways[0]:
        assert np.array_equal(ways[0][name], ways[1][name])
        expected = np.sum([state[f"control.{name}"] for state in sent], axis=0) / 5
        np.testing.assert_allclose(ways[0][name], expected, rtol=1e-4, atol=1e-6)


# --------------------------------------------------------------------------------------------------- weights and robust
def test_feddisco_counts_clients_by_their_labels(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(tmp_path, presets.build("feddisco"))
    updates, models = world.updates(), states(world, tensors)
    result = world.round(**PLAIN)
    wanted = disco.weights(counts(world).tolist(), [each.label_counts for each in updates]).weights
    assert result.metrics["weights"] == pytest.approx(dict(zip(world.names, wanted, strict=True)))
    assert set(result.metrics["discrepancy"]) == set(world.names)
    expected = mean(models, wanted)
    for name, values in tensors(result.models["main"]).items():
        if not is_counter(name):
            np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=1e-6)


def test_feddisco_aims_at_a_target(tmp_path: Path, federation: Any, tensors: Read) -> None:
    target = (0.7, 0.2, 0.1)
    world = federation(tmp_path, presets.build("feddisco", {"target": target, "a": 1.0}))
    labels = [each.label_counts for each in world.updates()]
    wanted = disco.weights(counts(world).tolist(), labels, a=1.0, target=target).weights
    uniform = disco.weights(counts(world).tolist(), labels, a=1.0).weights
    found = world.round(**PLAIN).metrics["weights"]
    assert found == pytest.approx(dict(zip(world.names, wanted, strict=True)))
    assert found != pytest.approx(dict(zip(world.names, uniform, strict=True)))


def test_feddisco_without_label_counts_names_the_client(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("feddisco"))
    silent = [each.model_copy(update={"label_counts": None}) for each in world.updates()]
    with pytest.raises(JobFailure, match="ward-1") as caught:
        world.round(silent, **PLAIN)
    assert caught.value.code == "bad_option"


@pytest.mark.parametrize("kind", ["median", "trimmed_mean", "krum", "clipped_mean"])
def test_a_liar_does_not_move_a_robust_mean(tmp_path: Path, federation: Any, tensors: Read, kind: str) -> None:
    chosen: dict[str, dict[str, Any]] = {
        "trimmed_mean": {"trim": 0.2},
        "clipped_mean": {"max_norm": 1.0},
        "krum": {"keep": 2},
    }
    options = chosen.get(kind, {})
    world = federation(tmp_path, presets.build("fedavg", {"fuse": {"kind": kind, **options}}), prototypes={"main": MLP})
    updates, start = world.updates(), tensors(world.models["main"])
    lie = {name: values + np.float32(1e4) for name, values in tensors(updates[4].weights).items()}
    write_file(tmp_path / "lie", lie, header_of(updates[4].weights).metadata)
    updates[4] = updates[4].model_copy(update={"weights": tmp_path / "lie"})
    models = [tensors(update.weights) for update in updates]
    result = world.round(updates, **PLAIN)
    made = tensors(result.models["main"])
    for name, values in made.items():
        rows = [model[name] for model in models]
        assert np.abs(values - start[name]).max() < 2
        if kind == "median":
            np.testing.assert_allclose(values, np.median(rows, axis=0), rtol=1e-5)
        if kind == "trimmed_mean":
            np.testing.assert_allclose(values, np.sort(rows, axis=0)[1:-1].mean(axis=0), rtol=1e-5)
    if kind == "krum":
        weights = result.metrics["weights"]
        assert weights["ward-5"] == 0
        assert sorted(weights.values()) == [0, 0, 0, 0.5, 0.5]
    if kind == "clipped_mean":
        assert result.metrics["norms"]["ward-5"] > 1e4


def test_krum_needs_enough_clients(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedavg", {"fuse": {"kind": "krum", "byzantine": 2}}))
    with pytest.raises(JobFailure, match="model 'main': .* needs 7 clients.*lower fuse.byzantine") as caught:
        world.round(**PLAIN)
    assert caught.value.code == "bad_option"


# ------------------------------------------------------------------------------------------------ what a plan sends
def test_one_bit_weights_are_averaged_as_what_they_stand_for(tmp_path: Path, federation: Any, tensors: Read) -> None:
    world = federation(
        tmp_path, presets.build("fedavg"), LocalPlan(precision=BinaryPrecision()),
        {"main": {"architecture": "mlp", "options": {"hidden": [5, 4]}}},
    )  # fmt: skip
    base, sent = header_of(world.models["main"]), states(world, tensors)
    (binary,) = binary_weights(base)
    restored = [
        lowbit.unpack(state[f"bits.{binary}"], state[f"scale.{binary}"], base.tensors[binary].shape) for state in sent
    ]
    result = world.round(**PLAIN)
    parts = counts(world) / counts(world).sum()
    expected = np.tensordot(parts, np.stack(restored), axes=1)
    np.testing.assert_allclose(tensors(result.models["main"])[binary], expected, rtol=1e-5)
    assert not list((tmp_path / "round-1").glob("update-*"))


@pytest.mark.parametrize(
    ("plan", "spoil"),
    [
        (LocalPlan(), lambda state: state | {"extra": np.zeros(1, np.float32)}),
        (LocalPlan(), lambda state: {name: state[name] for name in list(state)[1:]}),
        (SCAFFOLD, lambda state: {name: state[name] for name in list(state)[:-1]}),
        (LocalPlan(objective=FedTgpObjective()), lambda state: state | {"class_counts": np.zeros(4, np.int64)}),
        (LocalPlan(precision=BinaryPrecision()), lambda state: state | {"1.weight": np.zeros((4,), np.float32)}),
    ],
    ids=["one-more", "one-less", "no-control", "counts-of-other-classes", "other-shape"],
)
def test_an_update_has_exactly_the_tensors_of_its_plan(
    tmp_path: Path, federation: Any, tensors: Read, plan: LocalPlan, spoil: Callable[[State], State]
) -> None:
    name = "scaffold" if plan is SCAFFOLD else "fedavg"
    world = federation(tmp_path, presets.build(name), plan)
    updates = world.updates()
    write_file(tmp_path / "spoilt", spoil(tensors(updates[2].weights)))
    updates[2] = updates[2].model_copy(update={"weights": tmp_path / "spoilt"})
    with pytest.raises(JobFailure, match="ward-3") as caught:
        world.round(updates, **PLAIN)
    assert caught.value.code == "schema_mismatch"


def test_a_round_with_other_models_than_the_recipes_groups_is_refused(tmp_path: Path, federation: Any) -> None:
    world = federation(tmp_path, presets.build("fedavg"))
    grouped = presets.build("fedavg", {"groups": {"kind": "random", "count": 2}})
    with pytest.raises(JobFailure, match="main~1") as caught:
        world.round(**PLAIN, recipe=grouped)
    assert caught.value.code == "bad_option"


def test_a_model_below_chance_is_neither_averaged_nor_a_teacher(tmp_path: Path, federation: Any, tensors: Read) -> None:
    """It says class 0 whatever it sees, and no validation sample is of class 0."""
    recipe = presets.build("feddf", {"drop_worst": {"factor": 0.2}, "schedule": {"steps": 1}})
    world = federation(tmp_path, recipe, prototypes={"main": MLP})
    inputs = tensors(tmp_path / "validation")["inputs"]
    write_file(tmp_path / "validation", {"inputs": inputs, "labels": np.array([1, 2, 2, 1, 2, 1, 1, 2, 1])})
    updates = world.updates()
    blind = {name: np.zeros_like(values) for name, values in tensors(updates[1].weights).items()}
    write_file(tmp_path / "blind", blind, header_of(updates[1].weights).metadata)
    updates[1] = updates[1].model_copy(update={"weights": tmp_path / "blind"})
    result: JobResult = world.round(updates)
    found = result.metrics["drop_worst"]
    assert found["threshold"] == pytest.approx(0.2 / 3)
    assert found["accuracy"]["ward-2"] == 0
    dropped = [name for name, seen in found["accuracy"].items() if seen < 0.2 / 3]
    assert found["dropped"] == dropped
    assert 0 < len(dropped) < 5
    staying = set(world.names) - set(dropped)
    assert set(result.metrics["weights"]) == staying == set(result.metrics["teacher_weights"])
    assert not found["all_dropped"]


def test_models_that_are_all_no_better_than_chance_all_stay(tmp_path: Path, federation: Any) -> None:
    recipe = presets.build("fedavg", {"drop_worst": {"factor": 100}})
    result = federation(tmp_path, recipe, prototypes={"main": MLP}).round()
    assert result.metrics["drop_worst"]["all_dropped"]
    assert len(result.metrics["weights"]) == 5
