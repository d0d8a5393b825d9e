"""Choices in the space of weights: who is averaged with whom, how, and who is left out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from contract.bodies import LISTED
from contract.bounds import CLIENTS, ITEMS, VALUE
from contract.chains import chain
from contract.choices import ONE_OF, Carried, Choice, Declares, Need, OneBase, Only, Options, Partner, Sent
from contract.local import LocalPlan
from contract.notes import Remark, Setting
from contract.objectives import JOINT_GENERATOR
from contract.plugins import OPEN
from contract.updates import CONTROL_EXTRA

LABEL_COUNTS = "samples per class"


# groups: who is averaged with whom
class GroupsChoice(Choice):
    """Who is averaged with whom."""

    slot = "groups"


class GroupsPrototype(GroupsChoice):
    """Clients of one prototype are averaged together; with a single prototype that is everybody."""

    declares = Declares(source="FedDF Alg. 3")

    kind: Literal["prototype"] = "prototype"


class GroupsRandom(GroupsChoice):
    """K global models a prototype, the participants shuffled into K groups each round."""

    declares = Declares(source="FedSDD Alg. 1", one_base=OneBase("it shuffles those that a round asks", "'prototype'"))

    kind: Literal["random"] = "random"
    count: int = Field(4, ge=2, le=64, description="K; FedSDD's default is 4. Model 0 is the main one")
    overlap: bool = Field(
        True,
        description="groups whose model is not distilled start the next round while the main model still is (FedSDD "
        "App. A.6); the models are the same. Rounds run in order all the same where more than the main model is "
        "distilled or nothing is, where devices need what a round's end brings (objectives scaffold, fedgkd, fedtgp), "
        "with rounds.gate or rounds.secure, and with on_bad_teacher 'exclude' if clients teach",
    )

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        """Groups do not run ahead of what may still change, or of what they need."""
        if not self.overlap:
            return
        if setting.gated:
            yield Remark("overlap", "rounds run one after another", "rounds.gate may turn a group's model away")
        elif setting.secure:
            yield Remark("overlap", "rounds run one after another", "in secure rounds devices exchange keys first")
        elif setting.objective_reads:
            yield Remark(
                "overlap", "rounds run one after another", "local.objective needs what the end of a round brings"
            )


Groups = Annotated[GroupsChoice, ONE_OF]


# fuse: weights -> weights
VELOCITY = Carried("velocity", follows="steps")
MOMENTS = Carried("adam", follows="steps")
CONTROL = Carried("control", follows="devices")
_MATCHED = OneBase("units are matched anew in every round", "'weighted_mean'")
SENT_CONTROL = Carried(CONTROL_EXTRA, follows="devices", sent=True)
"""SCAFFOLD's c is the mean of the devices' c_i, which stay as they are whatever becomes of a model."""


class FuseChoice(Choice):
    """How the clients' weights become one set of weights."""

    slot = "fuse"
    averages: ClassVar[bool] = True
    """Whether weights come that are averaged."""
    robust: ClassVar[bool] = False
    """Whether some lying clients cannot pull its result where they like, buffers and counters included."""
    sums: ClassVar[Literal["samples", "clients"] | None] = None
    """What an update counts by, where its sum is all that is read of it; None where single updates are."""
    takes_parts: ClassVar[bool] = True
    """Whether it can fuse some tensors of a network without the others."""

    judges: ClassVar[bool] = False
    """Whether every update brings a discriminator, and rounds make the generator: nothing comes before them."""

    @property
    def least_updates(self) -> int:
        """How many updates of a model it takes."""
        return 1

    def check_local(self, local: LocalPlan) -> None:
        """Refuse what devices run where this rule cannot use it.

        Raises:
            ValueError: says why, and what to do.
        """

    def check_classes(self, classes: int) -> None:
        """Refuse options that are for another number of classes.

        Raises:
            ValueError: says why, and what to do.
        """

    def check_network(self, architecture: str, options: Mapping[str, Any], shape: Sequence[int], classes: int) -> None:
        """Refuse a network that this rule cannot fuse.

        Args:
            architecture: its name.
            options: its own.
            shape: of one sample.
            classes: C.

        Raises:
            ValueError: says why, and what to do.
        """


class FuseWeightedMean(FuseChoice):
    """Sum of n_k / n times theta_k; integer buffers take the maximum, in secure rounds the rounded mean."""

    declares = Declares(source="FedAvg; FedDF Alg. 1 line 6")

    sums = "samples"
    kind: Literal["weighted_mean"] = "weighted_mean"


class FuseUniformMean(FuseChoice):
    """Every client counts the same."""

    declares = Declares(source="FedDF C.4.1")

    sums = "clients"
    kind: Literal["uniform_mean"] = "uniform_mean"


class FuseMomentum(FuseChoice):
    """FedAvgM: v = beta v + (theta - mean), theta = theta - lr v; parameters only."""

    declares = Declares(source="FedDF C.2", carries=(VELOCITY,))

    sums = "samples"
    kind: Literal["momentum"] = "momentum"
    beta: float = Field(0.3, ge=0, lt=1, description="FedDF's grid is 0.1 to 0.4")
    lr: float = Field(1.0, gt=0, le=100, description="server learning rate")
    form: Literal["sum", "ema"] = Field("sum", description="ema: (1 - beta) delta + beta v, as FedBE's and MOON's code")


class _Adaptive(FuseChoice):
    sums = "samples"
    lr: float = Field(0.1, gt=0, le=100, description="server learning rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the running mean of the changes")
    beta2: float = Field(0.99, ge=0, lt=1, description="decay of the running mean of their squares")
    tau: float = Field(1e-3, gt=0, le=VALUE, description="degree of adaptivity; added to the root of the second moment")


class FuseAdam(_Adaptive):
    """FedAdam on the pseudo-gradient, parameters only."""

    declares = Declares(source="Reddi et al. 2021, Alg. 2", carries=(MOMENTS,))

    kind: Literal["adam"] = "adam"


class FuseYogi(_Adaptive):
    """FedYogi."""

    declares = Declares(source="Reddi et al. 2021, Alg. 2", carries=(MOMENTS,))

    kind: Literal["yogi"] = "yogi"


class FuseAdagrad(_Adaptive):
    """FedAdagrad."""

    declares = Declares(source="Reddi et al. 2021, Alg. 2", carries=(MOMENTS,))

    kind: Literal["adagrad"] = "adagrad"


class FuseScaffold(FuseChoice):
    """SCAFFOLD's server step: model and control variate move by the mean of the clients' changes."""

    declares = Declares(
        source="Karimireddy et al. 2020, Alg. 1",
        carries=(CONTROL, SENT_CONTROL),
        partner=Partner(
            "scaffold", "scaffold moves control variates that only the objective 'scaffold' sends; set local"
        ),
        one_base=OneBase("control variates are changes against the one model that all began from", "'weighted_mean'"),
    )

    kind: Literal["scaffold"] = "scaffold"
    lr: float = Field(1.0, gt=0, le=100, description="eta_g")
    n_weighted: bool = Field(False, description="weight the model's change by n_k, as some public codes do")

    def check_local(self, local: LocalPlan) -> None:
        """Refuse weights that are sent as bits."""
        if local.precision is not None:
            raise ValueError("scaffold needs the exact change of every weight; leave local.precision out")


class FuseDisco(FuseChoice):
    """FedDisco: weights relu(n_k / n - a d_k + b), d_k how far the client's labels are from a target.

    Clients must share their label counts when they enrol.
    """

    declares = Declares(
        only=Only(frozenset({"classification"}), "it counts samples by class", "'weighted_mean'"),
        source="Ye et al. 2023",
        needs=frozenset({"label_counts"}),
        sends=(Sent(LABEL_COUNTS, "set fuse to 'weighted_mean'", when="enrolment"),),
    )

    kind: Literal["disco"] = "disco"
    a: float = Field(0.5, ge=0, le=VALUE, description="weight of the discrepancy")
    b: float = Field(0.1, ge=0, le=VALUE, description="added to every client's weight before those below 0 are cut")
    metric: Literal["kl", "l1", "l2", "cosine"] = Field("kl", description="how the discrepancy is measured")
    target: Annotated[tuple[Annotated[float, Field(ge=0, le=1e15)], ...], LISTED] | None = Field(
        None,
        min_length=2,
        max_length=ITEMS,
        description="shares of the classes that are aimed at, or counts, in the order of the classes; null: uniform",
    )

    @model_validator(mode="after")
    def _reachable(self) -> "FuseDisco":
        if self.target is not None:
            if not sum(self.target):
                raise ValueError("target: all shares are 0; give a distribution, or leave it out for uniform")
            if self.metric == "kl" and not all(self.target):
                raise ValueError(
                    "target: a class has no share, so its KL is infinite; give it a little, or metric 'l1'"
                )
        return self

    def check_classes(self, classes: int) -> None:
        """Refuse a target for another number of classes."""
        if self.target is not None and len(self.target) != classes:
            raise ValueError(f"target: {len(self.target)} shares for {classes} classes")


class FuseMedian(FuseChoice):
    """Coordinate-wise median."""

    declares = Declares(source="Yin et al. 2018")

    robust = True
    kind: Literal["median"] = "median"


class FuseTrimmedMean(FuseChoice):
    """Coordinate-wise mean without the largest and smallest values."""

    declares = Declares(source="Yin et al. 2018")

    robust = True
    kind: Literal["trimmed_mean"] = "trimmed_mean"
    trim: float = Field(0.1, ge=0, lt=0.5, description="share of the clients left out at each end")


class FuseKrum(FuseChoice):
    """Krum: the update with the nearest neighbours; with keep > 1, Multi-Krum's mean."""

    declares = Declares(source="Blanchard et al. 2017")

    robust = True
    kind: Literal["krum"] = "krum"
    byzantine: int = Field(1, ge=0, le=CLIENTS, description="f, clients that may lie; needs at least 2 f + 3 updates")
    keep: int = Field(
        1, ge=1, le=CLIENTS, description="updates averaged; with more than m - f of m, a liar's may be among them"
    )

    @property
    def least_updates(self) -> int:
        """2 f + 3, or as many as are kept."""
        return max(2 * self.byzantine + 3, self.keep)


class FuseClippedMean(FuseChoice):
    """Weighted mean of updates whose distance to the round's model is clipped to a norm."""

    declares = Declares(source="Sun et al. 2019, section 4")

    robust = True
    kind: Literal["clipped_mean"] = "clipped_mean"
    max_norm: float = Field(10.0, gt=0, le=VALUE)


class FuseMatchedMean(FuseChoice):
    """Mean of units that do the same thing: layer by layer, clients' units are matched before they are averaged.

    For chains of layers without BatchNorm and residuals: MLPs, plain convolutions, VGGs with norm=none, LSTMs.
    Each layer keeps its width. With the objective `fedma` a round fuses one layer more than the round before, and
    those before it stay; with any other, every round matches all layers.
    """

    declares = Declares(source="FedMA, Wang et al. 2020, Alg. 1", one_base=_MATCHED)

    takes_parts = False
    kind: Literal["matched_mean"] = "matched_mean"
    count: Literal["clients", "samples"] = Field("clients", description="what a client counts: 1, or its samples")
    by_class: bool = Field(
        False, description="in the last layer each class counts by the clients' samples of it, which they must share"
    )
    sigma: float = Field(1.0, gt=0, le=1e6, description="deviation of a client's unit from the global one")
    sigma0: float = Field(1.0, gt=0, le=1e6, description="deviation of global units from 0")
    gamma: float = Field(7.0, gt=0, le=1e6, description="the larger, the sooner a unit is a new one")
    sweeps: int = Field(5, ge=0, le=100, description="times that every client is assigned anew")

    @property
    def needs(self) -> frozenset[Need]:
        """Label counts, where classes count by them."""
        return frozenset({"label_counts"} if self.by_class else ())

    @property
    def only(self) -> Only | None:
        """The same: samples are counted by class."""
        by_class = Only(frozenset({"classification"}), "by_class counts samples by class", "by_class=false")
        return by_class if self.by_class else None

    @property
    def sends(self) -> tuple[Sent, ...]:
        """The same."""
        return (Sent(LABEL_COUNTS, "set fuse.by_class to false", when="enrolment"),) if self.by_class else ()

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        """Samples are counted by class where they have one."""
        if self.by_class and setting.task != "classification":
            yield Remark("by_class", "false", "samples of this kind of task have no class to count", becomes=False)

    def check_local(self, local: LocalPlan) -> None:
        """Refuse weights that are sent as bits."""
        if local.precision is not None:
            raise ValueError("matched_mean compares weights by their values; leave local.precision out")

    def check_network(self, architecture: str, options: Mapping[str, Any], shape: Sequence[int], classes: int) -> None:
        """Refuse what is no chain of layers."""
        chain(architecture, options, shape, classes)


class FuseJointMean(FuseChoice):
    """The weighted mean, of the models and of the generators that clients train beside them.

    Each client's discriminator, a head on its model's features, comes with its update: it scores the round's samples
    for its own teacher, and is not averaged. A recipe with it has no part `discriminators`; data `generated` are
    `fresh`.
    """

    declares = Declares(
        source="DaFKD",
        carries=(JOINT_GENERATOR,),
        partner=Partner("dafkd", "'joint_mean' averages generators that the objective 'dafkd' alone trains; set local"),
        one_base=OneBase("generators are averaged beside the models, as steps from one of them", "the recipe feddf"),
    )

    judges = True
    kind: Literal["joint_mean"] = "joint_mean"


class FusePredictions(FuseChoice):
    """No weights travel: devices send predictions on the server set, which become its labels.

    `distil` says how; its students start from the models of the round before. The server set's inputs are sent to every
    device.
    """

    declares = Declares(
        source="DS-FL",
        partner=Partner("ds_fl", "'predictions' are sent by the objective 'ds_fl' alone; set local"),
        one_base=OneBase("no weights come whose change could be laid onto a newer model", "the recipe feddf"),
        only=Only(
            frozenset({"classification"}),
            "devices send one distribution over the classes a sample",
            "'weighted_mean', with the recipe feddf for distillation",
        ),
    )

    averages = False
    kind: Literal["predictions"] = "predictions"


Fuse = Annotated[FuseChoice, OPEN]


# filter: who is left out
class DropWorst(Options):
    """Leave out models that are no better than chance on the validation set, before averaging and labelling (FedDF)."""

    factor: float = Field(1.2, gt=0, le=100, description="dropped below factor / C, strictly")
