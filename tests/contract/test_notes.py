"""Notes: every part says what becomes of it, a whole is settled, and what was asked for by name stays."""

from collections.abc import Iterator

import pytest

from contract import architectures
from contract.choices import Options
from contract.notes import Note, Remark, Setting
from contract.recipes.parts import EarlyStop
from contract.recipes.presets import PRESETS, build, named
from contract.recipes.recipe import Recipe
from contract.settling import settle


class Inner(Options):
    width: int = 3

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        if setting.gated:
            yield Remark("width", "doubled", "a gate", becomes=2 * self.width)


class Outer(Options):
    name: str = "o"
    inner: Inner = Inner()
    several: tuple[Inner, ...] = (Inner(width=1), Inner(width=2))

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        yield Remark("", "is here", "always")


def test_parts_are_asked_in_their_order_however_deep_they_lie() -> None:
    settled, notes = settle(Outer(), Setting(gated=True), "plan")
    assert settled == Outer(inner=Inner(width=6), several=(Inner(width=2), Inner(width=4)))
    assert [note.path for note in notes] == [
        "plan", "plan.inner.width", "plan.several.0.width", "plan.several.1.width",
    ]  # fmt: skip
    assert str(notes[1]) == "plan.inner.width: doubled; a gate"
    assert settle(Outer(), Setting(), "plan") == (Outer(), [Note(path="plan", note="is here", why="always")])


@pytest.mark.parametrize("asked", ["plan.inner.width", "plan.inner", "plan.inner.width.deeper"])
def test_what_was_asked_for_by_name_is_not_changed_and_nothing_is_said(asked: str) -> None:
    settled, notes = settle(Outer(), Setting(gated=True, asked=frozenset({asked})), "plan")
    assert settled.inner == Inner()
    assert "plan.inner.width" not in [note.path for note in notes]


def test_a_path_that_only_begins_alike_was_not_asked_for() -> None:
    assert not Setting(asked=frozenset({"plan.inner.wid"})).was_asked("plan.inner.width")
    assert Setting(asked=frozenset({"plan"})).was_asked("plan.inner.width")


def test_named_options_are_paths_however_they_are_written() -> None:
    path = "distil.schedule.early_stop"
    for options in (
        {"distil": {"schedule": {"early_stop": {"patience": 5}}}},
        {"schedule": {"early_stop": {"patience": 5}}},
        {"early_stop.patience": 5},
        {"early_stop": {"patience": 5}},
    ):
        assert named("feddf", options) == {f"{path}.patience"}
    assert named("fedgo-small", {"schedule": {"early_stop": {}}}) == {path}
    assert named("feddf") == frozenset()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_among_all_that_it_reads_stays_what_it_is(name: str) -> None:
    preset, sets = PRESETS[name], frozenset({"unlabeled", "validation", "test"})
    setting = Setting(inputs="images", sets=sets, rounds=1, selection=preset.recipe.selection)
    settled, notes = settle(preset.recipe, setting, "recipe", preset.remarks(preset.recipe, setting))
    assert settled == preset.recipe
    assert notes == []


def test_the_filter_of_models_needs_a_set_to_judge_on() -> None:
    asked = build("fedavg", {"drop_worst": {}})
    settled, (note,) = settle(asked, Setting(), "recipe")
    assert settled.drop_worst is None
    assert note.path == "recipe.drop_worst"


def test_groups_that_wait_say_why() -> None:
    recipe = build("fedsdd")
    assert [note.why for note in settle(recipe, Setting(gated=True), "recipe")[1]] == [
        "rounds.gate may turn a group's model away"
    ]
    assert "local.objective" in settle(recipe, Setting(objective_reads=True), "recipe")[1][0].why
    assert settle(build("fedsdd", {"overlap": False}), Setting(gated=True), "recipe")[1] == []


def test_a_recipe_in_full_is_refused_rather_than_changed() -> None:
    recipe = Recipe.model_validate({"name": "mine", "distil": {"schedule": {"steps": 5, "early_stop": EarlyStop()}}})
    settled, notes = settle(recipe, Setting(asked=frozenset({"recipe"})), "recipe")
    assert (settled, notes) == (recipe, [])


@pytest.mark.parametrize("name", [e.name for e in architectures.CATALOGUE.values() if e.role == "classifier"])
def test_networks_say_whether_they_normalise(name: str) -> None:
    nn = pytest.importorskip("torch.nn")
    from contract.nn.registry import build as network
    from contract.wire.federations import Task

    entry = architectures.find(name)
    if not entry.server_side:
        assert entry.normalises({}) is None
        return
    shapes = {"tokens": [8], "images": [3, 32, 32], "volumes": [3, 8, 8], "floats": [4]}
    inputs = shapes[entry.reads], "int64" if entry.reads == "tokens" else "float32"
    task = Task.model_validate({"num_classes": 2, "input": {"shape": inputs[0], "dtype": inputs[1]}})
    for norm in ({}, *({"norm": each} for each in ("none", "bn", "gn"))):
        try:
            entry.options.model_validate(norm)
        except ValueError:
            continue
        layers = network(name, norm, task=task).modules()
        kinds = nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm
        assert entry.normalises(norm) is any(isinstance(layer, kinds) for layer in layers)
