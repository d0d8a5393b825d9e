"""A recipe's parts: one options model per choice. Data only: the arithmetic is in `worker.parts`.

Sources: FedDF (Lin et al. 2020), FedBE (Chen & Chao 2021), Fed-ET (Cho et al. 2022), FedSDD (Kwon et al.), FedGO.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from contract.local import Adam, DiscriminatorPlan, Optimizer


class Part(BaseModel):
    """Base of every choice: unknown options are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# groups: who is averaged with whom
class GroupsPrototype(Part):
    """Clients of one prototype are averaged together; with a single prototype that is everybody (FedDF Alg. 3)."""

    kind: Literal["prototype"] = "prototype"


Groups = Annotated[GroupsPrototype, Field()]


# fuse: weights -> weights
class FuseWeightedMean(Part):
    """Sum of n_k / n times theta_k; integer buffers take the maximum (FedAvg; FedDF Alg. 1 line 6)."""

    kind: Literal["weighted_mean"] = "weighted_mean"


class FuseUniformMean(Part):
    """Every client counts the same (FedDF C.4.1)."""

    kind: Literal["uniform_mean"] = "uniform_mean"


Fuse = Annotated[FuseWeightedMean | FuseUniformMean, Field(discriminator="kind")]


# members: the teachers
class MembersClients(Part):
    """The round's client models."""

    kind: Literal["clients"] = "clients"


Members = Annotated[MembersClients, Field()]


# weigh: how much each teacher counts, per sample
class WeighUniform(Part):
    """1/m for each of the m teachers (FedDF)."""

    kind: Literal["uniform"] = "uniform"


class WeighSamples(Part):
    """n_k / n, the same for every sample."""

    kind: Literal["samples"] = "samples"


class WeighVariance(Part):
    """Variance over the classes of a teacher's output, normalised over teachers (Fed-ET eq. 3)."""

    kind: Literal["variance"] = "variance"
    space: Literal["probs", "logits"] = Field("probs", description="Fed-ET: probs; FedGO describes logits")


class WeighEntropy(Part):
    """Softmax over teachers of -H(softmax f_k) / tau (FedHKT, FedDS, as compared by FedGO)."""

    kind: Literal["entropy"] = "entropy"
    tau: float = Field(1.0, gt=0, allow_inf_nan=False)


class WeighDafkd(Part):
    """D_k / sum D with the single-sigmoid discriminator (DaFKD)."""

    kind: Literal["dafkd"] = "dafkd"


class WeighOdds(Part):
    """n_k times the discriminator's odds D/(1-D), normalised over teachers (FedGO eq. 9)."""

    kind: Literal["odds"] = "odds"
    link: Literal["double_sigmoid", "sigmoid"] = Field(
        "double_sigmoid",
        description="D = sigmoid(sigmoid(a)), odds within (1, e), as FedGO E.2; or plain D = sigmoid(a)",
    )


Weigh = Annotated[
    WeighUniform | WeighSamples | WeighVariance | WeighEntropy | WeighDafkd | WeighOdds,
    Field(discriminator="kind"),
]


# combine: teachers -> pseudo-label
class CombineLogits(Part):
    """Softmax of the weighted mean of logits (FedDF AVGLOGITS, FedGO)."""

    kind: Literal["logits"] = "logits"


class CombineProbs(Part):
    """Weighted mean of probabilities (FedBE eq. 4)."""

    kind: Literal["probs"] = "probs"


Combine = Annotated[CombineLogits | CombineProbs, Field(discriminator="kind")]


# objective: what the student minimises
class ObjectiveKl(Part):
    """T^2 KL(teacher_T || student_T), mean over the batch (FedDF; the T^2 of Hinton et al.)."""

    kind: Literal["kl"] = "kl"
    temperature: float = Field(1.0, gt=0, le=100)
    scale_t2: bool = Field(True, description="multiply by T^2 so that gradients keep their size")


class ObjectiveSoftCe(Part):
    """Cross-entropy to the soft target; the same gradient as KL at T = 1 (FedBE)."""

    kind: Literal["soft_ce"] = "soft_ce"


DistilObjective = Annotated[ObjectiveKl | ObjectiveSoftCe, Field(discriminator="kind")]


# students: who learns
class StudentsPrototypes(Part):
    """The average of every prototype that had participants (FedDF Alg. 3); with one prototype, the average."""

    kind: Literal["prototypes"] = "prototypes"
    batch_norm: Literal["train", "frozen"] = Field("train", description="running statistics follow the server set")


Students = Annotated[StudentsPrototypes, Field()]


# data: what the teachers label
class DataUnlabeled(Part):
    """The federation's unlabelled data set on the server."""

    kind: Literal["unlabeled"] = "unlabeled"


Data = Annotated[DataUnlabeled, Field()]


# schedule: how long and how fast the student learns
class EarlyStop(Part):
    """Stop without improvement on the validation set; the best model is kept (FedDF 4.1)."""

    eval_every: int = Field(100, ge=1, description="steps between evaluations")
    patience: int = Field(1000, ge=1, description="steps without improvement")


class Schedule(Part):
    """Optimiser, length and learning-rate curve of one distillation job."""

    optimizer: Optimizer = Adam()
    batch_size: int = Field(64, ge=1, le=65_536)
    epochs: int | None = Field(None, ge=1, le=10_000, description="passes over the server set; or give steps")
    steps: int | None = Field(None, ge=1, le=1_000_000, description="mini-batches; or give epochs")
    lr: Literal["constant", "cosine_per_job", "cosine_across_rounds"] = Field(
        "constant", description="FedDF restarts its cosine every round, FedGO's reaches zero in the last round"
    )
    clip_norm: float | None = Field(None, gt=0)
    early_stop: EarlyStop | None = None


# generator: where the discriminators' fakes come from
class GeneratorWganGp(Part):
    """G1: a WGAN-GP that the worker trains on the unlabelled server set (FedGO E.2)."""

    kind: Literal["wgan_gp"] = "wgan_gp"
    architecture: str = "gen-mlp"
    options: dict[str, Any] = Field(default_factory=dict)
    critic_architecture: str = "disc-mlp"
    critic_options: dict[str, Any] = Field(default_factory=lambda: {"hidden": [128, 128]})
    steps: int = Field(25_000, ge=0, le=1_000_000, description="generator steps; 0 leaves it as initialised (Table 12)")
    critic_steps: int = Field(5, ge=1, le=100, description="critic steps per generator step")
    penalty: float = Field(10.0, gt=0, description="weight of the gradient penalty")
    optimizer: Adam = Adam(lr=2e-4, betas=(0.0, 0.9))
    batch_size: int = Field(64, ge=1, le=65_536)


class Discriminators(Part):
    """Stage before the first round: a generator is made, then every client trains one discriminator (FedGO)."""

    generator: GeneratorWganGp = GeneratorWganGp()
    plan: DiscriminatorPlan = DiscriminatorPlan()
    deadline_seconds: int = Field(3600, ge=1, le=30 * 86_400, description="go on with those who delivered")
