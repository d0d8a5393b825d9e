"""The OpenAPI document of an installation: with packages their choices are listed, without any it is as ever."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fastapi import FastAPI
from pydantic import TypeAdapter, ValidationError

from contract import plugins
from contract.metrics import Metrics
from contract.packages import PluginError
from service.app import create_app
from tests.service.conftest import *  # noqa: F403 - its fixtures
from tests.service.conftest import SettingsMaker
from tests.service.routes.test_bounds import _sent, _unbounded

from .conftest import Packages, Rows

_PLACES = {
    "fuse": ("Recipe", "fuse", "FuseMidrange", "acme-midrange"),
    "weigh": ("Distillation", "weigh", "WeighMargin", "acme-margin"),
    "objective": ("LocalPlan", "objective", "SmoothObjective", "acme-smooth"),
    "metrics": ("RoundsPlan", "metrics", "MetricBrier", "acme-brier"),
    "factors": ("WeighProduct", "factors", "WeighMargin", "acme-margin"),
    "on devices": ("Evaluate", "metrics", "MetricBrier", "acme-brier"),
}
_ASKED: list[tuple[Any, bool]] = [
    ([{"kind": "acme-brier"}, {"kind": "calibration", "bins": 10}], True),
    ([{"kind": "acme-brier", "package": "acme-rules 1.0"}], True),
    ([{"kind": "acme-brier", "bins": 10}], False),
    ([{"kind": "acme-other"}], False),
]
_ODD = """
from typing import Any, Literal

from pydantic import Field

from contract.choices import Declares, Options
from contract.recipes.parts import FuseChoice, WeighChoice
from contract.recipes.parts.averaging import FuseMedian as Median


class Input(Options):
    default: str = "any"


class FuseMedian(Median):
    declares = Declares(worker="odd_rules")

    kind: Literal["odd-median"] = "odd-median"
    default: Input = Input()
    pair: tuple[int, str] = (1, "a")
    nothing: tuple[()] = ()
    rest: dict[str, Any] = {}


class WeighMargin(WeighChoice):
    declares = Declares(worker="odd_rules")

    kind: Literal["odd-margin"] = "odd-margin"
    other: Input = Input()
"""
_ODD_POINTS = "fuse.odd-median = odd_rules:FuseMedian\ndistil.weigh.odd-margin = odd_rules:WeighMargin\n"


@pytest.fixture(scope="module")
def app(make_settings: SettingsMaker) -> FastAPI:
    return create_app(make_settings())


@pytest.fixture(scope="module")
def plain(app: FastAPI) -> str:
    """The document without packages."""
    return json.dumps(made(app))


def made(app: FastAPI) -> dict[str, Any]:
    """Return the document that the service makes if it begins now."""
    app.openapi_schema = None
    return app.openapi()


def unions(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "mapping" in schema.get("discriminator", {}):
            yield schema
        for each in schema.values():
            yield from unions(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from unions(each)


def test_packages_are_in_the_document_and_nothing_else_changes(packages: Packages, plain: str, app: FastAPI) -> None:
    packages.acme()
    document = made(app)
    found = document["components"]["schemas"]
    for schema, field, name, kind in _PLACES.values():
        (union,) = unions(found[schema]["properties"][field])
        reference = f"#/components/schemas/{name}"
        assert {"$ref": reference} in union["oneOf"], schema
        assert union["discriminator"]["mapping"][kind] == reference
    for union in unions(document):
        told = sorted(each["$ref"] for each in union["oneOf"])
        assert told == sorted(union["discriminator"]["mapping"].values())
    margin = found["WeighMargin"]
    assert margin["description"].endswith("(Doe et al. 2031, eq. 4).\n\nOf the package acme-rules 1.0.")
    assert margin["properties"]["power"]["exclusiveMinimum"] == 0
    was = json.loads(plain)["components"]["schemas"]
    changed = {place[0] for place in _PLACES.values()} | {"EnsembleDocument"}
    assert {name for name in was if was[name] != found[name]} == changed
    assert found.keys() - was.keys() == {place[2] for place in _PLACES.values()}
    packages.remove()
    assert json.dumps(made(app)) == plain


def test_what_fits_the_document_is_what_may_be_asked_for(acme: Packages, app: FastAPI) -> None:
    document = made(app)
    metrics = document | {"$ref": "#/components/schemas/RoundsPlan/properties/metrics"}
    validator, plan = jsonschema.Draft202012Validator(metrics), TypeAdapter(Metrics)
    for asked, fits in _ASKED:
        assert validator.is_valid(asked) is fits, asked
        if fits:
            plan.validate_json(json.dumps(asked))
        else:
            with pytest.raises(ValidationError):
                plan.validate_json(json.dumps(asked))


def test_names_that_are_taken_have_the_packages_before_them(packages: Packages, plain: str, app: FastAPI) -> None:
    packages.acme()
    packages.install("odd.rules", {"odd_rules.py": _ODD}, _ODD_POINTS, "2.1")
    document = made(app)
    before, found = json.loads(plain)["components"]["schemas"], document["components"]["schemas"]
    assert found["FuseMedian"] == before["FuseMedian"] and found["Input"] == before["Input"]
    assert found["WeighMargin"]["description"].endswith("Of the package acme-rules 1.0.")
    assert found["OddRulesWeighMargin"]["description"].endswith("Of the package odd.rules 2.1.")
    options = found["OddRulesFuseMedian"]["properties"]
    assert found["OddRulesFuseMedian"]["title"] == "OddRulesFuseMedian"
    assert options["default"]["$ref"] == "#/components/schemas/OddRulesInput"
    assert found["OddRulesWeighMargin"]["properties"]["other"]["$ref"] == options["default"]["$ref"]
    assert options["pair"]["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    (factors,) = unions(found["WeighProduct"]["properties"]["factors"])
    assert "odd-margin" not in factors["discriminator"]["mapping"], "it is no factor"
    for name in set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))):
        assert name in found and re.fullmatch(r"[A-Za-z0-9._-]+", name), name
    faults = {fault for where, schema in _sent(document) for fault in _unbounded(document, schema, where)}
    assert "OddRulesInput.default: no maxLength" in faults, "the walk over bounds finds what a package leaves open"
    assert all(fault.startswith("OddRules") for fault in faults), sorted(faults)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("power: float = float('inf')", "not JSON compliant"),
        ("power: type = int", "Cannot generate"),
    ],
)
def test_options_that_no_schema_describes_are_refused(packages: Packages, rows: Rows, option: str, said: str) -> None:
    text = rows("power: float = Field(1.0, gt=0, le=100)", option)
    point = "distil.weigh.acme-margin = acme_rules.rows:WeighMargin\n"
    packages.install("acme-rules", {"acme_rules/rows.py": text}, point)
    with pytest.raises(PluginError, match=f"acme-rules 1.0.*WeighMargin has options.*{said}.*; give them types"):
        plugins.check()
