"""Residual networks for small images.

`resnet-8|20|32|44|56`: He et al. 2016, 4.2: a 3x3 stem, three stages of 16, 32 and 64 channels, basic blocks at every
depth. Shortcuts are option B (1x1 convolution and norm where the shape changes), as in FedDF's code.
`resnet-18|34|50`: the ImageNet stages behind a 3x3 stem of stride 1 and no max-pooling (kuangliu's pytorch-cifar).
`resnet-8-bin`: resnet-8 with every convolution but the first binarised. `disc-resnet-8`: resnet-8 with one score.
`wrn-16-2`: Zagoruyko & Komodakis 2016, pre-activation blocks, no dropout.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from contract.architecture_options import DiscResNetOptions, ResNetOptions
from contract.nn.classifier import Classifier
from contract.nn.inputs import image_shape
from contract.nn.layers import GlobalMean, Score, he_init, norm2d
from contract.nn.lowbit import BinaryConv2d
from contract.nn.registry import architecture
from contract.wire.federations import Task


class Layers(NamedTuple):
    """What the blocks of one network are made of."""

    norm: str
    groups: int
    convolution: type[nn.Conv2d] = nn.Conv2d

    def conv(self, before: int, after: int, kernel: int, stride: int = 1) -> nn.Conv2d:
        """Return a convolution without bias that keeps the image's size at stride 1."""
        return self.convolution(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)

    def normed(self, before: int, after: int, kernel: int, stride: int = 1) -> list[nn.Module]:
        """Return a convolution and its norm."""
        return [self.conv(before, after, kernel, stride), *norm2d(self.norm, after, self.groups)]


class Block(nn.Module):
    """relu(body(x) + shortcut(x)); basic (two 3x3) or bottleneck (1x1, 3x3, 1x1 with four times the channels)."""

    def __init__(self, layers: Layers, before: int, width: int, stride: int, *, bottleneck: bool):
        super().__init__()
        self.width = width * 4 if bottleneck else width
        if bottleneck:
            body = [*layers.normed(before, width, 1), nn.ReLU(), *layers.normed(width, width, 3, stride), nn.ReLU()]
            body += layers.normed(width, self.width, 1)
        else:
            body = [*layers.normed(before, width, 3, stride), nn.ReLU(), *layers.normed(width, width, 3)]
        self.body = nn.Sequential(*body)
        changes = stride != 1 or before != self.width
        self.shortcut = nn.Sequential(*(layers.normed(before, self.width, 1, stride) if changes else []))

    def forward(self, x: Tensor) -> Tensor:
        """[B, before, h, w] -> [B, width, h / stride, w / stride]."""
        return F.relu(self.body(x) + self.shortcut(x))


class WideBlock(nn.Module):
    """Norm and ReLU before each of two 3x3 convolutions; the projection reads what the first pair has made."""

    def __init__(self, layers: Layers, before: int, width: int, stride: int):
        super().__init__()
        self.width = width
        self.first = nn.Sequential(*norm2d(layers.norm, before, layers.groups), nn.ReLU())
        self.body = nn.Sequential(
            *layers.normed(before, width, 3, stride),
            nn.ReLU(),
            layers.conv(width, width, 3),
        )
        self.shortcut = layers.conv(before, width, 1, stride) if stride != 1 or before != width else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, before, h, w] -> [B, width, h / stride, w / stride]."""
        active = self.first(x)
        return self.body(active) + (x if self.shortcut is None else self.shortcut(active))  # type: ignore[no-any-return]


MakeBlock = Callable[[int, int, int], Block | WideBlock]  # (channels before, width, stride)


def _stages(make: MakeBlock, before: int, widths: Sequence[int], counts: Sequence[int]) -> tuple[nn.Sequential, int]:
    """Return the stages, each but the first halving the image, and their number of channels."""
    stages = []
    for number, (width, count) in enumerate(zip(widths, counts, strict=True)):
        blocks = []
        for position in range(count):
            blocks.append(make(before, width, 2 if number > 0 and position == 0 else 1))
            before = blocks[-1].width
        stages.append(nn.Sequential(*blocks))
    return nn.Sequential(*stages), before


def _backbone(
    layers: Layers, channels: int, widths: Sequence[int], counts: Sequence[int], *, bottleneck: bool = False
) -> tuple[nn.Sequential, int]:
    """Return stem, stages and mean: [B, channels, h, w] -> [B, d], and d."""
    # The first convolution stays in full precision whatever the blocks are made of.
    stem = nn.Sequential(*layers._replace(convolution=nn.Conv2d).normed(channels, widths[0], 3), nn.ReLU())
    stages, size = _stages(
        lambda before, width, stride: Block(layers, before, width, stride, bottleneck=bottleneck),
        widths[0],
        widths,
        counts,
    )
    backbone = nn.Sequential(stem, *stages, GlobalMean())
    he_init(backbone)
    return backbone, size


def _cifar(name: str, layers: Layers, task: Task, depth: int) -> tuple[nn.Sequential, int]:
    channels, _, _ = image_shape(name, task, least=4)
    return _backbone(layers, channels, (16, 32, 64), [(depth - 2) // 6] * 3)


def _register_cifar(depth: int) -> None:
    name = f"resnet-{depth}"

    @architecture(name)
    def build(options: ResNetOptions, task: Task) -> nn.Module:
        """[B, c, h, w] -> logits [B, C]."""
        backbone, size = _cifar(name, Layers(options.norm, options.groups), task, depth)
        return Classifier(backbone, size, task.num_classes, common_head=options.common_head)


def _register_deep(depth: int, counts: Sequence[int], *, bottleneck: bool) -> None:
    name = f"resnet-{depth}"

    @architecture(name)
    def build(options: ResNetOptions, task: Task) -> nn.Module:
        """[B, c, h, w] -> logits [B, C]."""
        channels, _, _ = image_shape(name, task, least=8)
        layers = Layers(options.norm, options.groups)
        backbone, size = _backbone(layers, channels, (64, 128, 256, 512), counts, bottleneck=bottleneck)
        return Classifier(backbone, size, task.num_classes, common_head=options.common_head)


for _depth in (8, 20, 32, 44, 56):
    _register_cifar(_depth)
_register_deep(18, (2, 2, 2, 2), bottleneck=False)
_register_deep(34, (3, 4, 6, 3), bottleneck=False)
_register_deep(50, (3, 4, 6, 3), bottleneck=True)


@architecture("resnet-8-bin")
def build_resnet_8_bin(options: ResNetOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> logits [B, C]; first convolution, norms and linear layers in full precision."""
    backbone, size = _cifar("resnet-8-bin", Layers(options.norm, options.groups, BinaryConv2d), task, 8)
    return Classifier(backbone, size, task.num_classes, common_head=options.common_head)


@architecture("disc-resnet-8")
def build_disc_resnet_8(options: DiscResNetOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> scores a [B] or probabilities [B]."""
    backbone, size = _cifar("disc-resnet-8", Layers(options.norm, options.groups), task, 8)
    return nn.Sequential(backbone, nn.Linear(size, 1), Score(options.output))


@architecture("wrn-16-2")
def build_wrn_16_2(options: ResNetOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> logits [B, C]."""
    channels, _, _ = image_shape("wrn-16-2", task, least=4)
    layers = Layers(options.norm, options.groups)
    stages, size = _stages(
        lambda before, width, stride: WideBlock(layers, before, width, stride), 16, (32, 64, 128), (2, 2, 2)
    )
    last = [*norm2d(options.norm, size, options.groups), nn.ReLU(), GlobalMean()]
    backbone = nn.Sequential(layers.conv(channels, 16, 3), *stages, *last)
    he_init(backbone)
    return Classifier(backbone, size, task.num_classes, common_head=options.common_head)
