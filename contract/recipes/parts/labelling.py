"""Choices of an ensemble: the teachers, what each counts, how they make one pseudo-label."""

from typing import Annotated, Literal

from pydantic import Field

from contract.local import Link
from contract.recipes.parts.base import Part


# members: the teachers
class MembersClients(Part):
    """The round's client models."""

    kind: Literal["clients"] = "clients"


class MembersGroups(Part):
    """The groups' means of this round and the rounds before: K R teachers for any number of clients (FedSDD)."""

    kind: Literal["groups"] = "groups"
    rounds: int = Field(1, ge=1, le=64, description="R; 4 for strong heterogeneity")


class SampleGaussian(Part):
    """Diagonal Gaussian around the weighted mean (FedBE eq. 5)."""

    kind: Literal["gaussian"] = "gaussian"
    scale: float = Field(0.1, ge=0, le=10, description="1 is eq. 5; the authors' runs used 0.1")


class SampleDirichlet(Part):
    """Random convex combinations, gamma ~ Dir(alpha) (FedBE eq. 6 and 7)."""

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0, le=100)


class SampleSwag(Part):
    """Mean, diagonal and low-rank deviations of the received models (FedDF Table 7)."""

    kind: Literal["swag"] = "swag"
    scale: float = Field(1.0, ge=0, le=10)


class MembersPosterior(Part):
    """Clients, their mean and models sampled from a posterior over them (FedBE section 4)."""

    kind: Literal["posterior"] = "posterior"
    clients: bool = True
    mean: bool = True
    samples: int = Field(10, ge=1, le=1000, description="M")
    posterior: Annotated[SampleGaussian | SampleDirichlet | SampleSwag, Field(discriminator="kind")] = SampleDirichlet()
    sample_batch_norm: bool = Field(True, description="sample BatchNorm statistics like weights (FedBE B.1)")


Members = Annotated[MembersClients | MembersGroups | MembersPosterior, Field(discriminator="kind")]


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
    link: Link = Field(
        "double_sigmoid",
        description="D = sigmoid(sigmoid(a)), odds within (1, e), as FedGO E.2; plain D = sigmoid(a); or `prob`: "
        "the discriminator has the option output = probability and gives D itself",
    )


WeighSimple = Annotated[
    WeighUniform | WeighSamples | WeighVariance | WeighEntropy | WeighDafkd | WeighOdds,
    Field(discriminator="kind"),
]


class WeighProduct(Part):
    """A product of weightings, normalised over teachers: the sum of their logarithms."""

    kind: Literal["product"] = "product"
    factors: tuple[WeighSimple, ...] = Field(min_length=2, max_length=6)


Weigh = Annotated[
    WeighUniform | WeighSamples | WeighVariance | WeighEntropy | WeighDafkd | WeighOdds | WeighProduct,
    Field(discriminator="kind"),
]


# combine: teachers -> pseudo-label
class CombineLogits(Part):
    """Softmax of the weighted mean of logits (FedDF AVGLOGITS, FedGO)."""

    kind: Literal["logits"] = "logits"


class CombineProbs(Part):
    """Weighted mean of probabilities (FedBE eq. 4)."""

    kind: Literal["probs"] = "probs"
    sharpen: float | None = Field(None, gt=0, le=100, description="power p^s / sum p^s; FedBE takes 2")


class CombineEra(Part):
    """Softmax of the mean probabilities at a low temperature: entropy reduction (DS-FL)."""

    kind: Literal["era"] = "era"
    temperature: float = Field(0.1, gt=0, le=100)


class CombineConsensus(Part):
    """The weighted consensus's hard label, and the weighted vote of those who disagree (Fed-ET eq. 4 to 8)."""

    kind: Literal["consensus"] = "consensus"


Combine = Annotated[CombineLogits | CombineProbs | CombineEra | CombineConsensus, Field(discriminator="kind")]
