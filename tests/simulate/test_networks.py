"""A simulation of a network of one's own, named by its file."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contract.networks import checks
from contract.nn.graphs.module import GraphNetwork
from contract.tensors import write_file
from potstill.cli import app
from tests.contract.networks.documents import layers, text, weights

NET = layers([64, 8, 10])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    document = {**NET, "input": {"shape": [1, 8, 8]}}
    for mode in ("train", "eval"):
        first = {"name": "x", "op": "aten.flatten.using_ints", "args": [{"node": "input"}, 1]}
        document[mode] = {**NET[mode], "nodes": [first, *NET[mode]["nodes"][1:]]}
    (tmp_path / "net.json").write_bytes(text(document))
    write_file(tmp_path / "net.safetensors", weights(NET))
    return tmp_path


def simulate(*more: str) -> int:
    arguments = ["simulate", "--recipe", "fedavg", "--recipe", "feddf", "--data", "digits", "--clients", "3"]
    arguments += ["--rounds", "1", "--seeds", "1", "--samples", "90", "--test-samples", "50", "--server-samples", "40"]
    result = CliRunner().invoke(app, [*arguments, "--local", "epochs=1", "--out", "out", *more])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code


@pytest.mark.slow
def test_recipes_are_compared_with_it_and_go_on_without_the_file(home: Path) -> None:
    assert simulate("--architecture", "net:net.json") == 0
    (kept,) = (home / "out" / "networks").glob("*.json")
    GraphNetwork(checks.read(kept.read_bytes()))
    told = json.loads((home / "out" / "experiment.json").read_text())
    assert told["prototypes"][0]["architecture"] == f"net:{kept.stem}"
    (home / "net.json").unlink()
    assert CliRunner().invoke(app, ["simulate", "--out", "out", "--resume"]).exit_code == 0


def test_what_is_no_document_is_told(home: Path) -> None:
    (home / "net.json").write_text("{}")
    result = CliRunner().invoke(app, ["simulate", "--architecture", "net:net.json", "--out", "out"])
    assert result.exit_code == 1
    assert not (home / "out" / "experiment.json").exists()
