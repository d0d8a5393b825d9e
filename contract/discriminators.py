"""How a client trains its discriminator (FedGO)."""

from pydantic import Field

from contract.bounds import FreeOptions, Reference
from contract.choices import Options
from contract.optimizers import Adam, Optimizer


class DiscriminatorPlan(Options):
    """How a client trains its discriminator, once, before the first round (FedGO Alg. 3)."""

    architecture: Reference = Field("disc-cnn-digits", description="the discriminator's network")
    options: FreeOptions = Field(default_factory=dict, description="of the discriminator's network")
    optimizer: Optimizer = Adam(lr=2e-4, betas=(0.5, 0.999))
    epochs: int = Field(30, ge=1, le=10_000, description="passes over the device's samples")
    batch_size: int = Field(64, ge=1, le=65_536, description="samples a step")
    flip: bool = Field(False, description="mirror real images left to right at random; wrong for digits and text")
