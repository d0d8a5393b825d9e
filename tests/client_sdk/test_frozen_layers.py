"""FedMA on the device: the layers that earlier rounds fused stay as they were sent, bit for bit."""

from typing import Any

import pytest
import torch
from torch import nn

from client_sdk import data
from client_sdk.errors import ModelMismatch
from client_sdk.training import LocalResult, train_local
from contract.local import FedMaObjective, LocalPlan, Sgd
from contract.nn.registry import initialise
from contract.wire.federations import Prototype, Task

TASK = Task.model_validate({"input": {"shape": [4], "dtype": "float32"}, "num_classes": 3})
MLP = Prototype(architecture="mlp", options={"hidden": [6, 5]})
LAYERS = ["1.", "3.", "5."]
PLAN = LocalPlan(objective=FedMaObjective(), optimizer=Sgd(lr=0.1), epochs=2, batch_size=4)


def network() -> nn.Module:
    return initialise(MLP.architecture, MLP.options, TASK, 3)


def trained(module: nn.Module, **given: Any) -> LocalResult:
    draw = torch.Generator().manual_seed(1)
    samples = data.load((torch.randn(12, 4, generator=draw), torch.arange(12) % 3))
    samples.check(TASK)
    return train_local(module, samples, PLAN, seed=0, device=torch.device("cpu"), **given)


@pytest.mark.parametrize(("round_index", "frozen"), [(1, 0), (2, 1), (3, 2), (4, 0), (6, 2)])
def test_one_layer_more_stays_each_round_and_then_none_again(round_index: int, frozen: int) -> None:
    before = network().state_dict()
    module = network()
    sent = trained(module, round_index=round_index, prototype=MLP).tensors
    for name, value in before.items():
        stays = name.startswith(tuple(LAYERS[:frozen])) if frozen else False
        assert torch.equal(sent[name], value) == stays, name
    assert all(parameter.requires_grad for parameter in module.parameters()), "the user's module is as it was"


def test_what_the_user_froze_stays_frozen() -> None:
    module = network()
    module.get_parameter("3.bias").requires_grad_(False)
    before = module.get_parameter("3.bias").clone()
    assert torch.equal(trained(module, round_index=1, prototype=MLP).tensors["3.bias"], before)
    assert not module.get_parameter("3.bias").requires_grad


def test_a_network_whose_layers_are_not_known_is_refused() -> None:
    with pytest.raises(ModelMismatch, match="registered architecture"):
        trained(network())
    with pytest.raises(ModelMismatch, match="cannot be matched"):
        trained(network(), prototype=Prototype(architecture="custom"))
