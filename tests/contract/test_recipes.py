"""Recipes as rows: the papers' numbers, options laid over them, impossible mixtures."""

from typing import Any

import pytest
from pydantic import ValidationError

from contract import architectures
from contract.recipes import parts
from contract.recipes.errors import RecipeError
from contract.recipes.presets import PRESETS, build, parse
from contract.recipes.recipe import Distillation, Recipe, discriminator_link, merge


def test_the_papers_numbers() -> None:
    fedavg, feddf, fedgo = PRESETS["fedavg"], PRESETS["feddf"], PRESETS["fedgo-small"]
    assert fedavg.recipe == Recipe(name="fedavg")
    assert not fedavg.recipe.needs_networks
    assert feddf.recipe.distil is not None
    assert fedgo.recipe.distil is not None
    assert fedgo.recipe.discriminators is not None
    df, go = feddf.recipe.distil.schedule, fedgo.recipe.distil.schedule
    assert (df.steps, df.batch_size, df.lr, df.optimizer.lr) == (10_000, 128, "cosine_per_job", 1e-3)
    assert (df.early_stop.eval_every, df.early_stop.patience) == (100, 1000) if df.early_stop else False
    assert (go.epochs, go.batch_size, go.lr, go.optimizer.lr) == (10, 64, "cosine_across_rounds", 1e-3)
    assert feddf.recipe.distil.weigh.kind == "uniform"
    assert discriminator_link(fedgo.recipe) == "double_sigmoid"
    generator = fedgo.recipe.discriminators.generator
    assert isinstance(generator, parts.GeneratorWganGp)
    assert (generator.steps, generator.critic_steps, generator.penalty) == (25_000, 5, 10.0)
    full = PRESETS["fedgo"].recipe.discriminators
    assert full is not None and isinstance(full.generator, parts.GeneratorWganGp)
    assert (full.generator.architecture, full.generator.critic_architecture) == ("gen-resnet", "critic-resnet")
    assert (full.generator.steps, full.plan.architecture, full.plan.flip) == (100_000, "disc-cnn-4", True)
    assert (fedgo.local.epochs, feddf.local.epochs, fedavg.local.epochs) == (30, 40, 5)


def test_fedbes_posterior_is_the_papers_gaussian_and_dirichlet_an_option() -> None:
    def posterior(name: str, options: dict[str, Any]) -> Any:
        distil = build(name, options).distil
        assert distil is not None
        assert isinstance(distil.members, parts.MembersPosterior)
        return distil.members.posterior

    assert posterior("fedbe", {}) == parts.SampleGaussian(scale=0.1)
    assert posterior("fedbe", {"posterior": {"kind": "dirichlet"}}) == parts.SampleDirichlet(alpha=0.5)
    assert posterior("feddf", {"members": {"kind": "posterior"}}) == parts.SampleGaussian(scale=0.1)


def test_papers_are_by_those_who_wrote_them() -> None:
    by = {"feddf": "Lin", "fedbe": "Chen & Chao", "fedet": "Cho", "fedsdd": "Kwan & Song", "dafkd": "Wang"}
    assert all(PRESETS[name].source.startswith(authors) for name, authors in by.items())


@pytest.mark.parametrize("name", PRESETS)
def test_every_row_is_complete_and_travels_as_json(name: str) -> None:
    row = PRESETS[name]
    assert row.source
    assert row.summary.endswith(".")
    assert build(name) == row.recipe
    assert parse(row.recipe.model_dump(mode="json")) == row.recipe
    assert type(row.local).model_validate_json(row.local.model_dump_json()) == row.local


def test_discriminators_are_trained_through_the_link_of_what_reads_them() -> None:
    """That of odds goes before that of `dafkd`: so it was when the latter had none."""
    stored = build("dafkd").model_dump(mode="json")
    del stored["distil"]["weigh"]["link"]  # as it was written before there was one
    assert parse(stored) == build("dafkd")
    assert discriminator_link(build("dafkd")) == "sigmoid"
    assert discriminator_link(build("dafkd", {"link": "double_sigmoid"})) == "double_sigmoid"
    both = [{"kind": "dafkd"}, {"kind": "odds", "link": "double_sigmoid"}]
    product = {"weigh": {"kind": "product", "factors": both}}
    assert discriminator_link(build("dafkd", product)) == "double_sigmoid"


@pytest.mark.parametrize(
    "options",
    [
        {"link": "sigmoid"},
        {"weigh.link": "sigmoid"},
        {"weigh": {"link": "sigmoid"}},
        {"distil": {"weigh": {"link": "sigmoid"}}},
        {"distil.weigh.link": "sigmoid"},
    ],
)
def test_an_option_is_written_in_any_of_these_ways(options: dict[str, Any]) -> None:
    recipe = build("fedgo-small", options)
    assert discriminator_link(recipe) == "sigmoid"
    assert recipe == build("fedgo-small", {"link": "sigmoid"})


def test_another_kind_replaces_a_part_whole() -> None:
    recipe = build("feddf", {"weigh": {"kind": "entropy", "tau": 2.0}})
    assert recipe.distil is not None
    assert recipe.distil.weigh == parts.WeighEntropy(tau=2.0)
    assert build("fedavg", {"fuse": {"kind": "uniform_mean"}}).fuse == parts.FuseUniformMean()


@pytest.mark.parametrize(
    ("name", "given", "dropped"), [("feddf", "epochs", "steps"), ("fedgo-small", "steps", "epochs")]
)
def test_naming_one_length_drops_the_other(name: str, given: str, dropped: str) -> None:
    for options in ({"schedule": {given: 3}}, {f"schedule.{given}": 3}):
        recipe = build(name, options)
        assert recipe.distil is not None
        assert (getattr(recipe.distil.schedule, given), getattr(recipe.distil.schedule, dropped)) == (3, None)


@pytest.mark.parametrize(
    ("name", "options", "field", "said"),
    [
        ("nope", {}, "name", "choose one of"),
        ("fedavg", {"link": "sigmoid"}, "options.link", "no option"),
        ("fedavg", {"temperature": 2}, "options.temperature", "no option"),
        ("fedgo-small", {"link": "triple"}, "link", "double_sigmoid"),
        ("fedgo-small", {"batch_size": 3}, "options.batch_size", "several"),
        ("fedgo-small", {"schedule": {"epochs": 0}}, "epochs", "greater"),
        ("fedgo-small", {"schedule": {"epochs": 1, "steps": 1}}, "distil.schedule", "either"),
        ("feddf", {"weigh": {"kind": "odds"}}, "distil.weigh", "discriminators"),
        ("feddf", {"discriminators": {}}, "discriminators", "no weighting reads them"),
        ("feddf", {"weigh": {"kind": "magic"}}, "weigh", "magic"),
        ("feddf", {"temperature": float("nan")}, "temperature", ""),
        ("feddf", {"clip_norm": float("inf")}, "clip_norm", "finite"),
    ],
)
def test_options_that_cannot_be(name: str, options: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        build(name, options)
    assert field in caught.value.field
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"critic_options": {"norm": "gn"}, "critic_architecture": "disc-resnet-8"},
        {"critic_architecture": "disc-resnet-8", "critic_options.norm": "gn"},
        {"generator": {"critic_options": {"norm": "gn"}, "critic_architecture": "disc-resnet-8"}},
    ],
)
def test_another_architecture_begins_with_its_own_options(options: dict[str, Any]) -> None:
    """Those of the preset's network, such as `hidden`, are not its own."""
    stage = build("fedgo-small", options).discriminators
    assert stage is not None and isinstance(stage.generator, parts.GeneratorWganGp)
    assert (stage.generator.critic_architecture, stage.generator.critic_options) == ("disc-resnet-8", {"norm": "gn"})
    assert stage.generator.steps == 25_000


def test_a_whole_recipe_of_ones_own() -> None:
    recipe = parse(
        {
            "name": "mine",
            "distil": {"weigh": {"kind": "samples"}, "combine": {"kind": "probs"}, "objective": {"kind": "soft_ce"}},
        }
    )
    assert recipe.needs_networks
    assert recipe.distil is not None
    assert recipe.distil.schedule.epochs == 10
    with pytest.raises(RecipeError, match="no such field"):
        parse({"name": "mine", "magic": True})
    for name in ("", "With Space", "a/b", "-x", "x" * 65):
        with pytest.raises(RecipeError):
            parse({"name": name})


def test_parts_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        PRESETS["fedavg"].recipe.name = "x"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="either epochs or steps"):
        Recipe(name="x", distil=Distillation(schedule=parts.Schedule()))


def test_merge_lays_changes_over_and_leaves_the_base_alone() -> None:
    base = {"a": {"kind": "x", "b": 1, "c": {"d": 2}}, "e": 5}
    assert merge(base, {"a": {"c": {"d": 3}}}) == {"a": {"kind": "x", "b": 1, "c": {"d": 3}}, "e": 5}
    assert merge(base, {"a": {"kind": "x", "b": 2}})["a"] == {"kind": "x", "b": 2, "c": {"d": 2}}
    assert merge(base, {"a": {"kind": "y"}})["a"] == {"kind": "y"}
    assert merge(base, {"a": None})["a"] is None
    assert base == {"a": {"kind": "x", "b": 1, "c": {"d": 2}}, "e": 5}


def test_networks_that_the_rows_name_are_in_the_catalogue() -> None:
    for row in PRESETS.values():
        if row.recipe.discriminators:
            generator, plan = row.recipe.discriminators.generator, row.recipe.discriminators.plan
            assert isinstance(generator, parts.GeneratorWganGp | parts.GeneratorFedGan)
            for name, role, options in (
                (generator.architecture, "generator", generator.options),
                (generator.critic_architecture, "discriminator", generator.critic_options),
                (plan.architecture, "discriminator", plan.options),
            ):
                architectures.find(name, role).options.model_validate(options)  # type: ignore[arg-type]


def test_an_unknown_architecture_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="choose one of critic-resnet, disc-cnn-4, disc-cnn-digits"):
        architectures.find("mlp", "discriminator")
    with pytest.raises(ValueError, match="unknown architecture 'x'"):
        architectures.find("x")
    for entry in architectures.CATALOGUE.values():
        assert entry.options.model_validate({}) is not None
        with pytest.raises(ValidationError):
            entry.options.model_validate({"no_such_option": 1})
