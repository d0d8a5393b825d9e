"""What a federation's request becomes: recipe, local plan, checks."""

from typing import Any

import pytest

from contract.federation import FederationConfig
from contract.local import LocalPlan, Privacy
from contract.recipes.checks import check_with_data
from contract.recipes.errors import RecipeError
from contract.recipes.parts import ObjectiveFedEt
from contract.recipes.presets import PRESETS, build
from contract.recipes.recipe import Recipe, discriminator_link
from contract.wire.federations import DatasetRefs, FederationCreate, RecipeChoice
from service.domain import federation as rules
from service.domain import mixture
from service.domain.errors import DomainError


def request(**changes: Any) -> FederationCreate:
    body = {
        "name": "f",
        "task": {"num_classes": 3, "input": {"shape": [2]}},
        "prototypes": [{"architecture": "mlp"}],
        "recipe": {"name": "fedavg"},
    }
    return FederationCreate.model_validate(body | changes)


def resolved(sets: set[str], **changes: Any) -> FederationConfig:
    return rules.resolve(request(**changes), DatasetRefs(), sets)


def test_early_stopping_of_the_paper_is_left_out_without_a_validation_set_and_noted() -> None:
    given, lacking = resolved({"validation"}, recipe={"name": "feddf"}), resolved(set(), recipe={"name": "feddf"})
    with_set, without = given.recipe, lacking.recipe
    assert not [note for note in given.notes if "early_stop" in note.path]
    assert [note.path for note in lacking.notes] == ["recipe.distil.schedule.early_stop"]
    assert "all of its 10000 steps" in lacking.notes[0].note
    assert "datasets.validation" in lacking.notes[0].why
    assert with_set.distil is not None
    assert without.distil is not None
    assert with_set.distil.schedule.early_stop is not None
    assert without.distil.schedule.early_stop is None
    assert without.distil.schedule.steps == with_set.distil.schedule.steps == 10_000


@pytest.mark.parametrize(
    "asked",
    [
        RecipeChoice(name="feddf", options={"early_stop": {"patience": 3}}),
        RecipeChoice(name="feddf", options={"early_stop": {"patience": 1000}}),  # the paper's own, by name
        RecipeChoice(name="fedgo-small", options={"schedule": {"early_stop": {}}}),
        PRESETS["feddf"].recipe,
    ],
)
def test_early_stopping_that_was_asked_for_needs_a_validation_set(asked: RecipeChoice | Recipe) -> None:
    recipe = resolved(set(), recipe=asked.model_dump(mode="json")).recipe
    with pytest.raises(RecipeError, match="validation") as caught:
        check_with_data(recipe, has_validation=False, has_unlabeled=True, has_server_model=False)
    assert caught.value.field == "distil.schedule.early_stop"
    check_with_data(recipe, has_validation=True, has_unlabeled=True, has_server_model=False)


def test_a_composition_may_not_go_by_the_name_of_a_preset_that_it_is_not() -> None:
    with pytest.raises(DomainError, match="name yours anew") as caught:
        rules.resolve_recipe(Recipe(name="fedgo-small"))
    assert caught.value.members["field"] == "recipe.name"


def test_the_local_plan_is_the_requests_then_the_papers_then_ours() -> None:
    given = request(local={"epochs": 3})
    assert rules.resolve_local(given, PRESETS["fedgo-small"].recipe).epochs == 3
    assert rules.resolve_local(request(), PRESETS["fedgo-small"].recipe) == PRESETS["fedgo-small"].local
    assert rules.resolve_local(request(), Recipe(name="mine")) == LocalPlan()


def test_a_custom_architecture_only_averages() -> None:
    prototypes = request(prototypes=[{"architecture": "custom", "initial_model": "mdl_1"}]).prototypes
    task = request().task
    mixture.check_architectures(prototypes, PRESETS["fedavg"].recipe, task, evaluates=False)
    for recipe, evaluates in ((PRESETS["feddf"].recipe, False), (PRESETS["fedavg"].recipe, True)):
        with pytest.raises(DomainError, match="cannot run 'custom'"):
            mixture.check_architectures(prototypes, recipe, task, evaluates)


def test_a_network_that_dp_sgd_cannot_train_is_refused_before_any_device_meets_it() -> None:
    networks = [{"name": "a", "architecture": "mlp"}, {"name": "b", "architecture": "resnet-8"}]
    prototypes, private = request(prototypes=networks).prototypes, LocalPlan(privacy=Privacy())
    mixture.check_privacy(prototypes, LocalPlan())
    mixture.check_privacy(prototypes[:1], private)
    with pytest.raises(DomainError, match="BatchNorm mixes .*; give it the option norm=gn") as caught:
        mixture.check_privacy(prototypes, private)
    assert caught.value.members["field"] == "prototypes.1.architecture"


@pytest.mark.parametrize(
    ("stage", "field"),
    [
        ({"plan": {"architecture": "disc-cnn-mlp"}}, "plan.architecture"),
        ({"plan": {"architecture": "disc-cnn-mlp", "options": {"norm": "gn"}}}, None),
        ({"generator": {"kind": "wgan_gp"}}, None),
    ],
)
def test_a_discriminator_that_dp_sgd_cannot_train_is_refused(stage: dict[str, Any], field: str | None) -> None:
    recipe = rules.resolve_recipe(RecipeChoice(name="fedgo-small", options={"discriminators": stage}))
    mixture.check_private_stage(recipe, LocalPlan())
    if field is None:
        mixture.check_private_stage(recipe, LocalPlan(privacy=Privacy()))
        return
    with pytest.raises(DomainError, match="BatchNorm mixes") as caught:
        mixture.check_private_stage(recipe, LocalPlan(privacy=Privacy()))
    assert caught.value.members["field"] == f"recipe.discriminators.{field}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"generator": {"architecture": "mlp"}}, "unknown generator 'mlp'"),
        ({"generator": {"critic_architecture": "gen-mlp"}}, "unknown discriminator 'gen-mlp'"),
        ({"generator": {"options": {"latent": 0}}}, "latent"),
        ({"plan": {"architecture": "mlp"}}, "unknown discriminator 'mlp'"),
    ],
)
def test_the_networks_of_fedgo_are_checked(options: dict[str, Any], said: str) -> None:
    recipe = rules.resolve_recipe(RecipeChoice(name="fedgo-small", options={"discriminators": options}))
    with pytest.raises(DomainError, match=said) as caught:
        mixture.check_architectures(request().prototypes, recipe, request().task, False)
    assert caught.value.members["field"].startswith("recipe.discriminators")


@pytest.mark.parametrize("shape", [[1, 8, 8], [3, 28, 28], [7]])
def test_fedgo_s_own_networks_are_for_32x32_and_others_are_told_so(shape: list[int]) -> None:
    recipe = rules.resolve_recipe(RecipeChoice(name="fedgo"))
    fits = request(task={"num_classes": 3, "input": {"shape": [3, 32, 32]}}).task
    mixture.check_architectures([], recipe, fits, False)
    task = request(task={"num_classes": 3, "input": {"shape": shape}}).task
    with pytest.raises(DomainError, match=r"disc-cnn-4|gen-resnet") as caught:
        mixture.check_architectures([], recipe, task, False)
    assert "the recipe fedgo-small" in caught.value.detail or len(shape) == 1


@pytest.mark.parametrize("kind", ["wgan_gp", "fedgan"])
@pytest.mark.parametrize("critic", ["disc-resnet-8", "disc-cnn-mlp"])
def test_a_critic_with_batch_norm_is_refused(kind: str, critic: str) -> None:
    """WGAN-GP's penalty is on a sample's own gradient."""
    task = request(task={"num_classes": 3, "input": {"shape": [3, 32, 32]}}).task
    for norm in ("gn", "bn"):
        generator = {"kind": kind, "critic_architecture": critic, "critic_options": {"norm": norm}}
        recipe = rules.resolve_recipe(RecipeChoice(name="fedgo-small", options={"generator": generator}))
        if norm == "gn":
            mixture.check_architectures(request().prototypes, recipe, task, False)
            continue
        with pytest.raises(DomainError, match=r"its BatchNorm mixes .*; give it the option norm=gn") as caught:
            mixture.check_architectures(request().prototypes, recipe, task, False)
        assert caught.value.members["field"] == "recipe.discriminators.generator.critic_architecture"


SCORE = {"plan": {"architecture": "disc-mlp"}}
PROBABILITY = {"plan": {"architecture": "disc-mlp", "options": {"output": "probability"}}}


@pytest.mark.parametrize(
    ("weigh", "stage", "field", "said"),
    [
        ({"kind": "odds", "link": "prob"}, SCORE, "plan.options", "set its option output to 'probability'"),
        ({"kind": "dafkd", "link": "prob"}, SCORE, "plan.options", "set its option output to 'probability'"),
        ({"kind": "odds", "link": "sigmoid"}, PROBABILITY, "plan.options", "the recipe reads raw scores"),
        ({"kind": "dafkd"}, PROBABILITY, "plan.options", "take link 'prob'"),
        (
            {"kind": "odds", "link": "prob"},
            PROBABILITY | {"generator": {"critic_options": {"output": "probability"}}},
            "generator.critic_options",
            "scores without bounds",
        ),
    ],
)
def test_discriminators_end_in_what_the_weighting_reads(
    weigh: dict[str, Any], stage: dict[str, Any], field: str, said: str
) -> None:
    recipe = rules.resolve_recipe(RecipeChoice(name="fedgo-small", options={"weigh": weigh, "discriminators": stage}))
    with pytest.raises(DomainError, match=said) as caught:
        mixture.check_architectures(request().prototypes, recipe, request().task, False)
    assert caught.value.members["field"] == f"recipe.discriminators.{field}"


def test_probabilities_go_with_link_prob_and_other_weightings_beside_it() -> None:
    factors = [{"kind": "odds", "link": "prob"}, {"kind": "variance"}]
    options = {"weigh": {"kind": "product", "factors": factors}, "discriminators": PROBABILITY}
    recipe = rules.resolve_recipe(RecipeChoice(name="fedgo-small", options=options))
    mixture.check_architectures(request().prototypes, recipe, request().task, False)
    assert discriminator_link(recipe) == "prob"


def test_token_ids_have_no_generator() -> None:
    task = request(task={"num_classes": 3, "input": {"shape": [64], "dtype": "int64"}}).task
    with pytest.raises(DomainError, match="token ids"):
        prototypes = request(prototypes=[{"architecture": "lstm"}]).prototypes
        mixture.check_architectures(prototypes, PRESETS["fedgo-small"].recipe, task, False)


@pytest.mark.parametrize(
    ("architecture", "shape", "dtype"),
    [("mlp", [64], "int64"), ("cnn-digits", [64], "float32"), ("cnn-digits", [1, 1, 8, 8], "float32")],
)
def test_an_architecture_that_cannot_read_the_samples_is_refused(
    architecture: str, shape: list[int], dtype: str
) -> None:
    body = request(
        prototypes=[{"architecture": architecture}], task={"num_classes": 3, "input": {"shape": shape, "dtype": dtype}}
    )
    with pytest.raises(DomainError, match="reads float32") as caught:
        mixture.check_architectures(body.prototypes, PRESETS["fedavg"].recipe, body.task, False)
    assert caught.value.members["field"] == "prototypes.0.architecture"


def test_what_is_stored_reads_back_the_same() -> None:
    recipe = rules.resolve_recipe(RecipeChoice(name="fedgo-small", options={"link": "sigmoid"}))
    config = FederationConfig(
        task=request().task,
        prototypes=request().prototypes,
        recipe=recipe,
        local=rules.resolve_local(request(), recipe),
        rounds=request().rounds,
        datasets=request().datasets,
    )
    again = FederationConfig.model_validate(config.model_dump(mode="json"))
    assert again == config
    assert again.prototype("main").architecture == "mlp"


# ----------------------------------------------------------------------------------------------- groups that run ahead
RANDOM = {"kind": "random", "count": 2}
CLIENTS = {"members": {"kind": "clients"}}


def config(recipe: Recipe, **changes: Any) -> FederationConfig:
    local = changes.pop("local", PRESETS[recipe.name].local.model_dump())
    asked = request(recipe=recipe.model_dump(), local=local, **changes)
    return FederationConfig(
        task=asked.task,
        prototypes=asked.prototypes,
        recipe=recipe,
        local=rules.resolve_local(asked, recipe),
        rounds=asked.rounds,
        datasets=DatasetRefs(),
    )


@pytest.mark.parametrize(
    ("recipe", "changes", "ahead"),
    [
        (build("fedsdd"), {}, True),
        (build("fedsdd", {"overlap": False}), {}, False),
        (build("fedsdd"), {"local": {"objective": {"kind": "fedprox"}}}, True),
        (build("fedsdd"), {"local": {"objective": {"kind": "moon"}}}, True),
        # what devices are sent is made at the round's end
        (build("fedsdd"), {"local": {"objective": {"kind": "fedgkd"}}}, False),
        (build("fedsdd"), {"local": {"objective": {"kind": "fedtgp"}}}, False),
        (build("fedsdd", {"fuse": {"kind": "scaffold"}}), {"local": {"objective": {"kind": "scaffold"}}}, False),
        (build("fedsdd", {"fuse": {"kind": "momentum"}}), {}, True),
        # a model that may be turned away, or averaged anew without a bad teacher, is not given away before
        (build("fedsdd"), {"rounds": {"gate": {}}}, False),
        (build("fedsdd"), {"rounds": {"on_bad_teacher": "exclude"}}, True),
        (build("fedsdd", CLIENTS), {"rounds": {"on_bad_teacher": "exclude"}}, False),
        (build("fedsdd", CLIENTS), {}, True),
        (build("codistillation"), {}, False),
        (build("fed-ensemble"), {}, False),
        (build("fedavg", {"groups": RANDOM}), {}, False),
        (build("feddf", {"groups": RANDOM}), {}, False),
        (build("feddf"), {}, False),
    ],
)
def test_groups_run_ahead_where_all_that_they_need_is_there(
    recipe: Recipe, changes: dict[str, Any], ahead: bool
) -> None:
    assert config(recipe, **changes).runs_ahead is ahead


def test_a_configuration_from_before_the_option_runs_ahead_too() -> None:
    """Its models are the same; the composition must go on being the preset that it names."""
    tree = build("fedsdd").model_dump(mode="json")
    del tree["groups"]["overlap"]
    assert rules.resolve_recipe(Recipe.model_validate(tree)) == build("fedsdd")


@pytest.mark.parametrize(
    ("prototype", "said"),
    [
        ({"architecture": "cnn-digits"}, "BatchNorm"),
        ({"architecture": "resnet-8"}, "residual"),
        ({"architecture": "vgg-9", "options": {"norm": "bn"}}, "norm=none"),
        ({"architecture": "custom", "initial_model": "mdl_1"}, "does not|knows its tensors"),
    ],
)
def test_a_network_that_cannot_be_matched_is_refused_with_the_reason(prototype: dict[str, Any], said: str) -> None:
    config = FederationConfig.model_validate(
        {
            "task": {"num_classes": 3, "input": {"shape": [1, 32, 32]}},
            "prototypes": [{"architecture": "mlp"}, {"name": "b", **prototype}],
            "recipe": PRESETS["fedma"].recipe,
            "local": PRESETS["fedma"].local,
            "rounds": {},
            "datasets": {},
        }
    )
    with pytest.raises(DomainError, match=said) as caught:
        mixture.check_mixture(config, set())
    assert caught.value.members["field"] == "prototypes.1.architecture"
    mixture.check_mixture(config.model_copy(update={"prototypes": config.prototypes[:1]}), set())


TOKENS = {"num_classes": 3, "input": {"shape": [8], "dtype": "int64"}}
IMAGES = {"num_classes": 3, "input": {"shape": [3, 32, 32]}}
VGG = {"name": "v", "architecture": "vgg-9"}


def test_fed_ets_lambda_for_text_is_the_papers() -> None:
    lstm = {"architecture": "lstm", "options": {"common_head": True}}
    asked: dict[str, Any] = {"task": TOKENS, "prototypes": [lstm], "server_model": lstm, "recipe": {"name": "fedet"}}
    found = resolved({"unlabeled"}, **asked)
    assert found.recipe.distil is not None
    assert found.recipe.distil.objective == ObjectiveFedEt(diversity=0.5)
    assert [note.path for note in found.notes] == ["recipe.distil.objective.diversity"]
    for options, wanted in (({"diversity": 0.05}, 0.05), ({"objective": {"diversity": 0.2}}, 0.2)):
        named = resolved({"unlabeled"}, **asked | {"recipe": {"name": "fedet", "options": options}})
        assert named.recipe.distil is not None
        assert named.recipe.distil.objective == ObjectiveFedEt(diversity=wanted)
        assert named.notes == []


def test_fed_et_counts_samples_where_clients_are_drawn_alike() -> None:
    uniform = resolved({"unlabeled"}, recipe={"name": "fedet", "options": {"selection": "uniform"}})
    assert uniform.recipe.fuse.kind == "weighted_mean"
    assert [note.path for note in uniform.notes] == ["recipe.fuse"]
    both = {"selection": "uniform", "fuse": {"kind": "uniform_mean"}}
    named = resolved({"unlabeled"}, recipe={"name": "fedet", "options": both})
    assert (named.recipe.fuse.kind, named.notes) == ("uniform_mean", [])
    assert resolved({"unlabeled"}, recipe={"name": "fedet"}).recipe.fuse.kind == "uniform_mean"


@pytest.mark.parametrize(
    ("prototypes", "sets", "options", "on"),
    [
        ([VGG], {"validation"}, {}, True),
        ([VGG, {"architecture": "resnet-8"}], {"validation"}, {}, True),
        ([VGG], set(), {}, False),
        ([VGG | {"options": {"norm": "bn"}}], {"validation"}, {}, False),
        ([{"architecture": "custom", "initial_model": "m"}], {"validation"}, {}, False),
        ([VGG], {"validation"}, {"drop_worst": None}, False),
    ],
)
def test_feddf_drops_models_at_chance_where_the_paper_needs_it(
    prototypes: list[Any], sets: set[str], options: dict[str, Any], on: bool
) -> None:
    asked = {"name": "feddf", "options": options}
    found = resolved(sets | {"unlabeled"}, task=IMAGES, prototypes=prototypes, recipe=asked)
    assert (found.recipe.drop_worst is not None) is on
    assert ("recipe.drop_worst" in [note.path for note in found.notes]) is on


def test_moon_without_a_projection_head_says_so() -> None:
    bare = resolved(set(), recipe={"name": "moon"})
    assert [note.path for note in bare.notes] == ["recipe"]
    assert "projection=256" in bare.notes[0].why
    projected = {"architecture": "mlp", "options": {"projection": 256}}
    assert resolved(set(), recipe={"name": "moon"}, prototypes=[projected]).notes == []


def test_a_target_of_feddisco_fits_the_classes() -> None:
    for target, said in (([0.5, 0.5], "2 shares for 3 classes"), ([1, 1, 2], "")):
        config = resolved(set(), recipe={"name": "feddisco", "options": {"target": target}})
        if not said:
            mixture.check_mixture(config, set())
            continue
        with pytest.raises(DomainError, match=said) as caught:
            mixture.check_mixture(config, set())
        assert caught.value.members["field"] == "recipe.fuse"
    for target, said in (([0, 0, 0], "all shares are 0"), ([1, 0, 1], "KL is infinite")):
        with pytest.raises(DomainError, match=said):
            resolved(set(), recipe={"name": "feddisco", "options": {"target": target}})
