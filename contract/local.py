"""What a client runs in one round: objective, optimiser, epochs. The values travel in the assignment."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

LearningRate = Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]

Link = Literal["double_sigmoid", "sigmoid", "prob"]
"""How a discriminator's output makes D: sigmoid(sigmoid(a)) or sigmoid(a) of a raw score a, or the output itself."""

CLIP = 1e-6
"""Clip of a discriminator's probability D to [CLIP, 1 - CLIP]: odds stay within 1e-6 and 1e6."""

Beta = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


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
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0, le=1)


Optimizer = Annotated[Sgd | Adam, Field(discriminator="kind")]


class SgdObjective(_Plan):
    """Cross-entropy on the device's own labels, nothing else (FedAvg)."""

    kind: Literal["sgd"] = "sgd"


class FedProxObjective(_Plan):
    """Cross-entropy plus mu/2 times the squared distance to the model as it was sent (FedProx; FedDF App. B)."""

    kind: Literal["fedprox"] = "fedprox"
    mu: float = Field(0.001, ge=0, le=10, description="weight of the proximal term; FedGO E.2 found 0.001 best")


class ScaffoldObjective(_Plan):
    """Steps corrected by control variates that stay on the device (SCAFFOLD, Alg. 1)."""

    kind: Literal["scaffold"] = "scaffold"
    option: Literal[1, 2] = Field(2, description="1: gradient at the sent model; 2: from the steps taken; needs SGD")


class FedGkdObjective(_Plan):
    """Cross-entropy plus gamma/2 tau^2 KL to the mean of the last global models (FedGKD); off in the first round."""

    kind: Literal["fedgkd"] = "fedgkd"
    gamma: float = Field(0.001, ge=0, le=100, description="FedGO E.2")
    tau: float = Field(3.0, gt=0, le=100)
    history: int = Field(5, ge=1, le=64, description="M, global models in the mean")


class MoonObjective(_Plan):
    """Cross-entropy plus a contrast of features with the global and the previous local model (MOON)."""

    kind: Literal["moon"] = "moon"
    mu: float = Field(1.0, ge=0, le=100)
    tau: float = Field(0.5, gt=0, le=100)


class FedUvObjective(_Plan):
    """Cross-entropy plus a spread of outputs and of features (FedUV)."""

    kind: Literal["feduv"] = "feduv"
    std_weight: float = Field(2.5, ge=0, le=100)
    unif_weight: float = Field(0.5, ge=0, le=100)


class FedTgpObjective(_Plan):
    """Cross-entropy plus lambda MSE of features to the server's trained prototypes of the classes (FedTGP)."""

    kind: Literal["fedtgp"] = "fedtgp"
    weight: float = Field(0.001, ge=0, le=100, description="lambda")


class DsFlObjective(_Plan):
    """Predictions on a public set are sent instead of weights; the server's targets on it are imitated (DS-FL).

    The device goes on from its own model. A round imitates the targets of the round before, if there are any, then
    trains on the device's own labels, then predicts.
    """

    kind: Literal["ds_fl"] = "ds_fl"
    imitation_epochs: int = Field(5, ge=1, le=10_000, description="passes over the public set, with `optimizer`")


Objective = Annotated[
    SgdObjective
    | FedProxObjective
    | ScaffoldObjective
    | FedGkdObjective
    | MoonObjective
    | FedUvObjective
    | FedTgpObjective
    | DsFlObjective,
    Field(discriminator="kind"),
]


SELF_CONTAINED = (SgdObjective, FedProxObjective, MoonObjective, FedUvObjective)
"""Objectives that read nothing from the server but the model."""


class BinaryPrecision(_Plan):
    """Train and send one bit a weight and one scale an output channel, through a straight-through estimator."""

    kind: Literal["binary"] = "binary"
    error_feedback: bool = Field(False, description="carry what rounding loses into the next round")


class Privacy(_Plan):
    """DP-SGD through Opacus: per-sample gradients clipped, noise added, the spent epsilon in the report."""

    noise_multiplier: float = Field(1.0, gt=0, le=1000)
    max_grad_norm: float = Field(1.0, gt=0, le=1000)
    delta: float = Field(1e-5, gt=0, lt=1)


class LocalPlan(_Plan):
    """Local training of one round."""

    objective: Objective = SgdObjective()
    optimizer: Optimizer = Sgd()
    epochs: int = Field(1, ge=1, le=10_000)
    batch_size: int = Field(32, ge=1, le=65_536)
    clip_norm: float | None = Field(None, gt=0, description="largest gradient norm of a step; null for no clipping")
    precision: BinaryPrecision | None = Field(None, description="null: full precision")
    privacy: Privacy | None = Field(None, description="null: no differential privacy")

    @model_validator(mode="after")
    def _possible(self) -> "LocalPlan":
        if isinstance(self.objective, ScaffoldObjective) and self.objective.option == 2:
            plain = isinstance(self.optimizer, Sgd) and not self.optimizer.momentum and not self.optimizer.weight_decay
            if not plain or self.clip_norm is not None:
                raise ValueError(
                    "objective: SCAFFOLD's option 2 reads the gradient off the steps, which plain SGD alone allows; "
                    "take optimizer sgd without momentum, weight decay and clip_norm, or option 1"
                )
        if self.precision is not None and isinstance(self.objective, DsFlObjective):
            raise ValueError("precision: DS-FL sends predictions, no weights that could be sent as bits; leave it out")
        if self.privacy is not None and isinstance(self.objective, ScaffoldObjective):
            raise ValueError("privacy: control variates are sent without noise; do not combine them with DP-SGD")
        if self.privacy is not None and isinstance(self.objective, FedTgpObjective):
            raise ValueError("privacy: FedTGP's class means are sent without noise; do not combine them with DP-SGD")
        if self.privacy is not None and isinstance(self.objective, FedUvObjective):
            raise ValueError("privacy: FedUV compares the samples of a batch, so no sample's share can be bounded")
        return self


class DiscriminatorPlan(_Plan):
    """How a client trains its discriminator, once, before the first round (FedGO Alg. 3)."""

    architecture: str = "disc-cnn-digits"
    options: dict[str, object] = Field(default_factory=dict)
    optimizer: Optimizer = Adam(lr=2e-4, betas=(0.5, 0.999))
    epochs: int = Field(30, ge=1, le=10_000)
    batch_size: int = Field(64, ge=1, le=65_536)
    flip: bool = Field(False, description="mirror real images left to right at random; wrong for digits and text")
