"""Choices of the stage before the first round: a generator, and a discriminator of every client (FedGO)."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from contract.bodies import LISTED
from contract.bounds import STEPS, VALUE, DataValue, FreeOptions, Id, Reference
from contract.choices import ONE_OF, Choice, Declares, OneBase, Options, Sent
from contract.local import Adam, DiscriminatorPlan

Flip = Annotated[bool, Field(description="mirror real images left to right at random; wrong for digits")]
InputRange = Annotated[tuple[DataValue, DataValue], LISTED]


# generator: where the discriminators' fakes come from
class GeneratorChoice(Choice):
    """Where the generator comes from."""

    slot = "discriminators.generator"

    if TYPE_CHECKING:  # each of them has these
        architecture: str
        options: dict[str, Any]


class GeneratorTrained(GeneratorChoice):
    """A generator that is trained for the federation, against a critic."""

    if TYPE_CHECKING:
        critic_architecture: str
        critic_options: dict[str, Any]
        flip: bool


class GeneratorWganGp(GeneratorTrained):
    """G1: a WGAN-GP that the worker trains on the unlabelled server set."""

    declares = Declares(source="FedGO E.2", needs=frozenset({"unlabeled"}))

    kind: Literal["wgan_gp"] = "wgan_gp"
    architecture: Reference = Field("gen-mlp", description="the generator's network")
    options: FreeOptions = Field(default_factory=dict, description="of the generator's network")
    critic_architecture: Reference = Field("disc-mlp", description="the critic's network")
    critic_options: FreeOptions = Field(
        default_factory=lambda: {"hidden": [128, 128]}, description="of the critic's network"
    )
    steps: int = Field(
        25_000,
        ge=0,
        le=STEPS,
        description="generator steps, of which the paper trains 100,000; 0 leaves it as initialised (Table 12)",
    )
    critic_steps: int = Field(5, ge=1, le=100, description="critic steps per generator step")
    penalty: float = Field(10.0, gt=0, le=VALUE, description="weight of the gradient penalty")
    optimizer: Adam = Adam(lr=2e-4, betas=(0.0, 0.9))
    batch_size: int = Field(64, ge=1, le=65_536, description="samples a step")
    flip: Flip = False


class GeneratorImported(GeneratorChoice):
    """G2: a generator trained elsewhere; its weights were uploaded with POST /v1/models."""

    kind: Literal["imported"] = "imported"
    model: Id = Field(description="id of the imported model")
    architecture: Reference = Field("gen-mlp", description="the generator's network")
    options: FreeOptions = Field(default_factory=dict, description="of the generator's network")
    input_range: InputRange = Field((0.0, 1.0), description="data values that map to -1 and 1")


class GeneratorFederated(GeneratorTrained):
    """A generator that the clients train together, in rounds of its own before those of the federation."""

    if TYPE_CHECKING:
        rounds: int
        epochs: int
        critic_steps: int
        penalty: float
        optimizer: Adam
        batch_size: int
        input_range: tuple[float, float]
        deadline_seconds: int


class GeneratorFedGan(GeneratorFederated):
    """G3: clients train generator and discriminator over some rounds, averaged by n_k."""

    declares = Declares(
        source="FedGAN; FedGO E.2",
        one_base=OneBase("its own rounds wait for every device", "'wgan_gp', which the service trains"),
        sends=(
            Sent(
                "a critic of its data, and a generator that learns from it",
                noised="the critic is trained by DP-SGD like the model, and the generator learns from it alone",
                when="generator",
            ),
        ),
    )

    kind: Literal["fedgan"] = "fedgan"
    architecture: Reference = Field("gen-mlp", description="the generator's network")
    options: FreeOptions = Field(default_factory=dict, description="of the generator's network")
    critic_architecture: Reference = Field("disc-mlp", description="the critic's network")
    critic_options: FreeOptions = Field(
        default_factory=lambda: {"hidden": [128, 128]}, description="of the critic's network"
    )
    rounds: int = Field(5, ge=1, le=1000, description="T'")
    epochs: int = Field(3, ge=1, le=1000, description="local epochs a round")
    critic_steps: int = Field(5, ge=1, le=100, description="critic steps per generator step")
    penalty: float = Field(10.0, gt=0, le=VALUE, description="weight of the gradient penalty")
    optimizer: Adam = Adam(lr=2e-4, betas=(0.0, 0.9))
    batch_size: int = Field(64, ge=1, le=65_536, description="samples a step")
    flip: Flip = False
    input_range: InputRange = Field((0.0, 1.0), description="data values that map to -1 and 1")
    deadline_seconds: int = Field(3600, ge=1, le=30 * 86_400, description="of one round")

    @model_validator(mode="after")
    def _range_ascends(self) -> "GeneratorFedGan":
        if not self.input_range[1] > self.input_range[0]:
            raise ValueError("input_range: the upper end must be above the lower")
        return self


Generator = Annotated[GeneratorChoice, ONE_OF]


class Discriminators(Options):
    """Stage before the first round: a generator is made, then every client trains one discriminator (FedGO)."""

    generator: Generator = GeneratorWganGp()
    plan: DiscriminatorPlan = DiscriminatorPlan()
    deadline_seconds: int = Field(3600, ge=1, le=30 * 86_400, description="go on with those who delivered")
