"""VGG for small images (Simonyan & Zisserman 2015), with or without BatchNorm and without dropout.

`vgg-9`: FedMA's, which FedDF takes over: six convolutions and two hidden linear layers of 512.
`vgg-11|16|19`: configurations A, D and E, all five poolings, then one linear layer (kuangliu's pytorch-cifar).
"""

from torch import nn

from contract.architecture_options import Vgg9Options, VggOptions
from contract.chains import VGG_STAGES, Stages
from contract.nn.classifier import Classifier
from contract.nn.inputs import image_shape
from contract.nn.layers import GlobalMean, he_init, norm2d
from contract.nn.registry import architecture
from contract.wire.federations import Task


def _convolutions(channels: int, stages: Stages, norm: str) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for stage in stages:
        for width in stage:
            layers += [nn.Conv2d(channels, width, 3, padding=1), *norm2d(norm, width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return layers


@architecture("vgg-9")
def build_vgg_9(options: Vgg9Options, task: Task) -> nn.Module:
    """[B, c, h, w] -> logits [B, C]."""
    channels, height, width = image_shape("vgg-9", task, least=8)
    size = 256 * (height // 8) * (width // 8)
    hidden = [nn.Flatten(), nn.Linear(size, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    backbone = nn.Sequential(*_convolutions(channels, VGG_STAGES["vgg-9"], options.norm), *hidden)
    he_init(backbone)
    return Classifier(backbone, 512, task.num_classes, common_head=options.common_head)


def _register(name: str, stages: Stages) -> None:
    @architecture(name)
    def build(options: VggOptions, task: Task) -> nn.Module:
        """[B, c, h, w] -> logits [B, C]."""
        channels, _, _ = image_shape(name, task, least=32)
        backbone = nn.Sequential(*_convolutions(channels, stages, options.norm), GlobalMean())
        he_init(backbone)
        return Classifier(backbone, 512, task.num_classes, common_head=options.common_head)


for _name, _stages in VGG_STAGES.items():
    if _name != "vgg-9":
        _register(_name, _stages)
