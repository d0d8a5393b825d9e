"""Networks as chains of layers whose units may change places: what matching needs to know of one, without torch.

In a chain each layer reads the layer before it and nothing else, every unit (neuron, channel, hidden state) goes
through a function of its own value alone, and no tensor outside the chain belongs to a unit. Then the units of any
layer but the last can be put into another order, with the columns of the next layer, and the network's function is the
same (Wang et al. 2020, "Federated Learning with Matched Averaging", section 2).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.architecture_options import ClassifierOptions, LstmOptions, MlpOptions, Vgg9Options, VggOptions
from contract.architectures import find

COMMON_WIDTH = 128
"""Width of the shared head (Fed-ET 4: "small MLP with dimension 128")."""

Stages = Sequence[Sequence[int]]
"""Channels of each convolution; a 2x2 max-pooling ends every stage."""
VGG_STAGES: dict[str, Stages] = {
    "vgg-9": ((32, 64), (128, 128), (256, 256)),
    "vgg-11": ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    "vgg-16": ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
    "vgg-19": ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4),
}


@dataclass(frozen=True)
class View:
    """Where the units are in a tensor, seen with axes that it need not have of its own.

    Attributes:
        shape: the tensor's values in C order, seen with these edges.
        units: axis of the layer's own units.
        inputs: axis of the units of the layer before; None where it reads none, as a bias does and the first layer.
        recurrent: axis of the layer's own units at the step before, in an LSTM.
    """

    shape: tuple[int, ...]
    units: int
    inputs: int | None = None
    recurrent: int | None = None


@dataclass(frozen=True)
class Layer:
    """One layer: its number of units, and its tensors' views by name."""

    units: int
    tensors: Mapping[str, View]


@dataclass(frozen=True)
class Chain:
    """A network's layers from the input on; the units of the last one are the classes, which keep their order."""

    layers: tuple[Layer, ...]

    def fused_in(self, round_index: int) -> int:
        """Return the layer that a round fuses, 0 for the first: one a round, from the input on, then again.

        Those before it are as the rounds before left them (Wang et al. 2020, Alg. 1).
        """
        return round_index % len(self.layers)

    def frozen_in(self, round_index: int) -> tuple[str, ...]:
        """Return the names of the tensors that clients leave as they are sent in a round."""
        return tuple(name for layer in self.layers[: self.fused_in(round_index)] for name in layer.tensors)

    def check(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Refuse a model that has other tensors than the chain.

        Raises:
            ValueError: naming the first.
        """
        own = {name: view for layer in self.layers for name, view in layer.tensors.items()}
        strange = next((name for name in (*shapes, *own) if (name in own) != (name in shapes)), None)
        if strange is not None:
            raise ValueError(f"tensor {strange!r} is not in both the network's chain of layers and the model")
        for name, view in own.items():
            if math.prod(shapes[name]) != math.prod(view.shape):
                raise ValueError(f"tensor {name!r} is {list(shapes[name])}, the chain of layers has {list(view.shape)}")


# ------------------------------------------------------------------------------------------------------ kinds of layers
class _Builder:
    """Layers added one by one, from `width` inputs on: values of a sample, or channels of an image."""

    def __init__(self, width: int) -> None:
        self.layers: list[Layer] = []
        self.width = width

    def _add(self, units: int, tensors: Mapping[str, View]) -> None:
        self.layers.append(Layer(units, tensors))
        self.width = units

    def linear(self, name: str, units: int, each: int = 1) -> None:
        """Add a layer with weight and bias; every unit before it makes `each` of the numbers that its units read."""
        axis = 1 if self.layers else None
        self._add(
            units, {f"{name}.weight": View((units, self.width, each), 0, axis), f"{name}.bias": View((units,), 0)}
        )

    def conv(self, name: str, units: int) -> None:
        """Add a 3x3 convolution."""
        self.linear(name, units, each=9)

    def embedding(self, name: str, units: int) -> None:
        """Add an embedding, whose units are its dimensions; the width before it is the number of words."""
        self._add(units, {f"{name}.weight": View((self.width, units), 1)})

    def lstm(self, name: str, number: int, units: int) -> None:
        """Add one layer of torch.nn.LSTM: the four gates of a hidden state are one unit."""
        self._add(
            units,
            {
                f"{name}.weight_ih_l{number}": View((4, units, self.width), 1, inputs=2),
                f"{name}.weight_hh_l{number}": View((4, units, units), 1, recurrent=2),
                f"{name}.bias_ih_l{number}": View((4, units), 1),
                f"{name}.bias_hh_l{number}": View((4, units), 1),
            },
        )

    def head(self, common: bool, classes: int) -> None:
        """Add the end of `contract.nn.classifier.Classifier`."""
        if common:
            self.linear("adapter", COMMON_WIDTH)
            self.linear("head.0", COMMON_WIDTH)
        self.linear("head.2" if common else "head", classes)


# --------------------------------------------------------------------------------------------------------- the networks
def _mlp(name: str, options: MlpOptions, shape: Sequence[int], classes: int) -> _Builder:
    built = _Builder(math.prod(shape))
    prefix = "backbone." if options.common_head else ""
    for number, units in enumerate(options.hidden):
        built.linear(f"{prefix}{2 * number + 1}", units)
    if options.common_head:
        built.head(True, classes)
    else:
        built.linear(str(2 * len(options.hidden) + 1), classes)
    return built


def after_convnet(edge: int) -> int:
    """Return the edge after three unpadded 3x3 convolutions, the first two of them pooled: 32 -> 4."""
    return ((edge - 2) // 2 - 2) // 2 - 2


def _convnet(name: str, options: ClassifierOptions, shape: Sequence[int], classes: int) -> _Builder:
    built = _Builder(shape[0])
    for number, units in ((0, 32), (3, 64), (6, 64)):
        built.conv(f"backbone.{number}", units)
    built.linear("backbone.9", 64, each=after_convnet(shape[1]) * after_convnet(shape[2]))
    built.head(options.common_head, classes)
    return built


def _vgg(name: str, options: VggOptions | Vgg9Options, shape: Sequence[int], classes: int) -> _Builder:
    if options.norm == "bn":
        raise _refusal(name, "its BatchNorm's running statistics belong to no unit's weights", "give it norm=none")
    built, number = _Builder(shape[0]), 0
    for stage in VGG_STAGES[name]:
        for units in stage:
            built.conv(f"backbone.{number}", units)
            number += 2  # the convolution and its ReLU
        number += 1  # the pooling
    if name == "vgg-9":
        built.linear(f"backbone.{number + 1}", 512, each=(shape[1] // 8) * (shape[2] // 8))
        built.linear(f"backbone.{number + 3}", 512)
    built.head(options.common_head, classes)
    return built


def _lstm(name: str, options: LstmOptions, shape: Sequence[int], classes: int) -> _Builder:
    built = _Builder(options.vocab_size)
    built.embedding("backbone.embedding", options.width)
    for number in range(options.layers):
        built.lstm("backbone.lstm", number, options.width)
    built.head(options.common_head, classes)
    return built


CHAINS: dict[str, Callable[[str, Any, Sequence[int], int], _Builder]] = {
    "mlp": _mlp,
    "convnet": _convnet,
    **dict.fromkeys(VGG_STAGES, _vgg),
    "lstm": _lstm,
}
"""name -> function(name, options, shape of a sample, classes)."""

_RESIDUAL = "its residual connections tie the channels of several layers to one order"
NO_CHAIN: dict[str, str] = {
    "cnn-digits": "its BatchNorm's running statistics belong to no unit's weights",
    **dict.fromkeys(("resnet", "wrn"), _RESIDUAL),
    "mobilenet": f"its depthwise convolutions read one channel each, and {_RESIDUAL}",
    "shufflenet": "its channels are split and shuffled, which gives each a fixed place",
    "transformer": f"its attention heads have fixed places, and {_RESIDUAL}",
    "custom": "the service knows its tensors and not how its layers follow one another",
}
"""Start of a name -> why the network is no chain."""


def _refusal(name: str, why: str, remedy: str) -> ValueError:
    return ValueError(f"the layers of {name!r} cannot be matched: {why}; {remedy}")


def chain(name: str, options: Mapping[str, Any], shape: Sequence[int], classes: int) -> Chain:
    """Return a classifier's chain of layers.

    Args:
        name: of the architecture.
        options: of the architecture, checked here.
        shape: of one sample, without the batch: [values], [C, H, W] or [tokens].
        classes: C, units of the last layer.

    Raises:
        ValueError: no such classifier, options that do not fit it, or a network that is no chain, with the remedy.
    """
    entry = find(name, "classifier")
    checked = entry.read(options)
    if getattr(checked, "projection", None) is not None:
        raise _refusal(name, "a projection head is no layer of the chain", "leave out its option projection")
    build = CHAINS.get(name)
    if build is None:
        why = next((text for start, text in NO_CHAIN.items() if name.startswith(start)), NO_CHAIN["custom"])
        known = ", ".join(sorted(CHAINS))
        raise _refusal(name, why, f"take one of {known} (the VGGs with norm=none), or another rule to fuse by")
    return Chain(tuple(build(name, checked, shape, classes).layers))
