"""Operations by hand: a matrix product of [B, i] and [i, o] is 2 B i o of them, and so is each of its two gradients."""

import pytest
import torch
from torch import nn

from contract.wire.federations import Task
from worker.parts.flops import Effort, effort_of, forward_flops, measure, plus, training_flops

VECTORS = Task.model_validate({"num_classes": 3, "input": {"shape": [5]}})
IMAGES = Task.model_validate({"num_classes": 10, "input": {"shape": [3, 32, 32]}})
FAMILIES = (
    "mlp", "cnn-digits", "convnet", "resnet-8", "vgg-9", "mobilenet-v2", "transformer-tiny", "disc-mlp",
    "disc-resnet-8", "gen-mlp", "gen-dcgan",
)  # fmt: skip
TEXTS = Task.model_validate({"num_classes": 10, "input": {"shape": [16], "dtype": "int64"}})


def test_a_tiny_mlp() -> None:
    """5 - 4 - 3: 2 (5*4 + 4*3) = 64 forward; back, the weights' gradients cost as much, and that of the hidden layer
    2*4*3 = 24; the inputs' is not wanted. 64 + 64 + 24 = 152. Parameters: 5*4 + 4 + 4*3 + 3 = 39.
    """
    assert effort_of("mlp", {"hidden": [4]}, VECTORS) == Effort(parameters=39, forward=64, training=152)
    assert forward_flops("mlp", {"hidden": [4]}, VECTORS, 10) == 640
    assert training_flops("mlp", {"hidden": [4]}, VECTORS, 10) == 1520


def test_of_what_is_frozen_no_gradient_is_counted() -> None:
    """The last layer alone: 64 forward, its weights' gradient 2*4*3 = 24; the hidden layer's is not wanted."""
    moving = frozenset({"3.weight", "3.bias"})
    assert effort_of("mlp", {"hidden": [4]}, VECTORS, moving) == Effort(parameters=15, forward=64, training=88)
    assert training_flops("mlp", {"hidden": [4]}, VECTORS, 10, moving) == 880


def test_what_papers_count() -> None:
    """FedGO: 844.4 million of its generator, 17.6 million multiplications of its discriminator (Tables 14 to 17)."""
    generator, discriminator = effort_of("gen-resnet", {}, IMAGES), effort_of("disc-cnn-4", {}, IMAGES)
    assert generator is not None
    assert discriminator is not None
    assert generator.forward == pytest.approx(844.4e6, rel=1e-4)
    assert discriminator.forward == 2 * 17_567_744


def test_an_lstm() -> None:
    """16 tokens through one layer of width 128: 4 gates of 128 from 128 + 128 each; then 128 to 10."""
    effort = effort_of("lstm", {}, TEXTS)
    assert effort is not None
    assert effort.forward == 2 * (16 * 4 * 128 * 256 + 128 * 10)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_gradients_of_a_grouped_convolution_cost_as_much_as_it(groups: int) -> None:
    """8 to 8 channels, 3x3, 4x4 pixels out: 2 * 8 * (8 / groups) * 9 * 16; two such layers, of which the first one's
    inputs want no gradient: five times that.
    """
    layers = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False) for _ in range(2)))
    one = 2 * 8 * (8 // groups) * 9 * 16
    assert measure(layers, lambda: torch.ones(3, 8, 4, 4)) == Effort(2 * 8 * (8 // groups) * 9, 2 * one, 5 * one)


@pytest.mark.parametrize("name", FAMILIES)
def test_training_costs_two_to_three_times_as_much_as_a_look(name: str) -> None:
    effort = effort_of(name, {}, IMAGES) or effort_of(name, {}, TEXTS)
    assert effort is not None
    assert effort.forward is not None
    assert effort.training is not None
    assert 2 * effort.forward < effort.training <= 3 * effort.forward


def test_it_draws_nothing_and_changes_nothing() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert effort_of("convnet", {}, IMAGES) is not None
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.backends.mkldnn.enabled


def test_what_cannot_be_counted_is_not_known() -> None:
    assert effort_of("custom", {}, VECTORS) is None
    assert forward_flops("custom", {}, VECTORS, 10) is None
    assert training_flops("custom", {}, VECTORS, 10) is None
    assert plus(3, None) is None
    assert plus(3, 4) == 7


def test_a_network_whose_passes_cannot_be_counted_has_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.parts.flops.measure", _no)
    assert effort_of("mlp", {"hidden": [6]}, VECTORS) == Effort(parameters=5 * 6 + 6 + 6 * 3 + 3)


def _no(*_: object) -> None:
    raise RuntimeError("no")
