"""The types are checked as pyproject.toml says: mypy passes over what it does not know in an override."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from mypy.options import PER_MODULE_OPTIONS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mypy() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    return found


def test_every_package_is_checked_strictly(mypy: dict[str, Any]) -> None:
    packages = {file.parent.name for file in ROOT.glob("*/__init__.py")} - {"migrations"}
    assert packages <= set(mypy["packages"])
    assert mypy["strict"] is True


def test_overrides_hold_only_what_holds_in_an_override(mypy: dict[str, Any]) -> None:
    for override in mypy["overrides"]:
        assert override.keys() - {"module"} <= PER_MODULE_OPTIONS
        ours = {name.split(".")[0] for name in override["module"]} & set(mypy["packages"]) - {"tests"}
        assert not ours, "strict with an exception is not strict"
