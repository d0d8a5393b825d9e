"""WGAN-GP's critic for CIFAR, `critic-resnet` (Gulrajani et al. 2017, App. F): scores are per sample."""

from torch import Tensor, nn

from contract.architecture_options import CriticResNetOptions
from contract.nn.architectures.generator import draw_resnet
from contract.nn.inputs import image_shape
from contract.nn.layers import GlobalMean, Score
from contract.nn.registry import architecture
from contract.wire.federations import Task


class Halved(nn.Module):
    """The mean of each 2x2 pixels; a reshape, as its counterpart in the generator."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, c, 2h, 2w] -> [B, c, h, w]."""
        batch, channels, height, width = x.shape
        return x.reshape(batch, channels, height // 2, 2, width // 2, 2).mean(dim=(3, 5))


def _layer_norm(options: CriticResNetOptions) -> list[nn.Module]:
    """Return LayerNorm over [c, h, w] with a scale and a shift per channel, as one group of all; or nothing."""
    return [nn.GroupNorm(1, options.width)] if options.norm == "ln" else []


class _Block(nn.Module):
    """The sum of a body and a shortcut, either of which may halve the image."""

    def __init__(self, body: list[nn.Module], shortcut: list[nn.Module]):
        super().__init__()
        self.body, self.shortcut = nn.Sequential(*body), nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        """[B, c, h, w] -> [B, width, h, w] or [B, width, h / 2, w / 2]."""
        return self.body(x) + self.shortcut(x)  # type: ignore[no-any-return]


def _first(channels: int, width: int) -> _Block:
    """3x3, ReLU, 3x3, halving; added to the halved and projected image, whose values no ReLU meets first."""
    body = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), Halved()]
    return _Block(body, [Halved(), nn.Conv2d(channels, width, 1)])


def _block(options: CriticResNetOptions, halves: bool) -> _Block:
    """Twice norm, ReLU, 3x3, and halving if so; added to the input, which is projected and halved then."""
    width, body = options.width, list[nn.Module]()
    for _ in range(2):
        body += [*_layer_norm(options), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    return _Block([*body, Halved()], [nn.Conv2d(width, width, 1), Halved()]) if halves else _Block(body, [])


@architecture("critic-resnet")
def build_critic_resnet(options: CriticResNetOptions, task: Task) -> nn.Module:
    """[B, c, h, w] -> scores [B] or probabilities [B]: four blocks, of which two halve the image, ReLU, mean, linear.

    Raises:
        ValueError: edges that cannot be halved twice.
    """
    channels, height, width = image_shape("critic-resnet", task)
    if height % 4 or width % 4:
        raise ValueError(
            f"architecture 'critic-resnet' halves images twice; task.input.shape is {task.input.shape}. "
            "Choose edges that are multiples of 4, or 'disc-mlp'"
        )
    blocks = [_first(channels, options.width), *(_block(options, halves) for halves in (True, False, False))]
    end = [nn.ReLU(), GlobalMean(), nn.Linear(options.width, 1), Score(options.output)]
    network = nn.Sequential(*blocks, *end)
    draw_resnet(network, _Block)
    return network
