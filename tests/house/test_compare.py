"""Federations and simulations side by side."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from contract.wire.report import FederationReport
from potstill.comparing import tables
from potstill.comparing.differences import differences, leaves
from potstill.comparing.sides import Side, sides_of

from .command_line import Service, call

pytestmark = pytest.mark.usefixtures("elsewhere")
PARTS: dict[str, Any] = {
    "recipe": {"name": "fedavg", "distil": None},
    "local": {"epochs": 2},
    "prototypes": [{"name": "main", "architecture": "mlp"}],
    "seed": 0,
}
DISTILLED = PARTS | {"recipe": {"name": "feddf", "distil": {"objective": {"kind": "kl", "temperature": 1.0}}}}


def compare(*words: object) -> Result:
    return call("compare", *map(str, words))


def cost(down: int, seconds: float = 0.0) -> dict[str, Any]:
    return {"files": {"down": down, "up": 10}, "seconds": {"devices": seconds, "jobs": 1.0}, "flops": {"training": 100}}


def report(name: str, values: list[float | None], **more: Any) -> dict[str, Any]:
    rounds = [
        cost(1000, 2.0) | {"round": at, "state": "published", "accuracy": value, "devices": 2, "answered": 2}
        for at, value in enumerate(values, start=1)
    ]
    total = {"files": {"down": 50 + 1000 * len(values), "up": 10 + 10 * len(values)}}
    return {
        "federation_id": "",
        "name": name,
        "state": "finished",
        "recipe": "fedavg",
        "networks": [],
        "before": cost(50),
        "first": 0.1,
        "rounds": rounds,
        "total": total,
        "parts": PARTS,
    } | more


def side(*values: float | None, **more: Any) -> Side:
    return Side("a", FederationReport.model_validate(report("a", list(values), **more)))


def test_a_curve_has_what_each_round_had_cost_up_to_it() -> None:
    """Before the rounds 60 bytes, in each 1,010; a round that published nothing costs, and has no point."""
    points = [(at.round, at.value, at.size, at.seconds) for at in side(0.4, None, 0.3).curve]
    assert points == [(0, 0.1, 60, 0.0), (1, 0.4, 1070, 3.0), (3, 0.3, 3090, 9.0)]
    assert side(0.4, None, 0.3).best == side(0.4).best, "the best is the first round's"
    assert side().curve[0].value == 0.1 and side(None, first=None).best is None


def test_whose_seconds_they_are_is_said() -> None:
    clocked = report("a", [0.4, 0.5])
    for at, each in enumerate(clocked["rounds"], start=1):
        each["clock"] = 30.0 * at
    told = [
        Side("a", FederationReport.model_validate(clocked | {"federation_id": name})) for name in ("", "fed_1")
    ]  # fmt: skip
    assert [each.time for each in [*told, side(0.4)]] == ["virtual clock", "wall clock", "computing"]
    assert [tables.row(each, [0.45])["to 0.45 seconds"] for each in told] == [60.0, 60.0]


def test_targets_of_errors_are_reached_from_above() -> None:
    rounds = report("a", [None, None])["rounds"]
    for each, value in zip(rounds, (3.0, 1.5), strict=True):
        each["measured"] = value
    told = side(metric="rmse", first=9.0, rounds=rounds)
    found = tables.row(told, [2.0, 1.0])
    assert (found["best"], found["to 2 rounds"], found["to 2 bytes"], found["to 1 rounds"]) == (1.5, 2, 2080, None)
    assert tables.compare([told]).targets == [], "errors have no targets by themselves"


def test_what_is_the_same_is_left_out_of_differences() -> None:
    found = {each.part: list(each.values) for each in differences([PARTS, DISTILLED])}
    assert found == {
        "recipe.name": ["fedavg", "feddf"],
        "recipe.distil.objective.kind": [None, "kl"],
        "recipe.distil.objective.temperature": [None, 1.0],
    }
    assert leaves({"a": [{"name": "x", "b": [1, 2]}], "c": [{"d": None}, {"d": 0}]}) == {
        "a.x.name": "x",
        "a.x.b": [1, 2],
        "c.2.d": 0,
    }
    assert differences([PARTS, PARTS]) == []


def test_names_are_told_apart_by_seed_and_number() -> None:
    names = [("a", 0), ("a", 1), ("b", 0), ("b", 0)]
    reports = [FederationReport.model_validate(report(name, [], parts={"seed": seed})) for name, seed in names]
    assert [each.name for each in sides_of(reports)] == ["a, seed 0", "a, seed 1", "b", "b (2)"]


def test_a_federation_beside_a_simulation(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / "simulation" / "seed-0" / "feddf"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report("feddf", [0.4, 0.83], parts=DISTILLED, recipe="feddf")))
    served = report("digits", [0.6], federation_id="fed_1")
    service.on("GET", "/v1/federations/fed_1/report", served)
    files = [tmp_path / f"told{form}" for form in (".csv", ".json", ".md")]
    told = compare("fed_1", tmp_path / "simulation", "--output", files[0], "--plot", tmp_path / "curves.png")
    assert told.exit_code == 0, told.output
    for words in ("digits", "83.0 %", "recipe.distil.objective.kind", "computing", "until it was first reached"):
        assert words in told.output, words
    assert "local.epochs" not in told.output
    with files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [each["recipe.distil.objective.kind"] for each in rows] == ["", "kl"]
    assert [each["to 0.8 bytes"] for each in rows] == ["", "2080"]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    for file_, words in zip(files[1:], ('"to 0.8 bytes": 2080', "| feddf | 80.0 % | 2 |"), strict=True):
        assert compare("fed_1", folder / "report.json", "--output", file_).exit_code == 0
        assert words in file_.read_text()
    as_json = json.loads(compare("fed_1", folder / "report.json", "--target", "0.7", "--json").output)
    assert [each["to 0.7 rounds"] for each in as_json["sides"]] == [None, 2]


def test_what_cannot_be_compared_is_told(service: Service, tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text("[]")
    for words, remedy in (
        ([tmp_path / "table.json"], "report.json"),
        ([tmp_path / "gone.json"], "no file or folder"),
        ([tmp_path], "holds no report.json"),
    ):
        said = compare(*words)
        assert said.exit_code != 0 and remedy in said.stderr
    service.on("GET", "/v1/federations/fed_1/report", report("digits", [0.6], federation_id="fed_1", parts={}))
    assert "says nothing of its parts" in compare("fed_1").output
    assert "is a share" in compare("fed_1", "--target", "80").stderr
    assert "has to end in .csv" in compare("fed_1", "--output", tmp_path / "a.txt").stderr
