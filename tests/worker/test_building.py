"""The rules by which a federation's configuration becomes a job's specification."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.federation import SERVER, FederationConfig
from contract.local import LocalPlan
from contract.recipes.presets import build
from contract.recipes.recipe import Recipe
from contract.tensors import write_file
from contract.wire.federations import DatasetRefs, Prototype, Task
from contract.wire.plans import Gate, RoundsPlan
from worker.building import Builder
from worker.specs import Datasets, RegisteredSpec, RoundSpec, UpdateSpec

OUT = Path("out")
SETS = Datasets(unlabeled=Path("unlabeled"))


def config(recipe: Recipe, **changes: Any) -> FederationConfig:
    given: dict[str, Any] = {
        "task": Task.model_validate({"num_classes": 3, "input": {"shape": [2]}}),
        "prototypes": [Prototype(architecture="mlp")],
        "recipe": recipe,
        "local": LocalPlan(),
        "rounds": RoundsPlan(total=3),
        "datasets": DatasetRefs(),
    }
    return FederationConfig(**(given | changes))


def updates(*clients: str) -> list[UpdateSpec]:
    return [UpdateSpec(client=name, prototype="main", weights=Path(name), num_samples=1) for name in clients]


def round_of(build_: Builder, *clients: str, index: int = 1, **changes: Any) -> RoundSpec:
    models = {each.name: Path(each.name) for each in build_.config.published}
    given: dict[str, Any] = {"clients_total": {"main": 5}, "scores": {}, "state": {}}
    return build_.round(index, models, updates(*clients), OUT, **(given | changes))


def test_groups_are_handed_over_but_after_the_last_round() -> None:
    made = Builder(config(build("fedsdd")), 3, SETS)
    assert [round_of(made, "a", index=index).hand_over for index in (1, 2, 3)] == [True, True, False]
    gated = Builder(config(build("fedsdd"), rounds=RoundsPlan(total=3, gate=Gate())), 3, SETS)
    assert not round_of(gated, "a").hand_over


@pytest.mark.parametrize(
    ("asked", "told", "expected"),
    [(3, None, 3), (4, None, 3), (3, 2, 2), (1, None, 1)],
    ids=["the plan's", "closed with fewer", "an operator's", "one at least"],
)
def test_fewer_updates_than_these_are_not_fused(asked: int, told: int | None, expected: int) -> None:
    made = Builder(config(build("fedavg"), rounds=RoundsPlan(min_updates=asked)), 3, SETS)
    assert round_of(made, "a", "b", "c", min_updates=told).min_updates == expected


def test_scores_are_of_those_who_answered_where_the_recipe_reads_them() -> None:
    scores = {"a": Path("scores-a"), "b": Path("scores-b")}
    assert round_of(Builder(config(build("fedgo-small")), 3, SETS), "a", scores=scores).scores == {
        "a": Path("scores-a")
    }
    assert round_of(Builder(config(build("feddf")), 3, SETS), "a", scores=scores).scores == {}


def test_a_bank_that_would_be_too_large_is_an_anchor_before_the_job_begins(tmp_path: Path) -> None:
    """10,000 and 1,000 samples of 3 classes are 132,000 bytes a client: 7 fit into a MiB, and 8 do not."""
    sets = Datasets(unlabeled=tmp_path / "unlabeled", test=tmp_path / "test")
    for name, size in (("unlabeled", 10_000), ("test", 1_000)):
        write_file(tmp_path / name, {"inputs": np.zeros((size, 2), np.float32)})
    made = Builder(config(build("reflux", {"max_mib": 1})), 3, sets)
    for count, kind in ((7, "bank"), (8, "anchor")):
        everyone = {str(number): RegisteredSpec(prototype="main", num_samples=1) for number in range(count)}
        spec = round_of(made, "0", registered=everyone)
        assert spec.recipe.distil is not None and spec.recipe.distil.members.kind == kind
        assert spec.registered == everyone
        assert spec.exchanged == (
            {}
            if kind == "bank"
            else {"kind": "anchor", "instead_of": "bank", "needed_bytes": 8 * 132_000, "clients": 8}
        )


def test_who_is_registered_is_told_where_absent_clients_count() -> None:
    everyone = {name: RegisteredSpec(prototype="main", num_samples=1, scores=Path(name)) for name in "ab"}
    for recipe, told in ((build("reflux-anchor"), everyone), (build("fedgo-small"), {})):
        made = Builder(config(recipe), 3, Datasets())
        assert round_of(made, "a", registered=everyone).registered == told


def test_samples_take_the_place_of_the_unlabelled_set_once_they_are_drawn() -> None:
    made = Builder(config(build("fedgo-small")), 3, SETS, samples=Path("samples"))
    assert made.generator(None, OUT).unlabeled == Path("unlabeled"), "the generator is trained on the set itself"
    assert made.score({}, (0.0, 1.0), OUT).datasets.unlabeled == Path("samples")
    assert round_of(made, "a").datasets.unlabeled == Path("samples")


def test_the_servers_model_is_apart_from_those_that_clients_train() -> None:
    networks = {"prototypes": [Prototype(name=name, architecture="mlp") for name in ("small", "large")]}
    made = Builder(config(build("fedet"), server_model=Prototype(architecture="mlp"), **networks), 3, SETS)
    spec = round_of(made)
    assert [each.name for each in spec.prototypes] == ["small", "large"]
    assert spec.server_model is not None
    assert (spec.server_model.name, spec.server_model.network.weights) == (SERVER, Path(SERVER))


@pytest.mark.parametrize("recipe", ["fedavg", "feddf", "fedtgp"])
@pytest.mark.parametrize("gate", [None, Gate()])
@pytest.mark.parametrize("test", [None, "test"])
def test_a_job_runs_networks_where_its_federation_says_so(recipe: str, gate: Gate | None, test: str | None) -> None:
    local = {"objective": {"kind": "fedtgp"}} if recipe == "fedtgp" else {}
    changes: dict[str, Any] = {
        "rounds": RoundsPlan(gate=gate),
        "local": LocalPlan.model_validate(local),
        "datasets": DatasetRefs(test=test),
    }
    made = config(build("fedavg" if recipe == "fedtgp" else recipe), **changes)
    sets = Datasets(test=None if test is None else Path(test))
    needed = recipe != "fedavg" or gate is not None or test is not None
    assert round_of(Builder(made, 3, sets), "a").needs_networks == made.runs_networks == needed
