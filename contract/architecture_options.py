"""What the published network architectures can be told; the catalogue of them is `contract.architectures`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from contract.bodies import LISTED, WHOLE, Part

Output = Literal["score", "probability"]
Width = Annotated[int, Field(ge=1, le=4096)]


class OptionsError(ValueError):
    """An option that does not fit its architecture.

    Attributes:
        option: which, with dots between the steps; empty for all of them.
        detail: what is wrong with it.
    """

    def __init__(self, option: str, detail: str):
        super().__init__(f"option {option!r}: {detail}" if option else detail)
        self.option, self.detail = option, detail


class Options(Part):
    """Base of an architecture's options."""


class ClassifierOptions(Options):
    """What every classifier offers."""

    common_head: bool = Field(
        False,
        description="end in the head that all architectures of a federation can share (Fed-ET): an adapter to 128 "
        "features, then the tensors `head.*` of Linear(128, 128), ReLU, Linear(128, C)",
    )
    projection: Width | None = Field(
        None,
        description="a projection head before the last layer, Linear(d, d), ReLU, Linear(d, so many), whose output are "
        "the features (MOON: 256)",
    )

    @model_validator(mode="after")
    def _one_end(self) -> "ClassifierOptions":
        if self.common_head and self.projection is not None:
            raise ValueError("projection: the common head is shared as it is; take one of the two")
        return self


class DiscriminatorOptions(Options):
    """What every discriminator offers."""

    output: Output = Field(
        "score",
        description="what the network ends in: the raw score a, or `probability`, D = sigmoid(a), for the link `prob`",
    )


class NormOptions(Options):
    """The choice between BatchNorm and GroupNorm."""

    norm: Literal["bn", "gn"] = Field("bn", description="BatchNorm, or GroupNorm, which keeps no running statistics")
    groups: Annotated[Literal[1, 2, 4, 8, 16], WHOLE] = Field(2, description="groups of each GroupNorm (gn only)")


class HiddenOptions(Options):
    """Widths of linear layers."""

    hidden: Annotated[tuple[Width, ...], LISTED] = Field(
        (64, 64), max_length=16, description="widths of the hidden layers"
    )


class MlpOptions(HiddenOptions, ClassifierOptions):
    """A stack of linear layers with ReLU; the input is flattened."""


class DiscMlpOptions(HiddenOptions, DiscriminatorOptions):
    """A stack of linear layers with ReLU; the input is flattened."""


class WidthsOptions(Options):
    """Widths of two convolutions."""

    widths: Annotated[tuple[Width, Width], LISTED] = Field((16, 32), description="channels of the two convolutions")


class DiscCnnDigitsOptions(WidthsOptions, DiscriminatorOptions):
    """Two 3x3 convolutions of stride 2 with ReLU, then one linear layer; made for 8x8 images."""


class CnnDigitsOptions(WidthsOptions, ClassifierOptions):
    """Two 3x3 convolutions of stride 2 with BatchNorm and ReLU, then one linear layer; made for 8x8 images."""


class ResNetOptions(NormOptions, ClassifierOptions):
    """A residual network for small images."""


class VggOptions(ClassifierOptions):
    """3x3 convolutions and max-pooling."""

    norm: Literal["none", "bn"] = Field("bn", description="BatchNorm after every convolution, or nothing")


class Vgg9Options(ClassifierOptions):
    """3x3 convolutions and max-pooling, as FedMA and FedDF use it: without BatchNorm unless asked for."""

    norm: Literal["none", "bn"] = Field("none", description="BatchNorm after every convolution, or nothing")


class TextOptions(ClassifierOptions):
    """Token ids of `contract.tokenizer`; id 0 is padding."""

    vocab_size: int = Field(8192, ge=2, le=1_000_000, description="number of token ids, the padding id 0 included")


class TransformerOptions(TextOptions):
    """An encoder, whose linear layers may have adapters beside them (LoRA)."""

    lora_rank: Annotated[int, Field(ge=1, le=512)] | None = Field(
        None,
        description="adapters of this rank at all linear layers of attention and MLP: tensors `*.lora_a.weight` and "
        "`*.lora_b.weight`, for `prototypes[].trains`; null: none",
    )
    lora_alpha: float = Field(16.0, gt=0, le=65_536, description="adapters count alpha / rank")


class LstmOptions(TextOptions):
    """Embedding and a one-directional LSTM."""

    width: Width = Field(128, description="size of the embedding and of the hidden state")
    layers: int = Field(1, ge=1, le=8, description="stacked LSTM layers")


class CausalOptions(Options):
    """Token ids of `contract.tokenizer`; id 0 is padding."""

    vocab_size: int = Field(8192, ge=2, le=1_000_000, description="number of token ids, the padding id 0 included")


class UNetOptions(Options):
    """Convolutions at three resolutions, each joined again with what it was made from."""

    width: Annotated[int, Field(ge=2, le=1024, multiple_of=2)] = Field(
        16, description="channels at full resolution; the lower ones have twice and four times as many"
    )
    norm: Literal["gn", "bn", "none"] = Field("gn", description="GroupNorm of two groups, BatchNorm, or nothing")


class DiscCnnOptions(NormOptions, DiscriminatorOptions):
    """FedGO's discriminators, whose norm is BatchNorm."""


class DiscResNetOptions(NormOptions, DiscriminatorOptions):
    """A residual network for small images, with one output."""


class CriticResNetOptions(DiscriminatorOptions):
    """WGAN-GP's residual critic for CIFAR."""

    width: Width = Field(128, description="channels of every block")
    norm: Literal["none", "ln"] = Field(
        "none", description="nothing, or LayerNorm over channels and pixels of each sample, in all blocks but the first"
    )


class GeneratorMlpOptions(Options):
    """Noise through linear layers with ReLU to an image in [-1, 1] (tanh)."""

    latent: Width = Field(32, description="size of the noise vector z")
    hidden: Annotated[tuple[Width, ...], LISTED] = Field((128, 128), min_length=1, max_length=16)


class GeneratorResNetOptions(Options):
    """WGAN-GP's residual generator for CIFAR."""

    latent: Width = Field(128, description="size of the noise vector z")
    width: Width = Field(128, description="channels of every block")


class GeneratorDcganOptions(Options):
    """A small DCGAN generator."""

    latent: Width = Field(100, description="size of the noise vector z")
    width: Annotated[int, Field(ge=1, le=1024)] = Field(64, description="channels before the last layer")


class CustomOptions(Options):
    """The user's own network, known to the service by its tensors only: rounds that need no forward pass."""
