"""Choices of installed packages: found, asked for, refused by name, and read where the package is gone."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from contract import plugins
from contract.bodies import stored
from contract.choices import choices_of, kind_of, walk
from contract.faults import faults_of
from contract.local import LocalPlan
from contract.packages import PluginError, versions
from contract.recipes import parts, presets
from contract.recipes.errors import RecipeError
from contract.recipes.recipe import Recipe

from .conftest import PAGE, Packages, Rows, points

MARGIN = {"kind": "acme-margin", "power": 2.0}


def test_the_test_of_the_page_passes(acme: Packages) -> None:
    [block] = [
        each
        for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        if "def test_margin_is_sound" in each
    ]
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  # our own page
    names["test_margin_is_sound"]()


def test_a_package_s_choices_are_asked_for_like_any_other(acme: Packages) -> None:
    recipe = presets.build("feddf", {"weigh": MARGIN, "fuse": {"kind": "acme-midrange"}})
    assert recipe.distil is not None and recipe.distil.weigh.kind == "acme-margin"
    assert [each.package for each in walk(recipe) if each.package] == ["acme-rules 1.0"] * 2
    told = recipe.model_dump(mode="json")
    assert told["distil"]["weigh"] == MARGIN | {"package": "acme-rules 1.0"}
    assert told["fuse"] == {"kind": "acme-midrange", "package": "acme-rules 1.0"}
    assert Recipe.model_validate(told) == recipe == Recipe.model_validate_json(recipe.model_dump_json())
    plan = LocalPlan.model_validate({"objective": {"kind": "acme-smooth", "share": 0.2}})
    assert plan.model_dump()["objective"] == {"kind": "acme-smooth", "share": 0.2, "package": "acme-rules 1.0"}
    assert [(each.slot, kind_of(each)) for each in plugins.installed()] == [
        ("distil.weigh", "acme-margin"),
        ("fuse", "acme-midrange"),
        ("local.objective", "acme-smooth"),
        ("rounds.metrics", "acme-brier"),
    ]
    assert versions()["fuse.acme-midrange"] == "acme-rules 1.0"


def test_a_package_s_weighting_is_a_factor(acme: Packages) -> None:
    product = {"kind": "product", "factors": [MARGIN, {"kind": "entropy"}]}
    recipe = presets.build("feddf", {"weigh": product})
    assert recipe.distil is not None and isinstance(recipe.distil.weigh, parts.WeighProduct)
    assert [each.kind for each in recipe.distil.weigh.factors] == ["acme-margin", "entropy"]


@pytest.mark.parametrize(
    ("fuse", "field", "words"),
    [
        ({"kind": "acme-midrange", "wide": 1}, "fuse.wide", "no such field"),
        ({"kind": "acme-midrange", "package": "acme-rules 2.0"}, "fuse.package", "acme-rules 1.0 is installed here"),
        ({"kind": "acme-other"}, "fuse.kind", "not 'acme-other'"),
        ({"kind": "acme-margin"}, "fuse.kind", "not 'acme-margin'"),
    ],
)
def test_what_is_wrong_is_told_by_its_field(acme: Packages, fuse: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Recipe.model_validate({"name": "mine", "fuse": fuse})
    told = faults_of(caught.value, {"name": "mine", "fuse": fuse})
    assert [fault.field for fault in told] == [field]
    assert words in told[0].message


def test_an_option_has_its_bounds(acme: Packages) -> None:
    with pytest.raises(RecipeError, match="greater than 0") as caught:
        presets.build("feddf", {"weigh": {"kind": "acme-margin", "power": 0}})
    assert caught.value.field == "distil.weigh.power"


def test_without_the_package_what_is_asked_for_is_refused_and_what_is_stored_is_read(acme: Packages) -> None:
    text = presets.build("feddf", {"weigh": MARGIN}).model_dump_json()
    plan = LocalPlan.model_validate({"objective": {"kind": "acme-smooth", "share": 0.2}}).model_dump_json()
    acme.remove()
    with pytest.raises(ValidationError, match="acme-margin"):
        Recipe.model_validate_json(text)
    recipe, local = stored(Recipe, text), stored(LocalPlan, plan)
    assert recipe.model_dump_json() == text
    assert local.model_dump_json() == plan
    words = "'acme-margin' is of the package acme-rules 1.0, which is not installed here; pip install 'acme-rules==1.0'"
    assert recipe.distil is not None and words in recipe.distil.weigh.lacking
    assert local.objective.lacking.startswith("local.objective 'acme-smooth'")
    assert not any(each.lacking for each in walk(stored(Recipe, presets.build("fedgo").model_dump_json())))


def test_what_was_stored_of_another_version_keeps_saying_so(acme: Packages) -> None:
    text = Recipe.model_validate({"name": "mine", "fuse": {"kind": "acme-midrange"}}).model_dump_json()
    acme.remove()
    acme.acme("1.1")
    assert stored(Recipe, text).fuse.package == "acme-rules 1.0"
    assert not stored(Recipe, text).fuse.lacking
    assert Recipe.model_validate({"name": "mine", "fuse": {"kind": "acme-midrange"}}).fuse.package == "acme-rules 1.1"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("from typing import Literal", "import no_such_module", "cannot be loaded: No module named 'no_such_module'"),
        ("from typing import Literal", "raise KeyError", "cannot be loaded: KeyError"),
        ('"acme-margin"', '"entropy"', "distil.weigh has a choice 'entropy' already"),
        ('"acme-margin"', '"acme-lead"', "rename the entry point 'distil.weigh.acme-lead'"),
        ('"acme-margin"', '"Acme"', "rename the entry point 'distil.weigh.Acme'"),
        ("    power:", "    package:", '"package" in "WeighMargin" shadows'),
        (', worker="acme_rules.rules"', "", "needs declares = Declares"),
        ("(WeighFactor)", "", "must name a class below a slot's"),
        ("class WeighMargin", "class Other", "cannot be loaded: .*has no attribute 'WeighMargin'"),
    ],
)
def test_a_package_that_cannot_be_taken_in_is_named(
    packages: Packages, rows: Rows, old: str, new: str, words: str
) -> None:
    whole = "distil.weigh.acme-margin = acme_rules.rows:WeighMargin\n"
    packages.install("acme-rules", {"acme_rules/rows.py": rows(old, new)}, whole)
    before = {*choices_of(parts.WeighChoice), *choices_of(parts.FuseChoice)}
    with pytest.raises(PluginError, match=f"package acme-rules 1.0, entry point 'distil.weigh.acme-margin'.*{words}"):
        plugins.check()
    with pytest.raises(RecipeError, match="cannot be used here: package acme-rules 1.0") as caught:
        presets.build("feddf", {"weigh": MARGIN})
    assert caught.value.field == "distil.weigh.kind"
    assert presets.build("feddf", {"weigh": {"kind": "entropy"}}).distil is not None
    assert {*choices_of(parts.WeighChoice), *choices_of(parts.FuseChoice)} == before


def test_a_kind_of_two_packages_is_neither_s(acme: Packages) -> None:
    acme.install("other-rules", {}, points().splitlines()[1])
    with pytest.raises(PluginError, match="offered twice: package acme-rules 1.0.*and package other-rules 1.0"):
        plugins.check()
    with pytest.raises(RecipeError, match="uninstall one of the packages"):
        presets.build("fedavg", {"fuse": {"kind": "acme-midrange"}})
    assert {kind_of(each) for each in plugins.installed()} == {"acme-brier", "acme-margin", "acme-smooth"}


def test_what_no_entry_point_offers_is_no_choice(packages: Packages, rows: Rows) -> None:
    one = "fuse.acme-midrange = acme_rules.rows:FuseMidrange\n"
    packages.install("acme-rules", {"acme_rules/rows.py": rows()}, one)
    assert [kind_of(each) for each in plugins.installed()] == ["acme-midrange"]
    with pytest.raises(RecipeError, match="not 'acme-margin'"):
        presets.build("feddf", {"weigh": MARGIN})


def test_a_slot_that_is_closed_takes_none(packages: Packages) -> None:
    row = (
        "from typing import Literal\nfrom contract.choices import Declares\n"
        "from contract.recipes.parts import CombineChoice\n\n"
        "class Mine(CombineChoice):\n    declares = Declares(worker='acme')\n    kind: Literal['acme'] = 'acme'\n"
    )
    packages.install("acme-combine", {"acme.py": row}, "distil.combine.acme = acme:Mine\n")
    with pytest.raises(PluginError, match="of slot 'distil.combine'; packages may add to fuse, distil.weigh"):
        plugins.check()


def test_what_devices_send_is_told(packages: Packages, rows: Rows) -> None:
    silent = rows("    share:", "    def adds(self, base, num_classes, public):\n        return {}\n\n    share:")
    packages.install(
        "acme-rules", {"acme_rules/rows.py": silent}, "local.objective.acme-smooth = acme_rules.rows:SmoothObjective\n"
    )
    with pytest.raises(PluginError, match="adds tensors to updates and does not say so; declare sends"):
        plugins.check()
