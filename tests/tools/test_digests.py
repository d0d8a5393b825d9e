"""The digests of what rounds make: every choice has a case, a run repeats itself, a changed byte is found."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel

from contract.local import LocalPlan
from contract.recipes.presets import PRESETS, build
from contract.recipes.recipe import Recipe
from contract.tensors import write_file
from tools.digests.__main__ import compare, main
from tools.digests.cases import CASES
from tools.digests.record import update_digest

SCAFFOLD = "preset/scaffold"


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def choices(model: type[BaseModel]) -> set[str]:
    """Return the names of all classes that a field `kind` tells apart, anywhere within a model."""
    schemas = model.model_json_schema()["$defs"]
    return {name for name, schema in schemas.items() if "kind" in schema.get("properties", {})}


def used(value: Any) -> set[str]:
    if isinstance(value, BaseModel):
        return {type(value).__name__}.union(*(used(each) for _, each in value))
    return set().union(*map(used, value)) if isinstance(value, tuple) else set()


def test_every_preset_and_every_choice_has_a_case() -> None:
    found: set[str] = set()
    for case in CASES.values():
        found |= used(build(case.recipe, case.options)) | used(LocalPlan.model_validate(case.local))
    assert choices(Recipe) | choices(LocalPlan) | {"Privacy", "Swa", "EarlyStop", "DropWorst"} <= found
    assert {f"preset/{name}" for name in PRESETS} <= set(CASES)


def test_a_run_repeats_itself_and_a_changed_byte_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tmp_path / "before.json"
    only = ["--only", SCAFFOLD, "--seeds", "5"]
    assert main([*only, "--output", str(before)]) == 0
    tree = json.loads(before.read_text())[f"{SCAFFOLD}#5"]
    assert set(tree["rounds"]) == {"1", "2", "3"}
    assert len(tree["rounds"]["1"]["updates"]) == 4
    assert tree["rounds"]["1"]["state"] and tree["devices"], "SCAFFOLD keeps control variates at both ends"
    assert "seconds" not in tree["rounds"]["1"]["metrics"]
    assert main([*only, "--compare", str(before)]) == 0

    digest = tree["rounds"]["2"]["models"]["main"]
    before.write_text(before.read_text().replace(digest, f"{'0' if digest[0] != '0' else '1'}{digest[1:]}"))
    capsys.readouterr()
    assert main([*only, "--compare", str(before)]) == 1
    said = capsys.readouterr().out
    assert f"{SCAFFOLD}#5: rounds / 2 / models / main: " in said
    assert "1 runs compared, 1 differ" in said


def test_one_bit_of_an_update_counts_and_its_times_do_not(tmp_path: Path) -> None:
    def digest(value: float, seconds: float, loss: float = 1.0) -> str:
        metrics = json.dumps({"loss": loss, "seconds": seconds})
        write_file(tmp_path / "update", {"w": np.array([value], np.float32)}, {"metrics": metrics})
        return update_digest(tmp_path / "update")

    assert digest(1.0, 2.0) == digest(1.0, 3.0)
    assert digest(1.0, 2.0) != digest(float(np.nextafter(np.float32(1), np.float32(2))), 2.0)
    assert digest(1.0, 2.0) != digest(1.0, 2.0, loss=2.0)


def test_what_is_gone_counts_and_what_is_new_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare({"a#5": {"state": ["x"]}}, {"a#5": {"state": []}}) == 1
    assert compare({"a#5": {"accuracy": None}}, {"a#5": {}}) == 1
    assert compare({"a#5": {}, "b#5": {}}, {"a#5": {}}) == 1
    capsys.readouterr()
    assert compare({"a#5": {}}, {"a#5": {}, "b#5": {}}) == 0
    assert "b#5" in capsys.readouterr().out


def test_a_case_that_fails_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(CASES, "bad", CASES[SCAFFOLD].__class__("feddf", sets=("test",)))
    assert main(["--only", "bad", "--seeds", "5"]) == 1
    assert "bad#5: SimulationError: " in capsys.readouterr().out
