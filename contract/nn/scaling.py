"""How images meet a generator: scaled to [-1, 1] by the range of the unlabelled server set, and mirrored if asked."""

import torch
from torch import Tensor


def to_signed_unit(x: Tensor, input_range: tuple[float, float]) -> Tensor:
    """Map values from [lo, hi] to [-1, 1] (FedGO E.2: images scaled to the tanh's range); outside is not clipped.

    Raises:
        ValueError: hi is not above lo.
    """
    low, high = input_range
    if not high > low:
        raise ValueError(f"input_range [{low}, {high}]: the upper end must be above the lower one")
    return (x - low) * (2.0 / (high - low)) - 1.0


def from_signed_unit(x: Tensor, input_range: tuple[float, float]) -> Tensor:
    """Map values from [-1, 1] to [lo, hi]: a generator's samples as data are."""
    low, high = input_range
    return (x + 1) * ((high - low) / 2) + low


def mirrored(images: Tensor, draw: torch.Generator) -> Tensor:
    """Mirror each image [*, W] of [B, *, W] left to right with probability 1/2; `draw` is of the CPU."""
    chosen = torch.rand(len(images), generator=draw).lt(0.5).to(images.device)
    return torch.where(chosen.view(-1, *[1] * (images.ndim - 1)), images.flip(-1), images)
