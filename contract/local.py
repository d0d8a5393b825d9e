"""What a client runs in one round: objective, optimiser, epochs. The values travel in the assignment."""

import sys
from typing import Annotated, Literal

from pydantic import Field, model_validator

from contract.bodies import WHOLE, stored
from contract.bounds import VALUE
from contract.choices import Carried, Choice, Declares, Only, Options, Partner, Sent, kind_of
from contract.discriminators import DiscriminatorPlan as DiscriminatorPlan
from contract.objectives import ClientObjective as ClientObjective
from contract.objectives import DafkdObjective as DafkdObjective
from contract.objectives import PriorAdjustedObjective as PriorAdjustedObjective
from contract.optimizers import Adam as Adam
from contract.optimizers import LearningRate
from contract.optimizers import Optimizer as Optimizer
from contract.optimizers import OptimizerChoice as OptimizerChoice
from contract.optimizers import Sgd as Sgd
from contract.passes import Passes
from contract.plugins import OPEN
from contract.precision import BinaryPrecision as BinaryPrecision
from contract.rates import Variation, factor_of
from contract.tasks import OF_CLASSES, OF_VECTORS
from contract.tensors import Header
from contract.updates import (
    CLASS_COUNTS,
    CLASS_MEANS,
    CONTROL,
    CONTROL_EXTRA,
    PREDICTIONS,
    PROTOTYPES,
    PUBLIC,
    TARGETS,
    TEACHER,
    Layout,
    features_of,
    parameters,
    public_samples,
)

Link = Literal["double_sigmoid", "sigmoid", "prob"]
"""How a discriminator's output makes D: sigmoid(sigmoid(a)) or sigmoid(a) of a raw score a, or the output itself."""

CLIP = 1e-6
"""Clip of a discriminator's probability D to [CLIP, 1 - CLIP]: odds stay within 1e-6 and 1e6."""


# objective: what a device minimises on its own data
class SgdObjective(ClientObjective):
    """The task's loss on the device's own labels, nothing else: cross-entropy, or of regressions squared errors."""

    declares = Declares(source="FedAvg")

    kind: Literal["sgd"] = "sgd"


class FedProxObjective(ClientObjective):
    """The task's loss plus mu/2 times the squared distance to the model as it was sent."""

    declares = Declares(source="FedProx; FedDF App. B")

    kind: Literal["fedprox"] = "fedprox"
    mu: float = Field(0.001, ge=0, le=10, description="weight of the proximal term; FedGO E.2 found 0.001 best")


class ScaffoldObjective(ClientObjective):
    """Steps corrected by control variates that stay on the device."""

    declares = Declares(
        source="SCAFFOLD, Alg. 1",
        reads=(CONTROL_EXTRA,),
        partner=Partner(
            "scaffold", "the objective 'scaffold' needs a server that keeps the control variate: 'scaffold'"
        ),
        sends=(Sent("control variates", "take the recipe fedavg or fedprox"),),
    )

    kind: Literal["scaffold"] = "scaffold"
    option: Annotated[Literal[1, 2], WHOLE] = Field(
        2, description="1: gradient at the sent model; 2: from the steps taken; needs SGD"
    )

    def adds(self, base: Header, num_classes: int, beside: Header | None) -> Layout:
        """The change of the control variate, by parameter."""
        return {CONTROL + name: ("F32", base.tensors[name].shape) for name in parameters(base)}

    def passes(self, epochs: int) -> Passes:
        """Option 1 takes the gradient at the sent model, over all samples."""
        return Passes(epochs + (1 if self.option == 1 else 0))

    def check(self, plan: "LocalPlan") -> None:
        """Refuse what would hide the gradient."""
        if self.option == 2:
            plain = isinstance(plan.optimizer, Sgd) and not plan.optimizer.momentum and not plan.optimizer.weight_decay
            if not plain or plan.clip_norm is not None:
                raise ValueError(
                    "objective: SCAFFOLD's option 2 reads the gradient off the steps, which plain SGD alone allows; "
                    "take optimizer sgd without momentum, weight decay and clip_norm, or option 1"
                )


_PLAIN = "'sgd', 'fedprox' or 'scaffold'"
GLOBAL = Carried("global", follows="model", each_round=True)
SENT_TEACHER = Carried(TEACHER, follows="model", sent=True)


class FedGkdObjective(ClientObjective):
    """The task's loss plus gamma/2 tau^2 KL to the mean of the last global models; off in the first round."""

    declares = Declares(
        source="FedGKD",
        carries=(GLOBAL, SENT_TEACHER),
        reads=(TEACHER,),
        only=Only(OF_CLASSES, "it compares probabilities of classes", _PLAIN),
    )

    kind: Literal["fedgkd"] = "fedgkd"
    gamma: float = Field(0.001, ge=0, le=100, description="FedGO E.2")
    tau: float = Field(3.0, gt=0, le=100, description="temperature of the teacher and the student")
    history: int = Field(5, ge=1, le=64, description="M, global models in the mean")

    def passes(self, epochs: int) -> Passes:
        """The teacher looks at every batch."""
        return Passes(epochs, forward=epochs)


class MoonObjective(ClientObjective):
    """The task's loss plus a contrast of features with the global and the previous local model."""

    declares = Declares(
        source="MOON",
        needs=frozenset({"features"}),
        only=Only(OF_VECTORS, "it contrasts one vector of features a sample", _PLAIN),
    )

    kind: Literal["moon"] = "moon"
    mu: float = Field(1.0, ge=0, le=100, description="weight of the contrast")
    tau: float = Field(0.5, gt=0, le=100, description="temperature of the contrast")

    def passes(self, epochs: int) -> Passes:
        """The global model and the previous local one look at every batch."""
        return Passes(epochs, forward=2 * epochs)


class FedUvObjective(ClientObjective):
    """Cross-entropy plus a spread of outputs and of features."""

    declares = Declares(
        source="FedUV",
        needs=frozenset({"features"}),
        only=Only(frozenset({"classification"}), "it spreads one-hot outputs over the classes", _PLAIN),
    )

    kind: Literal["feduv"] = "feduv"
    std_weight: float = Field(2.5, ge=0, le=100, description="weight of the spread of outputs over classes")
    unif_weight: float = Field(0.5, ge=0, le=100, description="weight of the spread of features on the sphere")

    def check(self, plan: "LocalPlan") -> None:
        """Refuse differential privacy."""
        if plan.privacy is not None:
            raise ValueError("privacy: FedUV compares the samples of a batch, so no sample's share can be bounded")


TGP = Carried("tgp", follows="round")
SENT_PROTOTYPES = Carried(PROTOTYPES, follows="round", sent=True)


class FedTgpObjective(ClientObjective):
    """Cross-entropy plus lambda MSE of features to the server's trained prototypes of the classes."""

    declares = Declares(
        source="FedTGP",
        needs=frozenset({"features", "networks"}),
        carries=(TGP, SENT_PROTOTYPES),
        reads=(PROTOTYPES,),
        sends=(Sent("class means of features, and the samples of each class,", "take the objective sgd or fedprox"),),
        only=Only(frozenset({"classification"}), "it draws features to prototypes of the classes", _PLAIN),
    )

    kind: Literal["fedtgp"] = "fedtgp"
    weight: float = Field(0.001, ge=0, le=100, description="lambda")
    server_epochs: int = Field(
        1000, ge=1, le=100_000, exclude_if=lambda value: value == 1000, description="of the prototypes, every round"
    )
    server_batch_size: int = Field(
        10, ge=1, le=65_536, exclude_if=lambda value: value == 10, description="prototypes a step"
    )
    server_lr: LearningRate = Field(0.005, exclude_if=lambda value: value == 0.005, description="of SGD")
    margin: float = Field(
        100.0, gt=0, le=1e6, exclude_if=lambda value: value == 100.0, description="largest margin between classes, tau"
    )

    def adds(self, base: Header, num_classes: int, beside: Header | None) -> Layout:
        """The means of the device's features, and of how many samples."""
        return {CLASS_MEANS: ("F32", (num_classes, features_of(base))), CLASS_COUNTS: ("I64", (num_classes,))}

    def passes(self, epochs: int) -> Passes:
        """The means are of the trained network's features."""
        return Passes(epochs, forward=1)


SENT_PUBLIC = Carried(PUBLIC, follows="round", sent=True)
SENT_TARGETS = Carried(TARGETS, follows="round", sent=True)


class DsFlObjective(ClientObjective):
    """Predictions on a public set are sent instead of weights; the server's targets on it are imitated.

    The device goes on from its own model. A round imitates the targets of the round before, if there are any, then
    trains on the device's own labels, then predicts.
    """

    declares = Declares(
        source="DS-FL",
        carries=(SENT_PUBLIC, SENT_TARGETS),
        reads=(PUBLIC, TARGETS),
        partner=Partner(
            "predictions", "the objective 'ds_fl' sends no weights but predictions; set fuse to 'predictions'"
        ),
        sends=(Sent("predictions on the public set", noised="a network that noise has reached makes them"),),
        only=Only(frozenset({"classification"}), "it sends one distribution over the classes a sample", _PLAIN),
    )

    sends_weights = False
    shaped_by = PUBLIC

    kind: Literal["ds_fl"] = "ds_fl"
    imitation_epochs: int = Field(5, ge=1, le=10_000, description="passes over the public set, with `optimizer`")

    def adds(self, base: Header, num_classes: int, beside: Header | None) -> Layout:
        """The predictions, of the public set's every sample."""
        return {PREDICTIONS: ("F32", (public_samples(beside), num_classes))}

    def passes(self, epochs: int) -> Passes:
        """The targets are imitated on the public set, and it is predicted at the end."""
        return Passes(epochs, public_training=self.imitation_epochs, public_forward=1)

    def check(self, plan: "LocalPlan") -> None:
        """Refuse low precision, which is of weights."""
        if plan.precision is not None:
            raise ValueError("precision: DS-FL sends predictions, no weights that could be sent as bits; leave it out")


class FedMaObjective(ClientObjective):
    """The task's loss, with the layers that were fused already as they were sent; one layer more each round.

    In round t of a network of L layers, layers 1 to (t - 1) mod L stay. In the first round every device trains a
    network of its own; devices that all start at one model keep their units in its order: there is nothing to match.
    """

    declares = Declares(
        source="FedMA, Alg. 1",
        partner=Partner(
            "matched_mean", "the objective 'fedma' leaves matched layers as they are; set fuse to 'matched_mean'"
        ),
    )

    starts_at_model = False
    kind: Literal["fedma"] = "fedma"
    start: Literal["own", "sent"] = Field(
        "own",
        description="where the first round starts: at first weights of the device's own, or at the model as it is "
        "sent, such as a pretrained one",
    )
    start_width: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of each layer's units that the device's own network has; the others are zero, and stay so "
        "until units that match no other take their places",
    )

    @model_validator(mode="after")
    def _possible(self) -> "FedMaObjective":
        if self.start == "sent" and self.start_width < 1:
            raise ValueError("start_width: devices that start at the model as it is sent have its width; leave it out")
        return self

    def check(self, plan: "LocalPlan") -> None:
        """Refuse low precision, and noise where units are to stay zero."""
        if plan.precision is not None:
            raise ValueError("precision: FedMA compares weights by their values, not by one bit each; leave it out")
        if plan.privacy is not None and self.start_width < 1:
            raise ValueError("objective.start_width: DP-SGD's noise wakes units that are zero; set it to 1")


Objective = Annotated[ClientObjective, OPEN]


class Privacy(Options):
    """DP-SGD of all that devices train: per-sample gradients clipped, noise added, the spent epsilon in the report.

    A recipe that has devices send anything else of their data is refused.
    """

    noise_multiplier: float = Field(1.0, gt=0, le=1000)
    max_grad_norm: float = Field(1.0, gt=0, le=1000)
    delta: float = Field(1e-5, gt=0, lt=1)


class LocalPlan(Variation):
    """Local training.

    A device is told what it does in a round: its rate and its epochs there, and no variation.
    """

    objective: Objective = SgdObjective()
    optimizer: Optimizer = Sgd()
    epochs: int = Field(1, ge=1, le=10_000, description="passes over the device's samples in a round")
    batch_size: int = Field(32, ge=1, le=65_536, description="samples a step")
    clip_norm: float | None = Field(
        None, gt=0, le=VALUE, description="largest gradient norm of a step; null for no clipping"
    )
    precision: BinaryPrecision | None = Field(None, description="null: full precision")
    privacy: Privacy | None = Field(None, description="null: no differential privacy")

    @model_validator(mode="after")
    def _possible(self) -> "LocalPlan":
        self.objective.check(self)
        check_exposed(self, self.objective)
        return self

    def laid(self, changes: "LocalChanges | None") -> "LocalPlan":
        """Return the plan with changes laid over it; an optimiser is replaced whole.

        Raises:
            ValidationError: they do not go with the rest of it.
        """
        if changes is None:
            return self
        return stored(LocalPlan, self.model_dump() | changes.model_dump(exclude_none=True))

    def in_round(self, seed: int, index: int, total: int, client: str) -> "LocalPlan":
        """Return what a client does in a round: its own epochs, and the rate there.

        Args:
            seed: the federation's.
            index: the round, 1 for the first.
            total: rounds in all.
            client: its name.
        """
        rate = self.optimizer.lr * factor_of(self.rate_over_rounds, index, total)
        partial = self.partial_work
        return self.model_copy(
            update={
                "optimizer": self.optimizer.model_copy(update={"lr": max(rate, sys.float_info.min)}),
                "epochs": self.epochs if partial is None else partial.draw(self.epochs, seed, index, client),
                "rate_over_rounds": None,
                "partial_work": None,
            }
        )


class LocalChanges(Variation):
    """What may differ from the federation's plan, from prototype to prototype or from a round on; null: as there.

    All devices share objective, precision and privacy: what they send, and what is promised to them, hangs on these.
    """

    optimizer: Optimizer | None = Field(None, description="replaces the optimiser whole")
    epochs: int | None = Field(None, ge=1, le=10_000)
    batch_size: int | None = Field(None, ge=1, le=65_536)
    clip_norm: float | None = Field(None, gt=0, le=VALUE)


def check_exposed(plan: LocalPlan, choice: Choice) -> None:
    """Refuse what leaves devices without noise where a plan is private.

    Raises:
        ValueError: says what, and what to take instead.
    """
    for sent in choice.sends if plan.privacy is not None else ():
        if sent.exposed:
            raise ValueError(
                f"privacy: {sent.what} would be sent without noise ({kind_of(type(choice))}); {sent.exposed}, or leave "
                "local.privacy out"
            )
