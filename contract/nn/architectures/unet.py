"""A small U-Net for a class a pixel or voxel: `unet-small` (Ronneberger et al. 2015; Cicek et al. 2016 for volumes).

Halving by strided convolutions, not by max-pooling, whose backward pass on volumes is not deterministic on CUDA.
"""

import torch
from torch import Tensor, nn

from contract.architecture_options import UNetOptions
from contract.nn.inputs import require_float_input
from contract.nn.registry import architecture
from contract.wire.federations import Task

_CONVOLUTIONS = {2: (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d), 3: (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d)}


class _Block(nn.Sequential):
    """Two 3-wide convolutions, each with a norm and ReLU: [B, before, *edges] -> [B, after, *edges / stride]."""

    def __init__(self, before: int, after: int, axes: int, norm: str, stride: int = 1):
        convolution, _, batch_norm = _CONVOLUTIONS[axes]
        layers: list[nn.Module] = []
        for channels, step in ((before, stride), (after, 1)):
            layers.append(convolution(channels, after, 3, stride=step, padding=1))
            layers += [nn.GroupNorm(2, after)] if norm == "gn" else [batch_norm(after)] if norm == "bn" else []
            layers.append(nn.ReLU())
        super().__init__(*layers)


class UNet(nn.Module):
    """Down to a quarter of each edge and up again.

    Args:
        channels: of the input.
        classes: C.
        width: channels at full resolution, w.
        axes: of space, 2 or 3.
        norm: 'gn', 'bn' or 'none'.
    """

    def __init__(self, channels: int, classes: int, width: int, axes: int, norm: str):
        super().__init__()
        convolution, transposed, _ = _CONVOLUTIONS[axes]
        self.top = _Block(channels, width, axes, norm)
        self.middle = _Block(width, 2 * width, axes, norm, stride=2)
        self.bottom = _Block(2 * width, 4 * width, axes, norm, stride=2)
        self.up_middle = transposed(4 * width, 2 * width, 2, stride=2)
        self.join_middle = _Block(4 * width, 2 * width, axes, norm)
        self.up_top = transposed(2 * width, width, 2, stride=2)
        self.join_top = _Block(2 * width, width, axes, norm)
        self.head = convolution(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, C, *edges] of inputs [B, channels, *edges], edges being multiples of 4."""
        top = self.top(x)  # [B, w, *edges]
        middle = self.middle(top)  # [B, 2w, *edges / 2]
        bottom = self.bottom(middle)  # [B, 4w, *edges / 4]
        middle = self.join_middle(torch.cat([middle, self.up_middle(bottom)], dim=1))
        top = self.join_top(torch.cat([top, self.up_top(middle)], dim=1))
        return self.head(top)  # type: ignore[no-any-return]


@architecture("unet-small")
def build_unet_small(options: UNetOptions, task: Task) -> nn.Module:
    """[B, channels, *edges] -> logits [B, C, *edges]."""
    require_float_input("unet-small", task)
    channels, *edges = task.input.shape
    if len(edges) not in _CONVOLUTIONS or any(edge % 4 for edge in edges):
        raise ValueError(
            "architecture 'unet-small' reads images [C, H, W] or volumes [C, D, H, W] whose edges are multiples of 4; "
            f"task.input.shape is {task.input.shape}"
        )
    return UNet(channels, task.num_classes, options.width, len(edges), options.norm)
