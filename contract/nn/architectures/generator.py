"""Generators: `gen-mlp`, WGAN-GP's `gen-resnet` for CIFAR, and a small DCGAN, `gen-dcgan`."""

import math

from torch import Tensor, nn

from contract.architecture_options import GeneratorDcganOptions, GeneratorMlpOptions, GeneratorResNetOptions
from contract.nn.inputs import image_shape, require_float_input
from contract.nn.layers import stack
from contract.nn.registry import architecture
from contract.wire.federations import Task


class Generator(nn.Module):
    """Noise z [B, latent] -> [B, *input] in [-1, 1].

    Attributes:
        latent: size of the noise vector.
    """

    def __init__(self, latent: int, *layers: nn.Module):
        super().__init__()
        self.latent = latent
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> Tensor:
        """Return a sample [B, *input] for each row of z [B, latent]."""
        return self.layers(z)  # type: ignore[no-any-return]


@architecture("gen-mlp")
def build_gen_mlp(options: GeneratorMlpOptions, task: Task) -> nn.Module:
    """z [B, latent] -> [B, *input] in [-1, 1]."""
    require_float_input("gen-mlp", task)
    shape = tuple(task.input.shape)
    layers = stack([options.latent, *options.hidden, math.prod(shape)])
    return Generator(options.latent, *layers, nn.Tanh(), nn.Unflatten(1, shape))


def _eighths(name: str, task: Task) -> tuple[int, int, int]:
    """Return the channels, and the height and width that three doublings turn into the image's."""
    channels, height, width = image_shape(name, task)
    if height % 8 or width % 8:
        raise ValueError(
            f"architecture {name!r} makes images whose edges are multiples of 8; task.input.shape is "
            f"{task.input.shape}. Choose 'gen-mlp' for other sizes"
        )
    return channels, height // 8, width // 8


class Doubled(nn.Module):
    """Each pixel becomes 2x2; a reshape, because not all of interpolate's gradients are deterministic on CUDA."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, c, h, w] -> [B, c, 2h, 2w]."""
        batch, channels, height, width = x.shape
        doubled = x[:, :, :, None, :, None].expand(-1, -1, -1, 2, -1, 2)
        return doubled.reshape(batch, channels, 2 * height, 2 * width)


class UpBlock(nn.Module):
    """BN, ReLU, doubling, 3x3, BN, ReLU, 3x3; added to the doubled and projected input (Gulrajani et al. 2017, F)."""

    def __init__(self, width: int):
        super().__init__()
        first = (nn.BatchNorm2d(width), nn.ReLU(), Doubled(), nn.Conv2d(width, width, 3, padding=1))
        second = (nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        self.body = nn.Sequential(*first, *second)
        self.shortcut = nn.Sequential(Doubled(), nn.Conv2d(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        """[B, width, h, w] -> [B, width, 2h, 2w]."""
        return self.body(x) + self.shortcut(x)  # type: ignore[no-any-return]


def draw_resnet(network: nn.Module, kind: type[nn.Module] = UpBlock) -> None:
    """Draw 3x3 convolutions in bodies of blocks, a `kind`, for ReLU (He) and all else for linear maps (Glorot)."""
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    for block in network.modules():
        if isinstance(block, kind):
            for layer in block.get_submodule("body").children():
                if isinstance(layer, nn.Conv2d):
                    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")


@architecture("gen-resnet")
def build_gen_resnet(options: GeneratorResNetOptions, task: Task) -> nn.Module:
    """z [B, latent] -> [B, c, h, w] in [-1, 1]: WGAN-GP's CIFAR generator, 422 million multiplications at 32x32."""
    channels, height, width = _eighths("gen-resnet", task)
    base = (options.width, height, width)
    network = Generator(
        options.latent,
        nn.Linear(options.latent, math.prod(base)),
        nn.Unflatten(1, base),
        *(UpBlock(options.width) for _ in range(3)),
        *(nn.BatchNorm2d(options.width), nn.ReLU(), nn.Conv2d(options.width, channels, 3, padding=1), nn.Tanh()),
    )
    draw_resnet(network)
    return network


@architecture("gen-dcgan")
def build_gen_dcgan(options: GeneratorDcganOptions, task: Task) -> nn.Module:
    """z [B, latent] -> [B, c, h, w] in [-1, 1]: Radford et al. 2016 with three doublings, weights N(0, 0.02)."""
    channels, height, width = _eighths("gen-dcgan", task)
    layers: list[nn.Module] = [nn.Unflatten(1, (options.latent, 1, 1))]
    before = options.latent
    for number, factor in enumerate((4, 2, 1)):
        after = options.width * factor
        up = (
            nn.ConvTranspose2d(before, after, 4, stride=2, padding=1, bias=False)
            if number
            else nn.ConvTranspose2d(before, after, (height, width), bias=False)
        )
        layers += [up, nn.BatchNorm2d(after), nn.ReLU()]
        before = after
    layers += [nn.ConvTranspose2d(before, channels, 4, stride=2, padding=1), nn.Tanh()]
    network = Generator(options.latent, *layers)
    for layer in network.modules():
        if isinstance(layer, nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, std=0.02)
    return network
