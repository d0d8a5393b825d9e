"""FedGO's client discriminators (E.2; algorithms 6.3, A14): `disc-cnn-4` and `disc-cnn-mlp`.

Table 14 counts 662,528 and 142,336 weights; both counts come out without biases and without BatchNorm's own.
"""

from torch import nn

from contract.architecture_options import DiscCnnOptions
from contract.nn.inputs import image_shape
from contract.nn.layers import Score, norm2d
from contract.nn.registry import architecture
from contract.wire.federations import Task


def _down(before: int, after: int, options: DiscCnnOptions | None = None) -> list[nn.Module]:
    """Return a 4x4 convolution that halves the image, the options' norm if any, and LeakyReLU."""
    layers: list[nn.Module] = [nn.Conv2d(before, after, 4, stride=2, padding=1, bias=False)]
    norm = [] if options is None else norm2d(options.norm, after, options.groups)
    return [*layers, *norm, nn.LeakyReLU(0.2)]


def _drawn(network: nn.Module) -> nn.Module:
    """Draw convolutions and linear layers from N(0, 0.02)."""
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(layer.weight, std=0.02)
    return network


@architecture("disc-cnn-4")
def build_disc_cnn_4(options: DiscCnnOptions, task: Task) -> nn.Module:
    """[B, c, 32, 32] -> scores a [B] or probabilities [B].

    Raises:
        ValueError: another size of image.
    """
    channels, height, width = image_shape("disc-cnn-4", task)
    if (height, width) != (32, 32):
        raise ValueError(
            f"architecture 'disc-cnn-4' reads 32x32 images; task.input.shape is {task.input.shape}. "
            "Choose 'disc-cnn-mlp' or 'disc-resnet-8' for other sizes"
        )
    body = [*_down(channels, 64), *_down(64, 128, options), *_down(128, 256, options)]
    # [B, 256, 4, 4] -> [B, 1, 1, 1]: one score, where stride 2 of the file that the paper cites would give four.
    return _drawn(nn.Sequential(*body, nn.Conv2d(256, 1, 4, bias=False), nn.Flatten(), Score(options.output)))


@architecture("disc-cnn-mlp")
def build_disc_cnn_mlp(options: DiscCnnOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> scores a [B] or probabilities [B]."""
    channels, height, width = image_shape("disc-cnn-mlp", task, least=4)
    body = [*_down(channels, 64), *_down(64, 128, options), nn.Flatten()]
    return _drawn(
        nn.Sequential(*body, nn.Linear(128 * (height // 4) * (width // 4), 1, bias=False), Score(options.output))
    )
