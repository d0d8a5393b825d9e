"""WGAN-GP's penalty by hand, and the pair of networks that travels."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from contract.architectures import CATALOGUE
from contract.errors import RuleError
from contract.local import Adam
from contract.nn import registry
from contract.nn.codec import state_arrays
from contract.nn.wgan import Training, build_pair, check_critic, gradient_penalty
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


CRITICS = [
    (entry.name, {"norm": norm} if norm else {})
    for entry in CATALOGUE.values()
    if entry.role == "discriminator"
    for norm in entry.options.model_json_schema()["properties"].get("norm", {}).get("enum", [""])
]


@pytest.mark.parametrize(("name", "options"), CRITICS)
def test_the_catalogue_knows_which_critics_have_batch_norm(name: str, options: dict[str, Any]) -> None:
    """It has no torch; the network is looked at where it is trained."""
    shape = [1, 8, 8] if name == "disc-cnn-digits" else [3, 32, 32]
    task = Task.model_validate({"num_classes": 2, "input": {"shape": shape}})
    critic = registry.build(name, options, task=task)
    try:
        check_critic(critic)
    except RuleError as error:
        assert "BatchNorm" in error.detail and error.code == "bad_option"
        with pytest.raises(ValueError, match=r"cannot be a critic: its BatchNorm mixes .*norm=gn"):
            CATALOGUE[name].check_per_sample(options, "be a critic")
    else:
        CATALOGUE[name].check_per_sample(options, "be a critic")
    real, fake = torch.randn(4, *shape), torch.randn(4, *shape)
    critic.train()
    whole = gradient_penalty(critic, real, fake, torch.full((4,), 0.3))
    each = [gradient_penalty(critic, real[i : i + 1], fake[i : i + 1], torch.full((1,), 0.3)) for i in range(4)]
    apart = torch.isclose(whole, torch.stack(each).mean(), rtol=1e-4, atol=1e-6)
    assert bool(apart) == (options.get("norm") != "bn"), "the penalty is a mean over samples just where there is none"


def test_a_networks_own_batch_norm_is_refused_by_name() -> None:
    """One of a package, say, of which the catalogue cannot tell."""
    generator = nn.Linear(3, 2)
    generator.latent = 3  # type: ignore[assignment]
    for norm, expected in (
        (nn.BatchNorm1d(4), pytest.raises(RuleError, match="layer '1'")),
        (nn.ReLU(), nullcontext()),
    ):
        critic = nn.Sequential(nn.Linear(2, 4), norm, nn.Linear(4, 1), nn.Flatten(0))
        with expected:
            Training(generator, critic, optimizer=Adam(), penalty=10.0, seed=0, device="cpu")
