"""`potstill network`: the two files of a module of one's own, and what is told when there are none."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from contract.networks import checks
from contract.nn.codec import load_state
from contract.nn.graphs.module import GraphNetwork
from tests.house.command_line import Service, call

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

class Branching(Net):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_nets_of_a_test.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_export_writes_graph_and_weights_that_make_the_network(here: Path) -> None:
    done = call("network", "export", "own_nets_of_a_test:Net", "--input-shape", "4", "-o", "net.json", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["output"] == "[3]"
    network = GraphNetwork(checks.read((here / "net.json").read_bytes()))
    load_state(network, here / "net.safetensors")
    assert network(torch.ones(2, 4)).shape == (2, 3)
    shown = call("network", "check", "net.json", "--json")
    assert json.loads(shown.stdout) == told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("own_nets_of_a_test:Branching", "--input-shape", "4"), "(forward: return super().forward(x if x.sum() > 0"),
        (("own_nets_of_a_test:Other", "--input-shape", "4"), "cannot be imported"),
        (("own_nets_of_a_test", "--input-shape", "4"), "name a class, a function or a module as package.module:Name"),
        (("own_nets_of_a_test:Net", "--input-shape", "4x4"), "give whole numbers with commas"),
        (("own_nets_of_a_test:Net", "--input-shape", "5"), "shapes cannot be multiplied"),
    ],
)
def test_what_cannot_be_written_is_told_and_leaves_no_file(here: Path, arguments: tuple[str, ...], said: str) -> None:
    done = call("network", "export", *arguments)
    assert done.exit_code == 1
    assert said in done.stderr.replace("\n", " ")
    assert not list(here.glob("net.*"))


def test_a_bent_document_is_told_with_its_place(here: Path) -> None:
    (here / "net.json").write_text('{"version": 1}')
    done = call("network", "check", "net.json")
    assert done.exit_code == 1
    assert "net.json: input: is missing" in done.stderr


def test_a_document_whose_shapes_do_not_fit_is_told_with_its_node(here: Path) -> None:
    call("network", "export", "own_nets_of_a_test:Net", "--input-shape", "4", "-o", "net.json")
    document = json.loads((here / "net.json").read_bytes())
    for mode in ("train", "eval"):
        first, last = document[mode]["nodes"][0]["args"], document[mode]["nodes"][2]["args"]
        first[1], last[1] = last[1], first[1]
    (here / "bent.json").write_text(json.dumps(document))
    done = call("network", "check", "bent.json")
    assert done.exit_code == 1, done.output
    assert "bent.json: train: in node 'linear'" in done.stderr


FACTS = {
    "role": "classifier",
    "input": {"shape": [32], "dtype": "int64"},
    "output": [4],
    "parameters": 39,
    "batch_norm": False,
    "normalises": False,
    "features": False,
    "shares_head": False,
}
USED: dict[str, tuple[dict[str, Any], str]] = {
    "token ids": ({}, "--architecture net:ward-net --input-shape 32 --dtype int64 --classes 4"),
    "masks": (
        {"input": {"shape": [1, 8, 8], "dtype": "float32"}, "output": [3, 8, 8]},
        "--architecture net:ward-net --input-shape 1,8,8",
    ),
    "discriminator": ({"role": "discriminator"}, "--option discriminators.plan.architecture=net:ward-net"),
    "generator": ({"role": "generator"}, "--option discriminators.generator.architecture=net:ward-net"),
}


@pytest.mark.parametrize("case", USED)
def test_a_network_says_how_a_federation_names_it(service: Service, case: str) -> None:
    facts, said = USED[case]
    shown: dict[str, Any] = {"id": "net_1", "name": "ward-net", "architecture": "net:sha256-" + "0" * 64, "size": 9}
    shown |= {"digest": "sha256-" + "0" * 64, "created_at": "2026-01-01T00:00:00Z", "url": "/"}
    service.on("GET", "/v1/networks/ward-net", shown | {"facts": FACTS | facts})
    told = call("network", "show", "ward-net").output
    assert told.splitlines()[-1] == f"use it: potstill federation create {said}"
