"""Choices of distillation: what students minimise, who they are, on which data, for how long."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from contract.bounds import COUNT, ROUNDS, STEPS, VALUE, DataValue
from contract.choices import ONE_OF, Choice, Declares, Only, Options
from contract.local import Adam, Optimizer
from contract.notes import Remark, Setting
from contract.tasks import OF_CLASSES


# objective: what the student minimises
class ObjectiveChoice(Choice):
    """What a student minimises."""

    slot = "distil.objective"


SOFT = Only(OF_CLASSES, "a regression's values are no classes", "'error'")


class ObjectiveSoft(ObjectiveChoice):
    """An objective of classes that students of a regression do not have."""

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        """A regression's students learn the values themselves, unless something else is asked for."""
        if setting.task == "regression":
            why = f"students of a regression learn values, and {self.kind!r} compares probabilities"
            yield Remark("", "'error': squared differences", why, becomes=ObjectiveError())


class ObjectiveKl(ObjectiveSoft):
    """T^2 KL(teacher_T || student_T), mean over the batch; over labels, pixels and tokens where there are several."""

    declares = Declares(source="FedDF; the T^2 of Hinton et al.", only=SOFT)

    kind: Literal["kl"] = "kl"
    temperature: float = Field(1.0, gt=0, le=100, description="T, of teachers and student")
    scale_t2: bool = Field(True, description="multiply by T^2 so that gradients keep their size")


class ObjectiveSoftCe(ObjectiveSoft):
    """Cross-entropy to the soft target; the same gradient as KL at T = 1."""

    declares = Declares(source="FedBE", only=SOFT)

    kind: Literal["soft_ce"] = "soft_ce"


class ObjectiveFedEt(ObjectiveChoice):
    """Cross-entropy to the consensus label + lambda times the divergence to the diversity target."""

    declares = Declares(
        source="Fed-ET eq. 9",
        only=Only(frozenset({"classification"}), "it learns a consensus, one class a sample", "'kl'"),
    )

    kind: Literal["fedet"] = "fedet"
    diversity: float = Field(
        0.05, ge=0, le=10, description="lambda; 0.05 for images, 0.5 for text (Table 4), which it is there by default"
    )

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        """The paper's lambda for text is another one."""
        if setting.inputs == "tokens" and self.diversity == ObjectiveFedEt().diversity:
            yield Remark("diversity", "0.5", "the task is text, where Fed-ET took it (Table 4)", becomes=0.5)


class ObjectiveError(ObjectiveChoice):
    """Mean squared difference from the teachers' mean; with `huber`, linear beyond it."""

    declares = Declares(
        source="Saputra et al. 2019; Huber 1964",
        only=Only(frozenset({"regression"}), "logits of one softmax may lie anywhere", "'kl' or 'soft_ce'"),
    )

    kind: Literal["error"] = "error"
    huber: float | None = Field(None, gt=0, le=VALUE, description="null: squared everywhere")


DistilObjective = Annotated[ObjectiveChoice, ONE_OF]


# students: who learns
class StudentsChoice(Choice):
    """Who learns."""

    slot = "distil.students"
    learns: ClassVar[bool] = True
    """Whether anybody does."""
    trains_server: ClassVar[bool] = False
    """Whether the server's own model does."""
    shares_head: ClassVar[bool] = False
    """Whether the server's model and all prototypes end in one head."""


class StudentsLearning(StudentsChoice):
    """Somebody who learns."""

    batch_norm: Literal["train", "frozen", "recalibrate"] = Field(
        "train",
        description="running statistics follow the server set, stay, or are computed anew afterwards; with batches of "
        "one sample they stay",
    )


class StudentsPrototypes(StudentsLearning):
    """The average of every prototype that had participants (FedDF Alg. 3); with one prototype, the average."""

    kind: Literal["prototypes"] = "prototypes"
    start: Literal["average", "previous"] = Field(
        "average",
        description="what a student starts as: this round's average, or the global model that the round began with, "
        "which costs FedDF 6 to 10 points (Table 5)",
    )


class StudentsPrototypesAndServer(StudentsLearning):
    """The average of every prototype that had participants, and a model of the server's own; each learns the labels.

    The server's model goes on from where it was. It may be larger than any device could train, and no head is shared.
    """

    declares = Declares(source="DS-FL Alg. 1 line 16")

    trains_server = True
    kind: Literal["prototypes_and_server"] = "prototypes_and_server"


class StudentsMain(StudentsLearning):
    """The main model only: model 0 of each prototype's groups."""

    declares = Declares(source="FedSDD")

    kind: Literal["main"] = "main"


class StudentsServer(StudentsLearning):
    """A larger model that lives on the server; its head is shared with every prototype."""

    declares = Declares(source="Fed-ET")

    trains_server = True
    shares_head = True
    kind: Literal["server"] = "server"


class StudentsAll(StudentsLearning):
    """Every group's model learns from the ensemble."""

    declares = Declares(source="basic distillation of FedSDD; codistillation")

    kind: Literal["all"] = "all"
    warmup_rounds: int = Field(0, ge=0, le=ROUNDS, description="rounds without distillation at the start")


class StudentsNone(StudentsChoice):
    """Nobody learns: the ensemble itself is the result."""

    declares = Declares(source="Fed-ensemble, one-shot ensemble")

    learns = False
    kind: Literal["none"] = "none"


Students = Annotated[StudentsChoice, ONE_OF]


# data: what the teachers label
class Augment(Options):
    """What a student sees instead of the plain sample; teachers always see the plain one (FedBE B.1)."""

    flip: bool = Field(False, description="mirror left to right at random")
    pad: int = Field(0, ge=0, le=64, description="pad by so many pixels and crop at random")

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        """Pixels' pseudo-labels stay where they are."""
        if setting.task == "dense" and self != Augment():
            why = "pixels' labels do not move with an image that is mirrored or cropped"
            yield Remark("", "left out: students see plain samples", why, becomes=Augment())


class DataChoice(Choice):
    """What the teachers label."""

    slot = "distil.data"
    drawn: ClassVar[bool] = False
    """Whether samples are drawn once, before the first round, and kept."""
    labelled: ClassVar[bool] = False
    """Whether students learn the set's own labels, and no teacher is asked."""

    if TYPE_CHECKING:  # each of them has it, as its last option
        augment: Augment

    @property
    def drawn_anew(self) -> bool:
        """Whether every round draws samples of its own."""
        return False


class DataUnlabeled(DataChoice):
    """The federation's unlabelled data set on the server."""

    declares = Declares(needs=frozenset({"unlabeled"}))

    kind: Literal["unlabeled"] = "unlabeled"
    augment: Augment = Augment()


class DataLabeled(DataChoice):
    """The federation's data set on the server, named as `unlabeled`, with its own labels in place of the teachers'.

    What an ensemble's labels are worth is seen against it. Teachers are asked of the test set alone, to be measured.
    Positions whose label is ignored are not learnt.
    """

    declares = Declares(
        source="FedBE's ablation of targets",
        needs=frozenset({"unlabeled"}),
    )

    labelled = True
    kind: Literal["labeled"] = "labeled"
    augment: Augment = Augment()


class DataGenerated(DataChoice):
    """Samples of the generator, drawn once for the whole federation or anew in every round."""

    declares = Declares(source="FedGO D2; DaFKD", needs=frozenset({"generator"}))

    drawn = True
    kind: Literal["generated"] = "generated"
    count: int = Field(25_000, ge=1, le=10_000_000, description="samples")
    fresh: bool = Field(
        False,
        description="draw them anew in every round (DaFKD); where discriminators are read, each scores them there",
    )
    augment: Augment = Augment()

    @property
    def drawn_anew(self) -> bool:
        """Where it is asked for."""
        return self.fresh


class DataNoise(DataChoice):
    """Uniform noise within the task's range, drawn once: a lower bound for what data are worth."""

    drawn = True
    kind: Literal["noise"] = "noise"
    count: int = Field(10_000, ge=1, le=10_000_000, description="samples")
    low: DataValue = 0.0
    high: DataValue = 1.0
    augment: Augment = Augment()


Data = Annotated[DataChoice, ONE_OF]


# schedule: how long and how fast the student learns
class EarlyStop(Options):
    """Stop without improvement on the validation set; the best model is kept (FedDF 4.1)."""

    eval_every: int = Field(100, ge=1, le=STEPS, description="steps between evaluations")
    patience: int = Field(1000, ge=1, le=COUNT, description="steps without improvement")


class Swa(Options):
    """Cyclical learning rate and the mean of the models at the ends of cycles (FedBE section 5.1)."""

    lr_high: float = Field(1e-3, gt=0, le=10, description="rate at the start of a cycle")
    lr_low: float = Field(4e-4, gt=0, le=10, description="rate at its end, where weights are averaged")
    cycle: int = Field(25, ge=1, le=STEPS, description="steps")
    start: int = Field(250, ge=0, le=COUNT, description="steps before the first cycle that counts")


class Schedule(Options):
    """Optimiser, length and learning-rate curve of one distillation job."""

    optimizer: Optimizer = Adam()
    batch_size: int = Field(64, ge=1, le=65_536, description="samples a step")
    epochs: int | None = Field(None, ge=1, le=10_000, description="passes over the server set; or give steps")
    steps: int | None = Field(None, ge=1, le=STEPS, description="mini-batches; or give epochs")
    lr: Literal["constant", "cosine_per_job", "cosine_across_rounds"] = Field(
        "constant", description="FedDF restarts its cosine every round, FedGO's reaches zero in the last round"
    )
    clip_norm: float | None = Field(None, gt=0, le=VALUE, description="largest norm of a step's gradient")
    early_stop: EarlyStop | None = Field(None, description="end by the validation set; null: all steps")
    swa: Swa | None = Field(None, description="replaces `lr`; the students' batch_norm should be 'recalibrate'")

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        """Early stopping goes without a set to judge on."""
        if self.early_stop is not None and "validation" not in setting.sets:
            length = f"{self.steps} steps" if self.steps is not None else f"{self.epochs} epochs"
            yield Remark(
                "early_stop",
                f"left out: a distillation runs all of its {length}",
                "it stops by what is measured on datasets.validation, and there is none; name one for it",
                becomes=None,
            )
