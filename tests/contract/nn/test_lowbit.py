"""One-bit weights: the training layer and the wire's rule give the same numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from contract import lowbit as wire
from contract.nn import codec, registry
from contract.nn.lowbit import BinaryConv2d, binarized, straight_through
from contract.updates import binary_weights
from contract.wire.federations import Task

VECTORS = Path(__file__).parents[2] / "golden" / "vectors"


@pytest.mark.parametrize("name", ["binarize.conv", "binarize.linear"])
def test_the_golden_vectors(name: str) -> None:
    vector = json.loads((VECTORS / f"{name}.json").read_text())
    got = binarized(torch.tensor(vector["inputs"]["w"], dtype=torch.float64))
    torch.testing.assert_close(got, torch.tensor(vector["expected"]["binary"], dtype=torch.float64))


@pytest.mark.parametrize("shape", [(4, 3, 3, 3), (5, 7), (2, 1, 1, 1)])
def test_it_agrees_with_the_wire_s_rule(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    weight.view(-1)[0] = 0.0
    expected = wire.binarize(weight.numpy()).binary
    np.testing.assert_allclose(binarized(weight).numpy(), expected, rtol=1e-6)


def test_worked_example() -> None:
    """Row 1: mean(|1|, |-3|) = 2; row 2: mean(0, 4) = 2 with sign(0) = +1."""
    assert binarized(torch.tensor([[1.0, -3.0], [0.0, 4.0]])).tolist() == [[2.0, -2.0], [2.0, 2.0]]


def test_the_gradient_passes_straight_through() -> None:
    weight = torch.tensor([[1.0, -3.0], [0.0, 4.0]], requires_grad=True)
    factors = torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    (straight_through(weight) * factors).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == factors.tolist()


def test_a_layer_convolves_with_the_binary_weight_and_keeps_its_own() -> None:
    layer = BinaryConv2d(3, 4, 3, stride=2, padding=1)
    before = layer.weight.detach().clone()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    plain = nn.Conv2d(3, 4, 3, stride=2, padding=1)
    plain.load_state_dict(layer.state_dict() | {"weight": binarized(before)})
    assert torch.equal(layer(x), plain(x))
    assert torch.equal(layer.weight, before)


def test_resnet_8_bin_keeps_its_ends_in_full_precision() -> None:
    task = Task.model_validate({"num_classes": 5, "input": {"shape": [3, 8, 8]}})
    module = registry.build("resnet-8-bin", {}, task=task)
    plain = [name for name, layer in module.named_modules() if type(layer) is nn.Conv2d]
    binary = [name for name, layer in module.named_modules() if isinstance(layer, BinaryConv2d)]
    assert plain == ["backbone.0.0"]
    assert len(binary) == 8  # two in each of three blocks and two projections
    assert type(module.head) is nn.Linear
    assert list(module.state_dict()) == list(registry.build("resnet-8", {}, task=task).state_dict())


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", ["mlp", "cnn-digits", "resnet-8", "vgg-9"])
def test_the_first_layer_and_the_head_are_never_sent_as_bits(name: str, shared: bool) -> None:
    """A common head has two layers and an adapter before it; all other weights of the network become bits."""
    task = Task.model_validate({"num_classes": 5, "input": {"shape": [3, 32, 32]}})
    options = {"hidden": [6, 7]} if name == "mlp" else {}
    module = registry.build(name, {**options, "common_head": shared}, task=task)
    base = codec.manifest(module)
    weights = [each for each in base.tensors if each not in base.buffers and len(base.tensors[each].shape) >= 2]
    if shared:
        ends = {weights[0], "adapter.weight", "head.0.weight", "head.2.weight"}
        assert ends <= set(weights)
    else:
        ends = {weights[0], weights[-1]}
    assert set(binary_weights(base)) == set(weights) - ends
