"""Small convolutional networks for images such as 8x8 digits: `cnn-digits` and `disc-cnn-digits`."""

from torch import nn

from contract.architectures import CnnDigitsOptions
from contract.nn.architectures.mlp import Score, require_float_input
from contract.nn.registry import architecture
from contract.wire.federations import Task


def _image_shape(name: str, task: Task) -> tuple[int, int, int]:
    require_float_input(name, task)
    if len(task.input.shape) != 3:
        raise ValueError(
            f"architecture {name!r} reads images [channels, height, width]; task.input.shape is {task.input.shape}. "
            "Give three edges, such as [1, 8, 8], or choose an MLP"
        )
    channels, height, width = task.input.shape
    return channels, height, width


def _halved(edge: int) -> int:
    """Edge of the image after a 3x3 convolution of stride 2 and padding 1."""
    return (edge - 1) // 2 + 1


def _body(options: CnnDigitsOptions, shape: tuple[int, int, int], *, norm: bool, out: int) -> list[nn.Module]:
    channels, height, width = shape
    layers: list[nn.Module] = []
    for width_out in options.widths:
        # A bias before BatchNorm would be taken away again; it is kept so that both nets have the same layers.
        layers.append(nn.Conv2d(channels, width_out, kernel_size=3, stride=2, padding=1))
        layers += [nn.BatchNorm2d(width_out)] if norm else []
        layers.append(nn.ReLU())
        channels, height, width = width_out, _halved(height), _halved(width)
    return [*layers, nn.Flatten(), nn.Linear(channels * height * width, out)]


@architecture("cnn-digits")
def build_cnn_digits(options: CnnDigitsOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> logits [B, C]."""
    return nn.Sequential(*_body(options, _image_shape("cnn-digits", task), norm=True, out=task.num_classes))


@architecture("disc-cnn-digits")
def build_disc_cnn_digits(options: CnnDigitsOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> scores a [B]; no BatchNorm, so that a score does not depend on the rest of its batch."""
    return nn.Sequential(*_body(options, _image_shape("disc-cnn-digits", task), norm=False, out=1), Score())
