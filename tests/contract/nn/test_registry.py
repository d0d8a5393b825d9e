"""Every architecture of the catalogue, by being in it."""

from typing import Any

import pytest
import torch

from contract import architectures as catalogue
from contract.nn import registry
from contract.wire.federations import Task

RUNNABLE = sorted(name for name, entry in catalogue.CATALOGUE.items() if entry.server_side)
SHAPES = [[1, 8, 8], [3, 7, 5], [6]]


def task(shape: list[int], dtype: str = "float32") -> Task:
    return Task.model_validate({"num_classes": 5, "input": {"shape": shape, "dtype": dtype}})


def takes(name: str, shape: list[int]) -> bool:
    return "cnn" not in name or len(shape) == 3


def sample(name: str, shape: list[int]) -> torch.Tensor:
    role = catalogue.CATALOGUE[name].role
    return torch.randn(4, *([32] if role == "generator" else shape), generator=torch.Generator().manual_seed(0))


def test_the_registry_is_the_catalogue() -> None:
    assert registry.registered() == set(RUNNABLE)


CASES = [(name, shape) for name in RUNNABLE for shape in SHAPES if takes(name, shape)]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_shapes_and_gradients(name: str, shape: list[int]) -> None:
    module = registry.build(name, {}, task=task(shape))
    outputs = module(sample(name, shape))
    expected = {"classifier": (4, 5), "discriminator": (4,), "generator": (4, *shape)}
    assert tuple(outputs.shape) == expected[catalogue.CATALOGUE[name].role]
    outputs.square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    if catalogue.CATALOGUE[name].role == "generator":
        assert outputs.abs().max() <= 1


@pytest.mark.parametrize("name", RUNNABLE)
def test_initial_weights_come_from_the_seed_alone(name: str) -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first = registry.initialise(name, {}, task([1, 8, 8]), 3).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(8)
    again = registry.initialise(name, {}, task([1, 8, 8]), 3).state_dict()
    other = registry.initialise(name, {}, task([1, 8, 8]), 4).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_digits_network_is_the_one_that_is_described() -> None:
    module = registry.build("cnn-digits", {}, task=task([1, 8, 8]))
    kinds = [type(layer).__name__ for layer in module.children()]
    assert kinds == ["Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", "ReLU", "Flatten", "Linear"]
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items() if name.endswith("weight")}
    convolutions = {"0.weight": (16, 1, 3, 3), "3.weight": (32, 16, 3, 3)}
    assert shapes == convolutions | {"1.weight": (16,), "4.weight": (32,), "7.weight": (5, 128)}


def test_a_discriminator_scores_each_sample_by_itself() -> None:
    """Otherwise scores would depend on the batch they are computed in."""
    module = registry.build("disc-cnn-digits", {}, task=task([1, 8, 8]))
    inputs = sample("disc-cnn-digits", [1, 8, 8])
    torch.testing.assert_close(module(inputs)[:1], module(inputs[:1]))


@pytest.mark.parametrize(
    ("name", "options", "shape", "dtype", "message"),
    [
        ("resnet-900", {}, [1, 8, 8], "float32", "choose one of"),
        ("custom", {}, [1, 8, 8], "float32", "tensors only"),
        ("mlp", {}, [12], "int64", "token ids"),
        ("cnn-digits", {}, [64], "float32", "channels, height, width"),
        ("disc-cnn-digits", {}, [8, 8], "float32", "channels, height, width"),
        ("mlp", {"hiden": [3]}, [12], "float32", "hiden"),
        ("mlp", {"hidden": [0]}, [12], "float32", "hidden"),
    ],
)
def test_refusals_say_why(name: str, options: dict[str, Any], shape: list[int], dtype: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        registry.build(name, options, task=task(shape, dtype))


def test_a_name_has_one_builder() -> None:
    registry.registered()
    with pytest.raises(ValueError, match="already"):
        registry.architecture("mlp")(lambda options, task: torch.nn.Identity())
    with pytest.raises(ValueError, match="unknown"):
        registry.architecture("not-in-the-catalogue")(lambda options, task: torch.nn.Identity())


def test_no_hidden_layer_is_a_linear_classifier() -> None:
    module = registry.build("mlp", {"hidden": []}, task=task([6]))
    assert [tuple(p.shape) for p in module.parameters()] == [(5, 6), (5,)]
