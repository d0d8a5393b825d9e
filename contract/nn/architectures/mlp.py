"""Multi-layer perceptrons on the flattened input: `mlp` and `disc-mlp`."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from contract.architectures import MlpOptions
from contract.nn.registry import architecture
from contract.wire.federations import Task


def require_float_input(name: str, task: Task) -> None:
    """Refuse token ids, which a network that multiplies its input cannot read."""
    if task.input.dtype != "float32":
        raise ValueError(
            f"architecture {name!r} reads float32 input, not {task.input.dtype} token ids; "
            "set task.input.dtype to 'float32' or bring your own network (architecture 'custom')"
        )


def stack(sizes: Sequence[int]) -> list[nn.Module]:
    """Return linear layers from size to size with a ReLU between any two."""
    layers: list[nn.Module] = []
    for before, after in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


class Score(nn.Module):
    """Drops the last axis: [B, 1] -> [B]."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x [B, 1] as [B]."""
        return x.squeeze(-1)


@architecture("mlp")
def build_mlp(options: MlpOptions, task: Task) -> nn.Module:
    """[B, *input] -> logits [B, C]."""
    require_float_input("mlp", task)
    sizes = [math.prod(task.input.shape), *options.hidden, task.num_classes]
    return nn.Sequential(nn.Flatten(), *stack(sizes))


@architecture("disc-mlp")
def build_disc_mlp(options: MlpOptions, task: Task) -> nn.Module:
    """[B, *input] -> scores a [B]."""
    require_float_input("disc-mlp", task)
    sizes = [math.prod(task.input.shape), *options.hidden, 1]
    return nn.Sequential(nn.Flatten(), *stack(sizes), Score())
