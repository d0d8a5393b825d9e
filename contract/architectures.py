"""The catalogue of published network architectures: names, roles and options. Building them needs torch: `contract.nn`.

The names and the tensors behind them are frozen once released: a change is a new name. Packages installed beside
potstill add rows of their own through the entry point group `potstill.architectures` (docs/architectures.md).
"""

import importlib.metadata
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from contract import packages
from contract.architecture_options import (
    CausalOptions,
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
    UNetOptions,
    Vgg9Options,
    VggOptions,
)
from contract.entries import Entry, GraphEntry, OptionsError, Reads, Role
from contract.networks.document import PREFIX
from contract.packages import PluginError
from contract.tasks import KINDS

__all__ = [
    "CATALOGUE",
    "Catalogue",
    "ClassifierOptions",
    "DiscriminatorOptions",
    "ENTRY_POINTS",
    "Entry",
    "Options",
    "OptionsError",
    "Output",
    "PluginError",
    "Reads",
    "Role",
    "find",
    "is_server_side",
    "output_of",
]

ENTRY_POINTS = packages.ARCHITECTURES


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
    Entry(
        "unet-small",
        "classifier",
        UNetOptions,
        "U-Net of three resolutions, for a class a pixel or voxel",
        reads="volumes",
        multiple=4,
        tasks=("dense",),
    ),
    Entry(
        "transformer-causal-tiny",
        "classifier",
        CausalOptions,
        "transformer of 2 layers, width 128, that looks back only, for a class a token",
        reads="tokens",
        normalises=True,
        tasks=("tokens",),
    ),
    Entry(
        "custom",
        "classifier",
        CustomOptions,
        "your own module; needs an initial model",
        server_side=False,
        tasks=KINDS,
    ),
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
    """Return the catalogue's row for `name`, or that of a network that is a document, ``net:sha256-…``.

    Raises:
        ValueError: no architecture of that name (and role); the message lists those there are.
    """
    entry = GraphEntry(name) if name.startswith(PREFIX) else CATALOGUE.get(name)
    if entry is None or (role is not None and entry.role != role):
        known = ", ".join(sorted(e.name for e in CATALOGUE.values() if role is None or e.role == role))
        raise ValueError(f"unknown {role or 'architecture'} {name!r}; choose one of {known}")
    return entry


def is_server_side(name: str) -> bool:
    """Whether the service can run a network of that name; a document can always be run.

    Raises:
        ValueError: no architecture of that name.
    """
    return name.startswith(PREFIX) or find(name).server_side


def output_of(name: str, options: Mapping[str, Any]) -> Output:
    """Return what a discriminator with these options ends in; a raw score where its row does not offer the choice.

    Raises:
        ValueError: no such discriminator, or options that do not fit it.
    """
    return find(name, "discriminator").output(options)
