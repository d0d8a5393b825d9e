"""Layers that several families share. None of them draws random numbers after it is built: no dropout anywhere."""

from collections.abc import Sequence

from torch import Tensor, nn

from contract.architecture_options import Output


class Score(nn.Module):
    """The end of a discriminator: [B, 1] -> raw scores a [B], or probabilities sigmoid(a) [B]. It has no tensors."""

    def __init__(self, output: Output):
        super().__init__()
        self.output = output

    def forward(self, x: Tensor) -> Tensor:
        """Return x [B, 1] as [B]."""
        scores = x.squeeze(-1)
        return scores.sigmoid() if self.output == "probability" else scores


class GlobalMean(nn.Module):
    """Mean over the image: [B, c, h, w] -> [B, c].

    Not AdaptiveAvgPool2d, whose backward pass is not deterministic on CUDA.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean [B, c] of each channel of x [B, c, h, w]."""
        return x.mean(dim=(2, 3))


def stack(sizes: Sequence[int]) -> list[nn.Module]:
    """Return linear layers from size to size with a ReLU between any two."""
    layers: list[nn.Module] = []
    for before, after in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


def norm2d(kind: str, channels: int, groups: int = 2) -> list[nn.Module]:
    """Return BatchNorm ('bn'), GroupNorm ('gn') or nothing ('none') for [B, channels, h, w]."""
    if kind == "bn":
        return [nn.BatchNorm2d(channels)]
    return [nn.GroupNorm(groups, channels)] if kind == "gn" else []


def he_init(module: nn.Module) -> None:
    """Draw every convolution from N(0, 2 / fan_out) and zero its bias (He et al. 2015, eq. 14)."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
