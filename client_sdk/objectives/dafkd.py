"""DaFKD's losses of a discriminator and of the generator that it teaches, of raw scores."""

import torch
from torch import Tensor
from torch.nn import functional


def discriminator_loss(real: Tensor, fake: Tensor) -> Tensor:
    """Return BCE(D(x), 1) + BCE(D(G(z)), 0), each the mean over its batch, D = sigmoid(a).

    Args:
        real, fake: scores a [B].
    """
    return functional.softplus(-real).mean() + functional.softplus(fake).mean()


def generator_loss(fake: Tensor) -> Tensor:
    """Return BCE(D(G(z)), 1), the non-saturating loss, the mean over scores a [B]."""
    return functional.softplus(-fake).mean()


class Certainty(torch.nn.Module):
    """A discriminator's D = sigmoid(a) [B], on whose slope the authors' code puts the gradient penalty."""

    def __init__(self, scores: torch.nn.Module):
        super().__init__()
        self.scores = scores

    def forward(self, x: Tensor) -> Tensor:
        """Return D [B] of inputs [B, ...]."""
        return torch.sigmoid(self.scores(x))
