"""Choices in the space of weights: who is averaged with whom, how, and who is left out."""

from typing import Annotated, Literal

from pydantic import Field

from contract.recipes.parts.base import Part


# groups: who is averaged with whom
class GroupsPrototype(Part):
    """Clients of one prototype are averaged together; with a single prototype that is everybody (FedDF Alg. 3)."""

    kind: Literal["prototype"] = "prototype"


class GroupsRandom(Part):
    """K global models a prototype, the participants shuffled into K groups each round (FedSDD Alg. 1)."""

    kind: Literal["random"] = "random"
    count: int = Field(4, ge=2, le=64, description="K; FedSDD's default is 4. Model 0 is the main one")
    overlap: bool = Field(
        True,
        description="groups whose model is not distilled start the next round while the main model still is (FedSDD "
        "App. A.6); the models are the same. Rounds run in order all the same where more than the main model is "
        "distilled or nothing is, where devices need what a round's end brings (objectives scaffold, fedgkd, fedtgp), "
        "with rounds.gate, and with on_bad_teacher 'exclude' if clients teach",
    )


Groups = Annotated[GroupsPrototype | GroupsRandom, Field(discriminator="kind")]


# fuse: weights -> weights
class FuseWeightedMean(Part):
    """Sum of n_k / n times theta_k; integer buffers take the maximum (FedAvg; FedDF Alg. 1 line 6)."""

    kind: Literal["weighted_mean"] = "weighted_mean"


class FuseUniformMean(Part):
    """Every client counts the same (FedDF C.4.1)."""

    kind: Literal["uniform_mean"] = "uniform_mean"


class FuseMomentum(Part):
    """FedAvgM: v = beta v + (theta - mean), theta = theta - lr v; parameters only (FedDF C.2)."""

    kind: Literal["momentum"] = "momentum"
    beta: float = Field(0.3, ge=0, lt=1, description="FedDF's grid is 0.1 to 0.4")
    lr: float = Field(1.0, gt=0, le=100, description="server learning rate")
    form: Literal["sum", "ema"] = Field("sum", description="ema: (1 - beta) delta + beta v, as FedBE's and MOON's code")


class _Adaptive(Part):
    lr: float = Field(0.1, gt=0, le=100, description="server learning rate")
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99, ge=0, lt=1)
    tau: float = Field(1e-3, gt=0, description="degree of adaptivity; added to the root of the second moment")


class FuseAdam(_Adaptive):
    """FedAdam on the pseudo-gradient, parameters only (Reddi et al. 2021, Alg. 2)."""

    kind: Literal["adam"] = "adam"


class FuseYogi(_Adaptive):
    """FedYogi (Reddi et al. 2021, Alg. 2)."""

    kind: Literal["yogi"] = "yogi"


class FuseAdagrad(_Adaptive):
    """FedAdagrad (Reddi et al. 2021, Alg. 2)."""

    kind: Literal["adagrad"] = "adagrad"


class FuseScaffold(Part):
    """SCAFFOLD's server step: model and control variate move by the mean of the clients' changes."""

    kind: Literal["scaffold"] = "scaffold"
    lr: float = Field(1.0, gt=0, le=100, description="eta_g")
    n_weighted: bool = Field(False, description="weight the model's change by n_k, as some public codes do")


class FuseDisco(Part):
    """FedDisco: weights relu(n_k / n - a d_k + b), d_k how far the client's labels are from uniform.

    Clients must share their label counts when they enrol.
    """

    kind: Literal["disco"] = "disco"
    a: float = Field(0.5, ge=0)
    b: float = Field(0.1, ge=0)
    metric: Literal["kl", "l1", "l2", "cosine"] = "kl"


class FuseMedian(Part):
    """Coordinate-wise median (Yin et al. 2018)."""

    kind: Literal["median"] = "median"


class FuseTrimmedMean(Part):
    """Coordinate-wise mean without the largest and smallest values (Yin et al. 2018)."""

    kind: Literal["trimmed_mean"] = "trimmed_mean"
    trim: float = Field(0.1, ge=0, lt=0.5, description="share of the clients left out at each end")


class FuseKrum(Part):
    """Krum: the update with the nearest neighbours; with keep > 1, Multi-Krum's mean (Blanchard et al. 2017)."""

    kind: Literal["krum"] = "krum"
    byzantine: int = Field(1, ge=0, description="f, clients that may lie; needs at least 2 f + 3 updates")
    keep: int = Field(1, ge=1, description="updates averaged; with more than m - f of m, a liar's may be among them")


class FuseClippedMean(Part):
    """Weighted mean of updates whose distance to the round's model is clipped to a norm."""

    kind: Literal["clipped_mean"] = "clipped_mean"
    max_norm: float = Field(10.0, gt=0)


class FusePredictions(Part):
    """No weights travel: devices send predictions on the server set, which become its labels (DS-FL).

    `distil` says how; its students start from the models of the round before. The server set's inputs are sent to every
    device.
    """

    kind: Literal["predictions"] = "predictions"


Fuse = Annotated[
    FuseWeightedMean
    | FuseUniformMean
    | FuseMomentum
    | FuseAdam
    | FuseYogi
    | FuseAdagrad
    | FuseScaffold
    | FuseDisco
    | FuseMedian
    | FuseTrimmedMean
    | FuseKrum
    | FuseClippedMean
    | FusePredictions,
    Field(discriminator="kind"),
]


# filter: who is left out
class DropWorst(Part):
    """Leave out models that are no better than chance on the validation set, before averaging and labelling (FedDF)."""

    factor: float = Field(1.2, gt=0, le=100, description="dropped below factor / C, strictly")
