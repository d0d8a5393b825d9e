"""One-bit weights in training: the forward pass sees alpha * sign(w), the gradient passes straight through to w.

The numbers are those of `contract.lowbit.binarize`, which packs them for the wire (FedDF 4.3; algorithms 2.5).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def binarized(weight: Tensor) -> Tensor:
    """Return alpha_o * sign(w) for a weight [out, ...], alpha_o = mean |w| over the filter and sign(0) = +1."""
    scale = weight.abs().flatten(1).mean(dim=1).reshape(-1, *[1] * (weight.ndim - 1))
    return torch.where(weight < 0, -scale, scale)


class _StraightThrough(torch.autograd.Function):
    """`binarized` forward, identity backward (XNOR-Net's estimator without its clipping)."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        return binarized(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


def straight_through(weight: Tensor) -> Tensor:
    """Return `binarized(weight)` [out, ...]; the gradient by `weight` is that by the result."""
    return _StraightThrough.apply(weight)  # type: ignore[no-any-return, no-untyped-call]


class BinaryConv2d(nn.Conv2d):
    """A convolution whose stored weight stays in full precision and is binarised whenever it is used."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x [B, c, h, w] with the binarised weight."""
        weight = straight_through(self.weight)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
