"""A device trains a document as it would the module that it is of: the same bits, whatever it minimises."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from client_sdk import data
from client_sdk.training import train_local
from contract import local
from contract.local import BinaryPrecision, LocalPlan, Sgd
from contract.networks.document import Document
from contract.nn import codec
from contract.nn.graphs.exporting import export
from contract.nn.graphs.module import GraphNetwork
from contract.nn.seeding import global_seed
from contract.tensors import Header
from contract.updates import FEATURES_KEY
from contract.wire.federations import Task

TASK = Task.model_validate({"num_classes": 3, "input": {"shape": [4], "dtype": "float32"}})
NUMBERS = np.random.default_rng(5)
X, Y = NUMBERS.normal(size=(13, 4)).astype("float32"), NUMBERS.integers(0, 3, 13)


class Net(nn.Module):
    """Dropout and BatchNorm behind a layer of the author's; the last batch of an epoch has one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.drop = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3)
        self.inner, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def features(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(self.drop(self.norm(self.body(x)))))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def author() -> Net:
    with global_seed(2):
        return Net()


@pytest.fixture(scope="module")
def document(author: Net) -> Document:
    return export(author, [4])


@pytest.mark.parametrize(
    "objective",
    [
        local.SgdObjective(),
        local.FedProxObjective(mu=0.5),
        local.ScaffoldObjective(option=2),
        local.MoonObjective(mu=5.0),
        local.FedUvObjective(),
        local.FedTgpObjective(weight=1.0),
        "binary",
    ],
    ids=lambda value: getattr(value, "kind", value),
)
def test_a_document_is_trained_as_its_module(author: Net, document: Document, objective: Any, tmp_path: Path) -> None:
    codec.save_state({"prototypes": torch.ones(3, 5)}, tmp_path / "p.safetensors")
    plan = LocalPlan(optimizer=Sgd(lr=0.1), epochs=2, batch_size=4)
    change = {"precision": BinaryPrecision()} if objective == "binary" else {"objective": objective}
    found = []
    for network in (copy.deepcopy(author), GraphNetwork(document)):
        network.load_state_dict(author.state_dict())
        header = codec.manifest(network)
        samples = data.load((X, Y))
        samples.check(TASK)
        result = train_local(
            network,
            samples,
            plan.model_copy(update=change),
            seed=3,
            device=torch.device("cpu"),
            base=Header(header.tensors, header.metadata | {FEATURES_KEY: "5"}),
            extras={"prototypes": tmp_path / "p.safetensors"},
        )
        found.append((network.state_dict(), result.loss, result.tensors))
    (wanted, loss, sent), (state, other, others) = found
    assert [name for name in wanted if not torch.equal(wanted[name], state[name])] == []
    assert loss == other
    assert sent.keys() == others.keys()
    assert all(torch.equal(sent[name], others[name]) for name in sent)
