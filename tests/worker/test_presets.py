"""Every preset: two rounds through the pipeline, with a schedule shortened to a few steps."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.choices import kind_of, slots
from contract.local import FedTgpObjective
from contract.recipes.checks import check_with_data, check_with_local
from contract.recipes.presets import PRESETS, build, parse
from contract.tensors import TensorFile, write_file

HEAD: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [4], "common_head": True}}
AVERAGING = {
    "fedavg", "fedavgm", "fedprox", "fedadam", "fedyogi", "fedadagrad", "scaffold", "feddisco", "fedgkd", "moon",
    "feduv", "fedtgp", "fedma",
}  # fmt: skip
SENDS = {
    "scaffold": {"send.control.main"},
    "fedgkd": {"send.teacher.main"},
    "fedgkd+": {"send.teacher.main"},
    "fedtgp": {"send.prototypes"},
    "ds-fl": {"send.public", "send.targets"},
    "dafkd": {"send.generator"},
}
MEMORY = {"fedavgm": {"velocity.main"}, "fedadam": {"adam.main"}, "fedyogi": {"adam.main"}, "fedadagrad": {"adam.main"}}


def short(name: str) -> Any:
    """Return the preset with two steps of distillation and no warm-up."""
    distil = PRESETS[name].recipe.distil
    if distil is None or distil.students.kind == "none":
        return PRESETS[name].recipe
    options: dict[str, Any] = {"schedule": {"steps": 2, "batch_size": 8}}
    if name in ("codistillation", "dafkd"):
        options["warmup_rounds"] = 0
    return build(name, options)


def test_the_table_is_complete() -> None:
    assert set(PRESETS) == AVERAGING | {
        "feddf", "fedbe", "v-distillation", "one-shot-ensemble", "fedet", "fedsdd", "fed-ensemble", "codistillation",
        "fedgo", "fedgo-small", "dafkd", "dafkd-lite", "fedhkt", "fedgkd+", "ds-fl", "reflux", "reflux-server",
        "reflux-anchor", "reflux-sharp",
    }  # fmt: skip


def test_the_page_shows_every_preset_and_every_choice() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    kinds = {kind_of(choice) for found in slots().values() for choice in found}
    assert [name for name in sorted({*PRESETS, *kinds}) if f"`{name}`" not in page] == []
    example = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert example
    assert parse(json.loads(example.group(1))).needs_networks


@pytest.mark.parametrize("name", PRESETS)
def test_two_rounds_of_every_preset(name: str, tmp_path: Path, federation: Any) -> None:
    recipe, local = short(name), PRESETS[name].local
    if isinstance(local.objective, FedTgpObjective):
        local = local.model_copy(update={"objective": FedTgpObjective(server_epochs=20)})
    networks = ({"main": HEAD}, HEAD) if name == "fedet" else (None, None)
    world = federation(tmp_path, recipe, local, *networks)
    results = [world.round(), world.round()]
    for result in results:
        assert 0 <= result.metrics["accuracy"] <= 1
        assert set(result.models) == set(world.models)
    for path in world.models.values():
        with TensorFile(path) as file:
            assert all(np.isfinite(file.read(each).astype(np.float64)).all() for each in file.names)
    assert {each for each in world.state if each.startswith("send.")} == SENDS.get(name, set())
    assert MEMORY.get(name, set()) <= set(world.state)
    students = results[0].metrics.get("distil", {})
    wanted = {
        "fedet": {"server"}, "codistillation": {"main", "main~1", "main~2", "main~3"}, "fed-ensemble": set(),
        "one-shot-ensemble": set(),
    }.get(name, set() if name in AVERAGING else {"main"})  # fmt: skip
    assert set(students) == wanted


DISTILLING = [name for name in PRESETS if name not in AVERAGING | {"fed-ensemble", "one-shot-ensemble"}]


@pytest.mark.parametrize("name", DISTILLING)
@pytest.mark.parametrize("samples", [1, 21])
def test_a_student_learns_from_one_sample_at_a_time(name: str, samples: int, tmp_path: Path, federation: Any) -> None:
    """BatchNorm has no statistics of one sample: the network's own are used, and stay."""
    options: dict[str, Any] = {"schedule": {"steps": 3, "batch_size": 1 if samples > 1 else 64}}
    if name in ("codistillation", "dafkd"):
        options["warmup_rounds"] = 0
    networks = ({"main": HEAD}, HEAD) if name == "fedet" else (None, None)
    world = federation(tmp_path, build(name, options), PRESETS[name].local, *networks)
    if samples == 1 and name != "ds-fl":  # whose devices would have predicted on another set
        write_file(tmp_path / "unlabeled", {"inputs": np.ones((1, 1, 4, 4), np.float32)})
        for client in world.names:
            scores = {"unlabeled": np.ones(1, np.float32), "test": np.ones(12, np.float32)}
            write_file(tmp_path / f"scores-{client}", scores)
    result = world.round()
    assert result.metrics["distil"]
    for path in result.models.values():
        with TensorFile(path) as file:
            assert all(np.isfinite(file.read(each).astype(np.float64)).all() for each in file.names)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_goes_with_its_plan_and_says_what_it_needs(name: str) -> None:
    row = PRESETS[name]
    check_with_local(row.recipe, row.local)
    check_with_data(
        row.recipe,
        has_validation=True,
        has_unlabeled=row.recipe.needs_unlabeled,
        has_server_model=name == "fedet",
        is_image=name == "fedgo",
    )
    assert row.recipe.needs_networks == (name not in AVERAGING)
    assert row.recipe.needs_unlabeled == (name not in AVERAGING | {"fed-ensemble", "one-shot-ensemble", "dafkd"})
    assert all(choice.endswith((".", ";")) for choice in (row.summary, *row.choices))
