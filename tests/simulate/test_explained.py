"""Real devices on digits that lie are named within three rounds; honest ones, with few classes each, are not."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.simulate.liars import choose

CLIENTS = [f"client-{index}" for index in range(8)]


def flags(folder: Path, *lie: str) -> list[set[tuple[str, str]]]:
    """Return (client, kind) round by round."""
    command = ["simulate", "--recipe", "fedavg", "--data", "digits", "--clients", "8", "--alpha", "0.1"]
    command += ["--rounds", "3", "--seeds", "1", "--round-option", "explain=votes", "--out", str(folder), *lie]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    documents = (json.loads(path.read_text()) for path in sorted(folder.rglob("result.json")))
    told = [each.get("result", each).get("metrics", {}).get("explanation") for each in documents]
    return [
        {(name, flag["kind"]) for name, each in one["flags"].items() for flag in each}
        for one in told
        if one is not None
    ]


def test_honest_devices_with_few_classes_are_not_named(tmp_path: Path) -> None:
    assert flags(tmp_path) == [set(), set(), set()]


@pytest.mark.parametrize(("lie", "kind"), [("label-shift", "disagrees"), ("sign-flip", "opposes"), ("lazy", "idle")])
def test_a_liar_is_named_and_nobody_else(tmp_path: Path, lie: str, kind: str) -> None:
    found = flags(tmp_path, "--liars", "1", "--lie", lie)
    (liar,) = choose(CLIENTS, 1, seed=0)
    assert any((liar, kind) in each for each in found), "within three rounds"
    assert {name for each in found for name, _ in each} == {liar}
