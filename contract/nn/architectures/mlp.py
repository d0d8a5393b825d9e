"""Multi-layer perceptrons on the flattened input: `mlp` and `disc-mlp`."""

import math

from torch import nn

from contract.architecture_options import DiscMlpOptions, MlpOptions
from contract.nn.classifier import Classifier, SequentialClassifier
from contract.nn.inputs import require_float_input
from contract.nn.layers import Score, stack
from contract.nn.registry import architecture
from contract.wire.federations import Task


@architecture("mlp")
def build_mlp(options: MlpOptions, task: Task) -> nn.Module:
    """[B, *input] -> logits [B, C]."""
    require_float_input("mlp", task)
    sizes = [math.prod(task.input.shape), *options.hidden]
    if not options.common_head:
        return SequentialClassifier(nn.Flatten(), *stack([*sizes, task.num_classes]))
    activation = [nn.ReLU()] if options.hidden else []
    return Classifier(
        nn.Sequential(nn.Flatten(), *stack(sizes), *activation), sizes[-1], task.num_classes, common_head=True
    )


@architecture("disc-mlp")
def build_disc_mlp(options: DiscMlpOptions, task: Task) -> nn.Module:
    """[B, *input] -> scores a [B] or probabilities [B]."""
    require_float_input("disc-mlp", task)
    sizes = [math.prod(task.input.shape), *options.hidden, 1]
    return nn.Sequential(nn.Flatten(), *stack(sizes), Score(options.output))
