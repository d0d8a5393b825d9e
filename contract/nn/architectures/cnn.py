"""Plain convolutional networks: `cnn-digits` and `disc-cnn-digits` for 8x8 digits, FedBE's `convnet` for 32x32."""

from torch import nn

from contract.architecture_options import ClassifierOptions, CnnDigitsOptions, DiscCnnDigitsOptions, WidthsOptions
from contract.chains import after_convnet
from contract.nn.classifier import Classifier, SequentialClassifier
from contract.nn.inputs import image_shape
from contract.nn.layers import Score
from contract.nn.registry import architecture
from contract.wire.federations import Task


def _halved(edge: int) -> int:
    """Edge of the image after a 3x3 convolution of stride 2 and padding 1."""
    return (edge - 1) // 2 + 1


def _body(options: WidthsOptions, shape: tuple[int, int, int], *, norm: bool) -> tuple[list[nn.Module], int]:
    """Return layers [B, c, h, w] -> [B, d], and d."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for width_out in options.widths:
        # A bias before BatchNorm would be taken away again; it is kept so that both nets have the same layers.
        layers.append(nn.Conv2d(channels, width_out, kernel_size=3, stride=2, padding=1))
        layers += [nn.BatchNorm2d(width_out)] if norm else []
        layers.append(nn.ReLU())
        channels, height, width = width_out, _halved(height), _halved(width)
    return [*layers, nn.Flatten()], channels * height * width


@architecture("cnn-digits")
def build_cnn_digits(options: CnnDigitsOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> logits [B, C]."""
    layers, size = _body(options, image_shape("cnn-digits", task), norm=True)
    if options.common_head:
        return Classifier(nn.Sequential(*layers), size, task.num_classes, common_head=True)
    return SequentialClassifier(*layers, nn.Linear(size, task.num_classes))


@architecture("disc-cnn-digits")
def build_disc_cnn_digits(options: DiscCnnDigitsOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> scores a [B] or probabilities [B]; without BatchNorm, each depends on its sample alone."""
    layers, size = _body(options, image_shape("disc-cnn-digits", task), norm=False)
    return nn.Sequential(*layers, nn.Linear(size, 1), Score(options.output))


@architecture("convnet")
def build_convnet(options: ClassifierOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> logits [B, C]: FedBE's ConvNet (5.1; the TensorFlow tutorial's)."""
    channels, height, width = image_shape("convnet", task, least=18)
    backbone = nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(64 * after_convnet(height) * after_convnet(width), 64), nn.ReLU()),
    )
    return Classifier(backbone, 64, task.num_classes, common_head=options.common_head)
