"""The catalogue of published network architectures: names, roles and options. Building them needs torch: `contract.nn`.

The names and the tensors behind them are frozen once released: a change is a new name.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Role = Literal["classifier", "discriminator", "generator"]
Width = Annotated[int, Field(ge=1, le=4096)]


class Options(BaseModel):
    """Base of an architecture's options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MlpOptions(Options):
    """A stack of linear layers with ReLU; the input is flattened."""

    hidden: tuple[Width, ...] = Field((64, 64), max_length=16, description="widths of the hidden layers")


class CnnDigitsOptions(Options):
    """Two 3x3 convolutions of stride 2 with BatchNorm and ReLU, then one linear layer; made for 8x8 images."""

    widths: tuple[Width, Width] = Field((16, 32), description="channels of the two convolutions")


class GeneratorMlpOptions(Options):
    """Noise through linear layers with ReLU to an image in [-1, 1] (tanh)."""

    latent: Width = Field(32, description="size of the noise vector z")
    hidden: tuple[Width, ...] = Field((128, 128), min_length=1, max_length=16)


class CustomOptions(Options):
    """The user's own network, known to the service by its tensors only: rounds that need no forward pass."""


class Entry:
    """One row of the catalogue."""

    def __init__(self, name: str, role: Role, options: type[Options], summary: str, *, server_side: bool = True):
        self.name, self.role, self.options, self.summary, self.server_side = name, role, options, summary, server_side


_ENTRIES = (
    Entry("mlp", "classifier", MlpOptions, "multi-layer perceptron on the flattened input"),
    Entry("cnn-digits", "classifier", CnnDigitsOptions, "small convolutional net with BatchNorm for 8x8 images"),
    Entry("custom", "classifier", CustomOptions, "your own module; needs an initial model", server_side=False),
    Entry("disc-mlp", "discriminator", MlpOptions, "multi-layer perceptron with one score"),
    Entry("disc-cnn-digits", "discriminator", CnnDigitsOptions, "cnn-digits without BatchNorm and with one score"),
    Entry("gen-mlp", "generator", GeneratorMlpOptions, "multi-layer perceptron from noise to an image"),
)
CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


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
