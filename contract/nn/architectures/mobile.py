"""Networks for small devices, with the strides for 32x32 images: `mobilenet-v2` and `shufflenet-v2`."""

import torch
from torch import Tensor, nn

from contract.architecture_options import ClassifierOptions
from contract.nn.classifier import Classifier
from contract.nn.inputs import image_shape
from contract.nn.layers import GlobalMean, he_init
from contract.nn.registry import architecture
from contract.wire.federations import Task


def _normed(
    before: int, after: int, kernel: int, stride: int = 1, *, groups: int = 1, activation: type[nn.Module] | None = None
) -> list[nn.Module]:
    layers: list[nn.Module] = [
        nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after),
    ]
    return [*layers, activation()] if activation else layers


class InvertedResidual(nn.Module):
    """1x1 expansion, 3x3 depthwise, 1x1 linear projection; added to x where the shapes agree (MobileNetV2, fig. 4)."""

    def __init__(self, before: int, after: int, expansion: int, stride: int):
        super().__init__()
        inner = before * expansion
        widen = _normed(before, inner, 1, activation=nn.ReLU6) if expansion != 1 else []
        depthwise = _normed(inner, inner, 3, stride, groups=inner, activation=nn.ReLU6)
        self.body = nn.Sequential(*widen, *depthwise, *_normed(inner, after, 1))
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """[B, before, h, w] -> [B, after, h / stride, w / stride]."""
        return x + self.body(x) if self.adds else self.body(x)  # type: ignore[no-any-return]


# Table 2 of Sandler et al. 2018: expansion t, channels c, repeats n, stride s; the stem and the first s = 2 are 1 here.
_MOBILE = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


@architecture("mobilenet-v2")
def build_mobilenet_v2(options: ClassifierOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> logits [B, C]: Sandler et al. 2018, width 1."""
    channels, _, _ = image_shape("mobilenet-v2", task, least=8)
    layers = _normed(channels, 32, 3, activation=nn.ReLU6)
    before = 32
    for expansion, after, repeats, stride in _MOBILE:
        for position in range(repeats):
            layers.append(InvertedResidual(before, after, expansion, stride if position == 0 else 1))
            before = after
    backbone = nn.Sequential(*layers, *_normed(before, 1280, 1, activation=nn.ReLU6), GlobalMean())
    he_init(backbone)
    return Classifier(backbone, 1280, task.num_classes, common_head=options.common_head)


def _shuffled(left: Tensor, right: Tensor) -> Tensor:
    """Join two halves [B, c, h, w] so that their channels alternate."""
    return torch.stack((left, right), dim=2).flatten(1, 2)


class Shuffle(nn.Module):
    """Half of the channels pass, half go through 1x1, depthwise 3x3 and 1x1 (ShuffleNetV2, fig. 3c)."""

    def __init__(self, width: int):
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            *_normed(half, half, 1, activation=nn.ReLU),
            *_normed(half, half, 3, groups=half),
            *_normed(half, half, 1, activation=nn.ReLU),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, width, h, w] -> [B, width, h, w]."""
        kept, used = x.chunk(2, dim=1)
        return _shuffled(kept, self.body(used))


class ShuffleDown(nn.Module):
    """Both branches read all channels and halve the image (ShuffleNetV2, fig. 3d)."""

    def __init__(self, before: int, after: int):
        super().__init__()
        half = after // 2
        self.left = nn.Sequential(
            *_normed(before, before, 3, 2, groups=before), *_normed(before, half, 1, activation=nn.ReLU)
        )
        self.right = nn.Sequential(
            *_normed(before, half, 1, activation=nn.ReLU),
            *_normed(half, half, 3, 2, groups=half),
            *_normed(half, half, 1, activation=nn.ReLU),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, before, h, w] -> [B, after, h / 2, w / 2]."""
        return _shuffled(self.left(x), self.right(x))


@architecture("shufflenet-v2")
def build_shufflenet_v2(options: ClassifierOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> logits [B, C]: Ma et al. 2018, table 5 at 1x; the stem keeps the size, and no max-pooling."""
    channels, _, _ = image_shape("shufflenet-v2", task, least=8)
    layers = _normed(channels, 24, 3, activation=nn.ReLU)
    before = 24
    for after, repeats in ((116, 4), (232, 8), (464, 4)):
        layers += [ShuffleDown(before, after), *(Shuffle(after) for _ in range(repeats - 1))]
        before = after
    backbone = nn.Sequential(*layers, *_normed(before, 1024, 1, activation=nn.ReLU), GlobalMean())
    he_init(backbone)
    return Classifier(backbone, 1024, task.num_classes, common_head=options.common_head)
