"""FedMA on the device: first weights of its own, then the layers that earlier rounds fused stay, bit for bit."""

from typing import Any

import pytest
import torch
from torch import nn

from client_sdk import data
from client_sdk.errors import ModelMismatch
from client_sdk.methods.fedma import put_to_sleep
from client_sdk.training import LocalResult, train_local
from contract.chains import chain
from contract.local import Adam, FedMaObjective, LocalPlan, Privacy, Sgd
from contract.nn.registry import initialise
from contract.wire.federations import Prototype, Task

TASK = Task.model_validate({"input": {"shape": [4], "dtype": "float32"}, "num_classes": 3})
MLP = Prototype(architecture="mlp", options={"hidden": [6, 5]})
LAYERS = ["1.", "3.", "5."]
PLAN = LocalPlan(objective=FedMaObjective(), optimizer=Sgd(lr=0.1), epochs=2, batch_size=4)


def network() -> nn.Module:
    return initialise(MLP.architecture, MLP.options, TASK, 3)


def trained(module: nn.Module, plan: LocalPlan = PLAN, **given: Any) -> LocalResult:
    draw = torch.Generator().manual_seed(1)
    samples = data.load((torch.randn(12, 4, generator=draw), torch.arange(12) % 3))
    samples.check(TASK)
    return train_local(module, samples, plan, seed=0, device=torch.device("cpu"), **given)


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


def left(module: nn.Module, plan: LocalPlan = PLAN, **given: Any) -> dict[str, torch.Tensor]:
    """Return what is sent after steps too small to be seen: the weights that training started at."""
    still = plan.model_copy(update={"optimizer": Sgd(lr=1e-12), "epochs": 1})
    draw = torch.Generator().manual_seed(1)
    samples = data.load((torch.randn(12, 4, generator=draw), torch.arange(12) % 3))
    samples.check(TASK)
    options: dict[str, Any] = {"seed": 0, "device": torch.device("cpu"), "prototype": MLP} | given
    return train_local(module, samples, still, **options).tensors


def near(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.allclose(one[name], other[name], atol=1e-9) for name in other)


def test_devices_start_the_first_round_at_weights_of_their_own_and_later_ones_at_the_model() -> None:
    sent = network().state_dict()
    one, same, other = left(network()), left(network()), left(network(), seed=1)
    assert near(one, same) and not near(one, sent) and not near(one, other)
    assert near(left(network(), round_index=4), sent)
    pretrained = PLAN.model_copy(update={"objective": FedMaObjective(start="sent")})
    assert near(left(network(), pretrained), sent)


def test_a_narrow_start_leaves_units_asleep_and_training_does_not_wake_them() -> None:
    objective = FedMaObjective(start_width=0.5)
    narrow = PLAN.model_copy(update={"objective": objective, "optimizer": Adam(lr=0.1), "epochs": 20})
    sent = trained(network(), narrow, round_index=1, prototype=MLP).tensors
    units = {"1": (6, 3), "3": (5, 3)}  # of 6 units 3, of 5 units 2.5, rounded up
    for layer, (all_, awake) in units.items():
        for kind in ("weight", "bias"):
            values = sent[f"{layer}.{kind}"].reshape(all_, -1)
            assert (values[:awake] != 0).any(dim=1).all() and (values[awake:] == 0).all(), (layer, kind)
    assert (sent["3.weight"][:, 3:] == 0).all() and (sent["5.weight"][:, 3:] == 0).all()
    assert (sent["5.weight"][:, :3] != 0).all() and (sent["5.bias"] != 0).all()


def test_a_narrow_lstm_stays_narrow() -> None:
    layers = chain("lstm", {"vocab_size": 9, "width": 4, "layers": 2}, [5], 3)
    task = Task.model_validate({"input": {"shape": [5], "dtype": "int64"}, "num_classes": 3})
    module = initialise("lstm", {"vocab_size": 9, "width": 4, "layers": 2}, task, 0)
    put_to_sleep(layers, module.state_dict(), 0.5)
    states, _ = module.get_submodule("backbone.lstm")(module.get_submodule("backbone.embedding")(torch.arange(5)[None]))
    assert (states[..., 2:] == 0).all() and (states[..., :2] != 0).all()
    module(torch.arange(5)[None]).sum().backward()
    for name, view in ((name, view) for layer in layers.layers[:-1] for name, view in layer.tensors.items()):
        gradient = module.get_parameter(name).grad
        assert gradient is not None
        assert (gradient.view(view.shape).movedim(view.units, 0)[2:] == 0).all(), name


def test_a_narrow_start_that_could_not_be_is_refused() -> None:
    with pytest.raises(ValueError, match="start_width: devices that start at the model as it is sent"):
        FedMaObjective(start="sent", start_width=0.5)
    with pytest.raises(ValueError, match="DP-SGD's noise wakes units"):
        LocalPlan(objective=FedMaObjective(start_width=0.5), privacy=Privacy())
