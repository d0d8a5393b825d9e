"""WGAN-GP's penalty by hand, and the pair of networks that travels."""

import torch
from torch import nn

from contract.nn.codec import state_arrays
from contract.nn.wgan import build_pair, gradient_penalty
from contract.recipes.parts import GeneratorFedGan
from contract.wire.federations import Task

TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2]}})


class Plane(nn.Module):
    """a(x) = 3 x_0 + 4 x_1: its gradient has length 5 everywhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 3 * x[:, 0] + 4 * x[:, 1]


def test_penalty_by_hand() -> None:
    """(5 - 1)^2 = 16."""
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(0))
    assert gradient_penalty(Plane(), x, -x, torch.full((7,), 0.3)).item() == 16.0


def test_the_pair_names_both_networks_and_maps_noise_to_scores() -> None:
    plan = GeneratorFedGan(options={"latent": 3, "hidden": [4]}, critic_options={"hidden": [4]})
    both = build_pair(plan, TASK)
    assert {name.partition(".")[0] for name in state_arrays(both.state_dict())} == {"generator", "critic"}
    assert both["critic"](both["generator"](torch.zeros(5, 3))).shape == (5,)
