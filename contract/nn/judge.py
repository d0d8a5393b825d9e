"""A discriminator that shares its trunk with a classifier (DaFKD): one more head on the classifier's features."""

from torch import Tensor, nn


def head_of(width: int) -> nn.Linear:
    """Return a discriminator's head: features [B, d] -> raw scores [B, 1]."""
    return nn.Linear(width, 1)


class Judge(nn.Module):
    """Inputs [B, *input] -> raw scores a [B]: the head on the classifier's features.

    Args:
        trunk: has `features(x)` [B, d].
        head: see `head_of`.
    """

    def __init__(self, trunk: nn.Module, head: nn.Module):
        super().__init__()
        self.trunk, self.head = trunk, head

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores [B] of inputs [B, *input]."""
        return self.of_features(self.trunk.features(x))  # type: ignore[operator]

    def of_features(self, features: Tensor) -> Tensor:
        """Return the scores [B] of features [B, d]."""
        scores: Tensor = self.head(features.float())
        return scores.squeeze(1)
