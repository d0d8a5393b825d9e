"""Networks by name: builders, shapes of the smallest families, refusals. Every name: test_catalogue.py."""

from typing import Any

import pytest
import torch

from contract import architectures as catalogue
from contract.nn import registry
from contract.wire.federations import Task

RUNNABLE = sorted(name for name, entry in catalogue.CATALOGUE.items() if entry.server_side)


def task(shape: list[int], dtype: str = "float32") -> Task:
    return Task.model_validate({"num_classes": 5, "input": {"shape": shape, "dtype": dtype}})


def sample(name: str, shape: list[int]) -> torch.Tensor:
    role = catalogue.CATALOGUE[name].role
    return torch.randn(4, *([32] if role == "generator" else shape), generator=torch.Generator().manual_seed(0))


def test_the_registry_is_the_catalogue() -> None:
    assert registry.registered() == set(RUNNABLE)


FLAT = [(name, shape) for name in ("mlp", "disc-mlp", "gen-mlp") for shape in ([1, 8, 8], [3, 7, 5], [6])]
IMAGES = [(name, shape) for name in ("cnn-digits", "disc-cnn-digits") for shape in ([1, 8, 8], [3, 7, 5])]


@pytest.mark.parametrize(("name", "shape"), FLAT + IMAGES)
def test_shapes_and_gradients(name: str, shape: list[int]) -> None:
    module = registry.build(name, {}, task=task(shape))
    outputs = module(sample(name, shape))
    expected = {"classifier": (4, 5), "discriminator": (4,), "generator": (4, *shape)}
    assert tuple(outputs.shape) == expected[catalogue.CATALOGUE[name].role]
    outputs.square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    if catalogue.CATALOGUE[name].role == "generator":
        assert outputs.abs().max() <= 1


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


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("mlp", ["1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"]),
        ("disc-mlp", ["1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"]),
        ("gen-mlp", [f"layers.{n}.{kind}" for n in (0, 2, 4) for kind in ("weight", "bias")]),
    ],
)
def test_first_published_tensors_keep_their_names(name: str, keys: list[str]) -> None:
    assert list(registry.build(name, {}, task=task([6])).state_dict()) == keys
