"""Generators: `gen-mlp`."""

import math

from torch import Tensor, nn

from contract.architectures import GeneratorMlpOptions
from contract.nn.architectures.mlp import require_float_input, stack
from contract.nn.registry import architecture
from contract.wire.federations import Task


class GeneratorMlp(nn.Module):
    """Noise z [B, latent] -> [B, *input] in [-1, 1].

    Attributes:
        latent: size of the noise vector.
    """

    def __init__(self, latent: int, hidden: tuple[int, ...], shape: tuple[int, ...]):
        super().__init__()
        self.latent = latent
        self.layers = nn.Sequential(*stack([latent, *hidden, math.prod(shape)]), nn.Tanh(), nn.Unflatten(1, shape))

    def forward(self, z: Tensor) -> Tensor:
        """Return one image per row of z."""
        return self.layers(z)  # type: ignore[no-any-return]


@architecture("gen-mlp")
def build_gen_mlp(options: GeneratorMlpOptions, task: Task) -> nn.Module:
    """z [B, latent] -> [B, *input] in [-1, 1]."""
    require_float_input("gen-mlp", task)
    return GeneratorMlp(options.latent, options.hidden, tuple(task.input.shape))
