"""The catalogue of published network architectures: names, roles and options. Building them needs torch: `contract.nn`.

The names and the tensors behind them are frozen once released: a change is a new name. Packages installed beside
potstill add rows of their own through the entry point group `potstill.architectures` (docs/architectures.md).
"""

import importlib.metadata
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import ValidationError
from pydantic_core import to_json

from contract import packages
from contract.architecture_options import (
    ClassifierOptions,
    CnnDigitsOptions,
    CriticResNetOptions,
    CustomOptions,
    DiscCnnDigitsOptions,
    DiscCnnOptions,
    DiscMlpOptions,
    DiscResNetOptions,
    DiscriminatorOptions,
    GeneratorDcganOptions,
    GeneratorMlpOptions,
    GeneratorResNetOptions,
    LstmOptions,
    MlpOptions,
    Options,
    Output,
    ResNetOptions,
    TransformerOptions,
    Vgg9Options,
    VggOptions,
)
from contract.bodies import stored
from contract.faults import faults_of
from contract.packages import PluginError

__all__ = [
    "CATALOGUE",
    "Catalogue",
    "ClassifierOptions",
    "DiscriminatorOptions",
    "ENTRY_POINTS",
    "Entry",
    "Options",
    "Output",
    "PluginError",
    "Reads",
    "Role",
    "find",
    "output_of",
]

Role = Literal["classifier", "discriminator", "generator"]
Reads = Literal["anything", "floats", "images", "tokens"]

_READS: dict[str, tuple[str, int]] = {"floats": ("float32", 0), "images": ("float32", 3), "tokens": ("int64", 1)}
ENTRY_POINTS = packages.ARCHITECTURES
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_BUILDER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class OptionsError(ValueError):
    """An option that does not fit its architecture.

    Attributes:
        option: which, with dots between the steps; empty for all of them.
        detail: what is wrong with it.
    """

    def __init__(self, option: str, detail: str):
        super().__init__(f"option {option!r}: {detail}" if option else detail)
        self.option, self.detail = option, detail


class Entry:
    """One row of the catalogue.

    Args:
        builder: "package.module:function" with function(options, task) -> torch.nn.Module; only rows of other packages
            have one, potstill's own are found by `contract.nn.registry`.
        server_side: whether the service can run the network.
        reads: what its samples are.
        batch_norm: whether it has BatchNorm whatever its options say.
        normalises: whether layers normalise, where neither of those tells; None where nobody knows.
        private: whether a device can train it by DP-SGD where it has no BatchNorm.
        edge: the one height and width of image that it reads or makes; None where others do too.
        multiple: what height and width must be multiples of.

    Raises:
        ValueError: a name, role or builder that is not of the form above.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        options: type[Options],
        summary: str,
        *,
        server_side: bool = True,
        builder: str | None = None,
        reads: Reads = "anything",
        batch_norm: bool = False,
        normalises: bool | None = None,
        private: bool = True,
        edge: int | None = None,
        multiple: int = 1,
    ):
        if not _NAME.fullmatch(name):
            raise ValueError(f"architecture name {name!r}: use lower-case letters, digits and . _ - (at most 100)")
        if role not in get_args(Role):
            raise ValueError(f"architecture {name!r}: role {role!r} is not one of {', '.join(get_args(Role))}")
        if builder is not None and not _BUILDER.fullmatch(builder):
            raise ValueError(f"architecture {name!r}: builder {builder!r} must read 'package.module:function'")
        self.name, self.role, self.options, self.summary, self.server_side = name, role, options, summary, server_side
        self.builder, self.reads, self.batch_norm, self.private = builder, reads, batch_norm, private
        self._edge, self._multiple = edge, multiple
        self._normalises = True if batch_norm else normalises

    def check_input(self, shape: list[int], dtype: str) -> None:
        """Refuse a task whose samples the network cannot read, as far as rank, type and strict sizes tell.

        Raises:
            ValueError: with the remedy.
        """
        if self.reads == "anything":
            return
        wanted, ranks = _READS[self.reads]
        if dtype != wanted or (ranks and len(shape) != ranks):
            form = {"floats": "float32 values", "images": "float32 images [C, H, W]", "tokens": "int64 token ids [L]"}
            raise ValueError(f"{self.name!r} reads {form[self.reads]}; the task's samples are {dtype} {shape}")
        if self.reads == "images":
            self._check_edges(shape)

    def _check_edges(self, shape: list[int]) -> None:
        if self._edge is not None and set(shape[1:]) != {self._edge}:
            form = f"of exactly {self._edge}x{self._edge}"
        elif any(edge % self._multiple for edge in shape[1:]):
            form = f"whose edges are multiples of {self._multiple}"
        else:
            return
        small = {"discriminator": "disc-cnn-mlp, disc-resnet-8 or disc-mlp", "generator": "gen-mlp"}.get(self.role)
        remedy = f"take {small}, or the recipe fedgo-small" if small else "take another network, or other images"
        raise ValueError(f"{self.name!r} is for images {form}; the task's samples are {shape}: {remedy}")

    def read(self, options: Mapping[str, Any]) -> Options:
        """Return options that were checked when they came, or that a program has at hand.

        Raises:
            ValueError: they do not fit the architecture.
        """
        return stored(self.options, options)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options that came as JSON and do not fit the architecture.

        Raises:
            OptionsError: the first of them.
        """
        try:
            self.options.model_validate_json(to_json(options))
        except ValidationError as error:
            raise OptionsError(*faults_of(error, options)[0]) from None

    def normalises(self, options: Mapping[str, Any]) -> bool | None:
        """Whether layers normalise, with these options; None where nobody knows."""
        norm = getattr(self.read(options), "norm", None)
        return self._normalises if norm is None else norm != "none"

    def check_private(self, options: Mapping[str, Any]) -> None:
        """Refuse a network whose samples have no gradients of their own, which DP-SGD clips one by one.

        Raises:
            ValueError: with the remedy.
        """
        self.check_per_sample(options, "be trained with local.privacy")
        if not self.private:
            why = "no sample's share in its gradient can be told"
            raise ValueError(f"{self.name!r} cannot be trained with local.privacy: {why}; take a transformer")

    def check_per_sample(self, options: Mapping[str, Any], purpose: str) -> None:
        """Refuse a network with BatchNorm, through which a sample's output depends on the others of its batch.

        Raises:
            ValueError: says what it is no good for, with the remedy.
        """
        if not self.batch_norm and getattr(self.read(options), "norm", None) != "bn":
            return
        choices = self.options.model_json_schema().get("properties", {}).get("norm", {}).get("enum", [])
        other = [choice for choice in choices if choice != "bn"]
        name = "disc-resnet-8" if self.role == "discriminator" else "resnet-8"
        remedy = f"give it the option norm={other[0]}" if other else f"take one without, such as {name} with norm=gn"
        raise ValueError(f"{self.name!r} cannot {purpose}: its BatchNorm mixes the samples of a batch; {remedy}")


def _load(point: importlib.metadata.EntryPoint) -> Entry:
    entry, where = packages.load(point), packages.where(point)
    if not isinstance(entry, Entry):
        raise PluginError(f"{where} must name an object of type contract.architectures.Entry, not {type(entry)!r}")
    if entry.builder is None and entry.server_side:
        raise PluginError(f"{where}: architecture {entry.name!r} needs builder='package.module:function'")
    return entry


class Catalogue(Mapping[str, Entry]):
    """Rows by name: potstill's own, then those of installed packages.

    Packages are asked at the first look, not at import, because they import this module for `Entry` and `Options`.

    Raises:
        PluginError: at the first look; a package's row cannot be loaded or its name is taken.
    """

    def __init__(self, own: Iterable[Entry]):
        self._own = tuple(own)
        self._rows: dict[str, Entry] | None = None
        self._lock = threading.RLock()

    def _read(self) -> dict[str, Entry]:
        with self._lock:
            if self._rows is None:
                self._rows = self._joined([_load(point) for point in packages.offers(ENTRY_POINTS)])
            return self._rows

    def _joined(self, loaded: list[Entry]) -> dict[str, Entry]:
        rows: dict[str, Entry] = {}
        for entry in (*self._own, *loaded):
            if entry.name in rows:
                raise PluginError(
                    f"architecture {entry.name!r} is in the catalogue twice; give the one of group "
                    f"{ENTRY_POINTS!r} another name"
                )
            rows[entry.name] = entry
        return rows

    def __getitem__(self, name: str) -> Entry:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


_DEPTHS = (8, 20, 32, 44, 56)
_ENTRIES = (
    Entry(
        "mlp",
        "classifier",
        MlpOptions,
        "multi-layer perceptron on the flattened input",
        reads="floats",
        normalises=False,
    ),
    Entry(
        "cnn-digits",
        "classifier",
        CnnDigitsOptions,
        "small convolutional net with BatchNorm for 8x8 images",
        reads="images",
        batch_norm=True,
    ),
    Entry(
        "convnet",
        "classifier",
        ClassifierOptions,
        "FedBE's ConvNet for 32x32: three convolutions, two linear layers",
        reads="images",
        normalises=False,
    ),
    *(
        Entry(f"resnet-{n}", "classifier", ResNetOptions, f"He et al.'s CIFAR ResNet of depth {n}", reads="images")
        for n in _DEPTHS
    ),
    *(
        Entry(
            f"resnet-{n}", "classifier", ResNetOptions, f"ResNet-{n} with a 3x3 stem for 32x32 images", reads="images"
        )
        for n in (18, 34, 50)
    ),
    Entry(
        "resnet-8-bin", "classifier", ResNetOptions, "resnet-8 trained with one-bit convolution weights", reads="images"
    ),
    Entry("wrn-16-2", "classifier", ResNetOptions, "Wide ResNet of depth 16 and width 2", reads="images"),
    Entry(
        "vgg-9",
        "classifier",
        Vgg9Options,
        "VGG-9 of FedMA and FedDF: six convolutions, three linear layers",
        reads="images",
    ),
    *(
        Entry(f"vgg-{n}", "classifier", VggOptions, f"VGG-{n} for 32x32 images with one linear layer", reads="images")
        for n in (11, 16, 19)
    ),
    *(
        Entry(name, "classifier", ClassifierOptions, summary, reads="images", batch_norm=True)
        for name, summary in (
            ("mobilenet-v2", "MobileNetV2 with the strides for 32x32 images"),
            ("shufflenet-v2", "ShuffleNetV2 1x with the stem for 32x32 images"),
        )
    ),
    Entry(
        "lstm",
        "classifier",
        LstmOptions,
        "LSTM over token ids, mean over the words",
        reads="tokens",
        private=False,
        normalises=False,
    ),
    *(
        Entry(f"transformer-{size}", "classifier", TransformerOptions, summary, reads="tokens", normalises=True)
        for size, summary in (
            ("tiny", "encoder of BERT-tiny's size: 2 layers, width 128, 2 heads"),
            ("mini", "encoder of BERT-mini's size: 4 layers, width 256, 4 heads"),
        )
    ),
    Entry("custom", "classifier", CustomOptions, "your own module; needs an initial model", server_side=False),
    Entry("disc-mlp", "discriminator", DiscMlpOptions, "multi-layer perceptron with one score", reads="floats"),
    Entry(
        "disc-cnn-digits",
        "discriminator",
        DiscCnnDigitsOptions,
        "cnn-digits without BatchNorm and with one score",
        reads="images",
    ),
    Entry("disc-cnn-4", "discriminator", DiscCnnOptions, "FedGO's four convolutions", reads="images", edge=32),
    Entry(
        "disc-cnn-mlp",
        "discriminator",
        DiscCnnOptions,
        "FedGO's small one: two convolutions and a linear layer",
        reads="images",
    ),
    Entry("disc-resnet-8", "discriminator", DiscResNetOptions, "resnet-8 with one score", reads="images"),
    Entry(
        "critic-resnet",
        "discriminator",
        CriticResNetOptions,
        "WGAN-GP's residual critic for CIFAR, without BatchNorm",
        reads="images",
        multiple=4,
    ),
    Entry("gen-mlp", "generator", GeneratorMlpOptions, "multi-layer perceptron from noise to an image", reads="floats"),
    *(
        Entry(name, "generator", options, summary, reads="images", multiple=8)
        for name, options, summary in (
            ("gen-resnet", GeneratorResNetOptions, "WGAN-GP's residual generator for CIFAR"),
            ("gen-dcgan", GeneratorDcganOptions, "small DCGAN of four transposed convolutions"),
        )
    ),
)
CATALOGUE: Mapping[str, Entry] = Catalogue(_ENTRIES)


def find(name: str, role: Role | None = None) -> Entry:
    """Return the catalogue's row for `name`.

    Raises:
        ValueError: no architecture of that name (and role); the message lists those there are.
    """
    entry = CATALOGUE.get(name)
    if entry is None or (role is not None and entry.role != role):
        known = ", ".join(sorted(e.name for e in CATALOGUE.values() if role is None or e.role == role))
        raise ValueError(f"unknown {role or 'architecture'} {name!r}; choose one of {known}")
    return entry


def output_of(name: str, options: Mapping[str, Any]) -> Output:
    """Return what a discriminator with these options ends in; a raw score where its row does not offer the choice.

    Raises:
        ValueError: no such discriminator, or options that do not fit it.
    """
    parsed = find(name, "discriminator").read(options)
    return parsed.output if isinstance(parsed, DiscriminatorOptions) else "score"
