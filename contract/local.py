"""What a client runs in one round: objective, optimiser, epochs. The values travel in the assignment."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LearningRate = Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]


class _Plan(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Sgd(_Plan):
    """Plain or momentum stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"
    lr: LearningRate = 0.01
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0, le=1)


class Adam(_Plan):
    """Adam with PyTorch's epsilon."""

    kind: Literal["adam"] = "adam"
    lr: LearningRate = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0, le=1)


Optimizer = Annotated[Sgd | Adam, Field(discriminator="kind")]


class SgdObjective(_Plan):
    """Cross-entropy on the device's own labels, nothing else (FedAvg)."""

    kind: Literal["sgd"] = "sgd"


class FedProxObjective(_Plan):
    """Cross-entropy plus mu/2 times the squared distance to the model as it was sent (FedProx; FedDF App. B)."""

    kind: Literal["fedprox"] = "fedprox"
    mu: float = Field(0.001, ge=0, le=10, description="weight of the proximal term; FedGO E.2 found 0.001 best")


Objective = Annotated[SgdObjective | FedProxObjective, Field(discriminator="kind")]


class LocalPlan(_Plan):
    """Local training of one round."""

    objective: Objective = SgdObjective()
    optimizer: Optimizer = Sgd()
    epochs: int = Field(1, ge=1, le=10_000)
    batch_size: int = Field(32, ge=1, le=65_536)
    clip_norm: float | None = Field(None, gt=0, description="largest gradient norm of a step; null for no clipping")


class DiscriminatorPlan(_Plan):
    """How a client trains its discriminator, once, before the first round (FedGO Alg. 3)."""

    architecture: str = "disc-cnn-digits"
    options: dict[str, object] = Field(default_factory=dict)
    optimizer: Optimizer = Adam(lr=2e-4, betas=(0.5, 0.999))
    epochs: int = Field(30, ge=1, le=10_000)
    batch_size: int = Field(64, ge=1, le=65_536)
    flip: bool = Field(False, description="mirror real images left to right at random; wrong for digits and text")
