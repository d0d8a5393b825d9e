"""A chain of layers says of a network what its module does."""

from typing import Any

import numpy as np
import pytest
import torch

from contract.architectures import CATALOGUE
from contract.chains import CHAINS, chain
from contract.nn import registry
from contract.wire.federations import Task
from tests.contract.permuted_networks import permuted

NETWORKS: list[tuple[str, dict[str, Any], list[int]]] = [
    ("mlp", {}, [3, 8, 8]),
    ("mlp", {"hidden": []}, [12]),
    ("mlp", {"hidden": [5, 7, 3], "common_head": True}, [12]),
    ("mlp", {"hidden": [], "common_head": True}, [12]),
    ("convnet", {}, [3, 32, 28]),
    ("vgg-9", {}, [1, 16, 8]),
    ("vgg-9", {"common_head": True}, [1, 8, 8]),
    ("vgg-11", {"norm": "none"}, [3, 32, 32]),
    ("vgg-16", {"norm": "none"}, [3, 32, 32]),
    ("vgg-19", {"norm": "none"}, [3, 32, 32]),
    ("lstm", {"vocab_size": 50, "width": 6}, [7]),
    ("lstm", {"vocab_size": 50, "width": 6, "layers": 3, "common_head": True}, [7]),
]


def build(name: str, options: dict[str, Any], shape: list[int]) -> torch.nn.Module:
    """Return the network with 5 classes, biases included away from zero."""
    spec = {"shape": shape, "dtype": "int64" if name == "lstm" else "float32"}
    module = registry.initialise(name, options, Task.model_validate({"num_classes": 5, "input": spec}), 3)
    draw = torch.Generator().manual_seed(4)
    for parameter in module.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, generator=draw)
    return module.eval()


def test_every_chain_is_tried() -> None:
    assert {name for name, _, _ in NETWORKS} == set(CHAINS)


@pytest.mark.parametrize(("name", "options", "shape"), NETWORKS)
def test_units_may_change_places(name: str, options: dict[str, Any], shape: list[int]) -> None:
    module, found = build(name, options, shape), chain(name, options, shape, 5)
    state = {key: value.numpy().copy() for key, value in module.state_dict().items()}
    found.check({key: value.shape for key, value in state.items()})
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randint(1, 50, (3, *shape), generator=draw) if name == "lstm" else torch.randn(3, *shape)
    with torch.no_grad():
        before = module(inputs)
        moved = permuted(found, state, 1)
        module.load_state_dict({key: torch.from_numpy(value) for key, value in moved.items()})
        after = module(inputs)
    if len(found.layers) > 1:
        first = next(iter(found.layers[0].tensors))
        assert not np.array_equal(moved[first], state[first])
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


def test_every_other_classifier_is_refused_with_its_name_and_a_remedy() -> None:
    for name, entry in CATALOGUE.items():
        if entry.role == "classifier" and name not in CHAINS:
            with pytest.raises(ValueError, match=rf"'{name}' cannot be matched: its .*|the service .*") as refused:
                chain(name, {}, [3, 32, 32], 5)
            assert "; take one of convnet, lstm, mlp, vgg-11" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet-8", "residual connections"),
        ("resnet-50", "residual connections"),
        ("wrn-16-2", "residual connections"),
        ("mobilenet-v2", "depthwise convolutions"),
        ("shufflenet-v2", "split and shuffled"),
        ("transformer-mini", "attention heads"),
        ("cnn-digits", "BatchNorm"),
        ("custom", "the service knows its tensors"),
    ],
)
def test_the_reason_is_the_networks_own(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        chain(name, {}, [3, 32, 32], 5)


def test_batchnorm_is_refused_with_the_option_that_takes_it_away() -> None:
    with pytest.raises(ValueError, match="'vgg-11' cannot be matched: its BatchNorm.*; give it norm=none"):
        chain("vgg-11", {}, [3, 32, 32], 5)


def test_a_discriminator_is_no_network_of_clients() -> None:
    with pytest.raises(ValueError, match="unknown classifier 'disc-mlp'"):
        chain("disc-mlp", {}, [12], 5)


def test_a_model_of_another_network_is_refused() -> None:
    found = chain("mlp", {"hidden": [4]}, [6], 5)
    shapes = {"1.weight": (4, 6), "1.bias": (4,), "3.weight": (5, 4), "3.bias": (5,)}
    found.check(shapes)
    with pytest.raises(ValueError, match=r"tensor '3.bias' is not in both"):
        found.check({name: shape for name, shape in shapes.items() if name != "3.bias"})
    with pytest.raises(ValueError, match=r"tensor 'scale' is not in both"):
        found.check(shapes | {"scale": (1,)})
    with pytest.raises(ValueError, match=r"tensor '1.weight' is \[4, 7\], the chain of layers has \[4, 6, 1\]"):
        found.check(shapes | {"1.weight": (4, 7)})


def test_a_round_fuses_one_layer_and_freezes_those_before_it() -> None:
    found = chain("mlp", {"hidden": [4, 3]}, [6], 5)
    assert [found.fused_in(index) for index in range(5)] == [0, 1, 2, 0, 1]
    assert found.frozen_in(0) == found.frozen_in(3) == ()
    assert found.frozen_in(2) == ("1.weight", "1.bias", "3.weight", "3.bias")
