"""Mixtures that cannot be: refused with the part, the reason and the remedy."""

from typing import Any

import pytest

from contract.choices import walk
from contract.local import (
    Adam,
    BinaryPrecision,
    DsFlObjective,
    LocalPlan,
    ScaffoldObjective,
    Sgd,
)
from contract.recipes.checks import (
    check_with_buffered,
    check_with_data,
    check_with_local,
    check_with_networks,
    check_with_rounds,
)
from contract.recipes.errors import RecipeError
from contract.recipes.presets import PRESETS, build

SCAFFOLD = LocalPlan(objective=ScaffoldObjective(), optimizer=Sgd(lr=0.1))
GROUPS = {"kind": "random", "count": 2}
LABELED = {"kind": "labeled"}
PREDICTIONS = {"kind": "predictions"}
BALANCED = {"kind": "balanced_odds"}
PROB = {"kind": "odds", "link": "prob"}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("feddf", {"members": {"kind": "groups"}}, "set groups to 'random'"),
        ("feddf", {"students": {"kind": "main"}}, "set groups to 'random'"),
        ("feddf", {"combine": {"kind": "consensus"}}, "go together"),
        ("feddf", {"objective": {"kind": "fedet"}}, "go together"),
        ("feddf", {"schedule": {"swa": {}}}, "take one of them"),
        ("feddf", {"data": {"kind": "generated"}}, "add the part 'discriminators'"),
        (
            "fedgo-small",
            {"weigh": {"kind": "uniform"}, "data": {"kind": "generated"}, "students": {"kind": "none"}},
            "no weighting reads them; leave the part out",
        ),
        (
            "fedgo-small",
            {
                "data": {"kind": "generated", "fresh": True},
                "groups": GROUPS,
                "members": {"kind": "groups", "rounds": 2},
            },
            "distil.data.fresh: discriminators scored other samples in the rounds before",
        ),
        ("feddf", {"data": {"kind": "noise", "low": 1.0, "high": 1.0}}, "high must be above low"),
        ("feddf", {"members": {"kind": "posterior"}, "weigh": {"kind": "samples"}}, "set distil.members to 'clients'"),
        ("fedbe", {"members": {"clients": False, "mean": False, "samples": 0}}, "distil.members: nobody teaches; set "),
        ("fedgo-small", {"data": LABELED}, "set weigh to 'uniform', discriminators to null"),
        ("ds-fl", {"data": LABELED}, "take data 'unlabeled' where fuse is 'predictions'"),
        ("fedet", {"data": LABELED}, "Fed-ET's loss reads a consensus"),
        ("one-shot-ensemble", {"data": LABELED}, "nobody learns; take data 'unlabeled'"),
        ("fedgo-small", {"members": {"kind": "posterior"}}, "set distil.members to 'clients'"),
        (
            "feddf",
            {"weigh": {"kind": "product", "factors": [{"kind": "odds"}, {"kind": "uniform"}]}},
            "read discriminators",
        ),
        ("feddf", {"weigh": {"kind": "product", "factors": [{"kind": "uniform"}]}}, "at least 2"),
        (
            "fedgo-small",
            {"weigh": {"kind": "product", "factors": [PROB, {"kind": "dafkd"}]}},
            "probabilities, dafkd with link 'sigmoid' raw",
        ),
        (
            "fedgo-small",
            {"weigh": {"kind": "product", "factors": [{"kind": "odds", "link": "sigmoid"}, PROB]}},
            "distil.weigh: link 'prob' reads probabilities, odds with link 'sigmoid' raw scores",
        ),
        (
            "fedgo-small",
            {"weigh": {"kind": "product", "factors": [PROB, BALANCED]}},
            "probabilities, balanced_odds with link 'sigmoid' raw",
        ),
        (
            "fedgo-small",
            {"weigh": {"kind": "product", "factors": [BALANCED, BALANCED]}},
            "distil.weigh: 'balanced_odds' twice",
        ),
        ("feddf", {"weigh": BALANCED}, "add the part 'discriminators'"),
        ("reflux", {"students": {"kind": "none"}}, "students that learn it"),
        ("reflux", {"groups": GROUPS, "members": {"kind": "groups"}}, "take members 'clients', 'bank' or 'anchor'"),
        ("reflux", {"groups": GROUPS}, "random groups have no clients of their own; set groups to 'prototype'"),
        ("feddf", {"groups": GROUPS, "members": {"kind": "bank"}}, "'bank' counts absent clients, and random groups"),
        ("reflux", {"data": {"kind": "generated", "fresh": True}}, "drawn anew in every round; set distil.data.fresh"),
        ("dafkd", {"members": {"kind": "anchor"}}, "with fuse 'joint_mean' those of a round alone send one"),
        ("dafkd", {"weigh": BALANCED}, "'balanced_odds' reads what all discriminators say"),
        ("ds-fl", {"members": {"kind": "bank"}}, "set distil.members to 'clients'"),
        ("scaffold", {"drop_worst": {}}, "not with scaffold"),
        ("fedavg", {"fuse": PREDICTIONS}, "add the part 'distil'"),
        ("ds-fl", {"groups": GROUPS}, "leave out groups and drop_worst"),
        ("ds-fl", {"drop_worst": {}}, "leave out groups and drop_worst"),
        ("fedgo-small", {"fuse": PREDICTIONS}, "leave out discriminators"),
        ("ds-fl", {"members": {"kind": "posterior"}}, "set distil.members to 'clients'"),
        ("ds-fl", {"students": {"kind": "none"}}, "set distil.students to 'prototypes', "),
        ("ds-fl", {"students": {"kind": "server"}}, "set distil.students to 'prototypes', "),
        ("ds-fl", {"students": {"kind": "all", "warmup_rounds": 1}}, "set students.warmup_rounds to 0"),
    ],
)
def test_parts_that_do_not_go_together(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        build(name, options)
    assert said in f"{caught.value.field}: {caught.value}"


def test_sections_without_a_place_in_the_preset_can_be_given() -> None:
    recipe = build("fedavg", {"drop_worst": {"factor": 1.5}, "selection": "samples", "groups": GROUPS})
    assert recipe.drop_worst is not None
    assert (recipe.drop_worst.factor, recipe.selection, recipe.groups.kind) == (1.5, "samples", "random")
    assert recipe.needs_networks


@pytest.mark.parametrize(
    ("name", "local", "field"),
    [
        ("scaffold", LocalPlan(), "fuse"),
        ("fedavg", SCAFFOLD, "fuse"),
        ("ds-fl", LocalPlan(), "fuse"),
        ("feddf", LocalPlan(objective=DsFlObjective()), "fuse"),
        ("scaffold", LocalPlan(objective=ScaffoldObjective(), precision=BinaryPrecision()), "fuse"),
    ],
)
def test_recipes_that_do_not_go_with_the_local_plan(name: str, local: LocalPlan, field: str) -> None:
    with pytest.raises(RecipeError) as caught:
        check_with_local(build(name), local)
    assert caught.value.field == field


def test_scaffolds_second_option_needs_plain_sgd() -> None:
    with pytest.raises(ValueError, match="plain SGD"):
        LocalPlan(objective=ScaffoldObjective(), optimizer=Adam())


def test_predictions_are_not_sent_as_bits() -> None:
    with pytest.raises(ValueError, match="no weights that could be sent as bits"):
        LocalPlan(objective=DsFlObjective(), precision=BinaryPrecision())


ALL = {"has_validation": True, "has_unlabeled": True, "has_server_model": False}


@pytest.mark.parametrize(
    ("name", "options", "missing", "field"),
    [
        ("feddf", {}, {"has_unlabeled": False}, "distil.data"),
        ("ds-fl", {}, {"has_unlabeled": False}, "distil.data"),
        ("fedgo-small", {"data": {"kind": "generated"}}, {"has_unlabeled": False}, "distil.data"),
        ("feddf", {}, {"has_validation": False}, "distil.schedule.early_stop"),
        ("fedavg", {"drop_worst": {}}, {"has_validation": False}, "drop_worst"),
        ("fedet", {}, {}, "distil.students"),
        ("fedavg", {}, {"has_server_model": True}, "distil.students"),
        ("feddf", {"data": {"kind": "unlabeled", "augment": {"pad": 2}}}, {"is_image": False}, "distil.data.augment"),
        (
            "fedgo-small",
            {"discriminators": {"plan": {"flip": True}}},
            {"is_image": False},
            "discriminators.plan.flip",
        ),
        (
            "fedgo-small",
            {"discriminators": {"generator": {"kind": "fedgan", "flip": True}}},
            {"is_image": False},
            "discriminators.generator.flip",
        ),
    ],
)
def test_recipes_that_lack_data_or_networks(
    name: str, options: dict[str, Any], missing: dict[str, bool], field: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        check_with_data(build(name, options), **(ALL | missing))
    assert caught.value.field == field


@pytest.mark.parametrize("generator", [{"kind": "imported", "model": "mdl_1"}, {"kind": "fedgan"}])
def test_a_generator_made_elsewhere_needs_no_unlabelled_data(generator: dict[str, Any]) -> None:
    recipe = build("fedgo-small", {"data": {"kind": "generated"}, "discriminators": {"generator": generator}})
    assert not recipe.needs_unlabeled
    check_with_data(recipe, **(ALL | {"has_unlabeled": False}))


def test_fed_et_needs_the_common_head_everywhere() -> None:
    recipe = PRESETS["fedet"].recipe
    check_with_networks(recipe, {"main": True, "server": True})
    with pytest.raises(RecipeError, match="'main'"):
        check_with_networks(recipe, {"main": False, "server": True})
    check_with_networks(build("feddf"), {"main": False})


def test_krum_needs_its_number_of_updates() -> None:
    recipe = build("fedavg", {"fuse": {"kind": "krum", "byzantine": 2}})
    check_with_rounds(recipe, 7)
    with pytest.raises(RecipeError, match="7 updates"):
        check_with_rounds(recipe, 6)


def test_a_federated_generators_range_must_ascend() -> None:
    generator = {"kind": "fedgan", "input_range": [1.0, 1.0]}
    with pytest.raises(RecipeError, match="the upper end must be above the lower") as caught:
        build("fedgo-small", {"data": {"kind": "generated"}, "discriminators": {"generator": generator}})
    assert caught.value.field.endswith("input_range")


def test_error_feedback_is_refused_in_new_federations_and_read_in_old_ones() -> None:
    stored = LocalPlan.model_validate_json('{"precision": {"kind": "binary", "error_feedback": true}}')
    with pytest.raises(RecipeError, match="says nothing of the next model's") as caught:
        check_with_local(build("feddf"), stored)
    assert caught.value.field == "local.precision.error_feedback"
    check_with_local(build("feddf"), LocalPlan.model_validate({"precision": {"kind": "binary"}}))


@pytest.mark.parametrize("name", PRESETS)
def test_a_recipe_goes_without_rounds_that_wait_unless_a_choice_says_why(name: str) -> None:
    """The pair is decided by what the choices say, not by the recipe's name; the refusal says what to take."""
    recipe, local = PRESETS[name].recipe, PRESETS[name].local
    saying = [choice for choice in walk([recipe, local]) if choice.one_base is not None]
    if not saying:
        check_with_buffered(recipe, local, 1)
        return
    with pytest.raises(RecipeError, match="no meaning where updates began from several models") as error:
        check_with_buffered(recipe, local, 1)
    said = saying[0].one_base
    assert said is not None
    assert said.why in str(error.value)
    assert f"take {said.instead}" in str(error.value)


def test_bits_and_generators_of_devices_need_rounds_that_wait() -> None:
    bits = LocalPlan(precision=BinaryPrecision())
    with pytest.raises(RecipeError, match="bits stand for weights") as error:
        check_with_buffered(PRESETS["fedavg"].recipe, bits, 1)
    assert error.value.field == "local.precision"
    federated = build("fedgo-small", {"generator": {"kind": "fedgan"}})
    with pytest.raises(RecipeError, match="wait for every device; take 'wgan_gp'"):
        check_with_buffered(federated, PRESETS["fedgo-small"].local, 1)


def test_who_counts_absent_clients_has_one_update_a_client() -> None:
    reflux = PRESETS["reflux"]
    check_with_buffered(reflux.recipe, reflux.local, 1)
    with pytest.raises(RecipeError, match=r"set rounds\.per_client to 1"):
        check_with_buffered(reflux.recipe, reflux.local, 2)
