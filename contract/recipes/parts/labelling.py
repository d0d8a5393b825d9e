"""Choices of an ensemble: the teachers, what each counts, how they make one pseudo-label."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from contract.bodies import LISTED
from contract.bounds import VALUE
from contract.choices import ONE_OF, Carried, Choice, Declares, Need, Only, Sent
from contract.local import Link
from contract.notes import Remark, Setting
from contract.plugins import OPEN
from contract.tasks import OF_CLASSES


# members: the teachers
class MembersChoice(Choice):
    """Who the teachers are."""

    slot = "distil.members"
    are_clients: ClassVar[bool] = False
    """Whether they are the round's clients, each by its own name, and nobody else."""
    are_groups: ClassVar[bool] = False
    """Whether they are means of random groups."""
    counts_absent: ClassVar[bool] = False
    """Whether clients teach, or count, that are registered and did not take part in the round."""

    @property
    def hears_clients(self) -> bool:
        """Whether the round's clients teach, each by its own model, whoever else does."""
        return self.are_clients or self.counts_absent

    @property
    def earlier_rounds(self) -> int:
        """Of how many rounds before the models teach, beside the round's own."""
        return 0

    def lighter(self, needed: int) -> "MembersChoice | None":
        """Return what takes its place where it would keep so many bytes; None where that is no more than it may."""
        return None


class MembersClients(MembersChoice):
    """The round's client models."""

    are_clients = True
    kind: Literal["clients"] = "clients"


PAST = Carried("past", follows="round", each_round=True)
COUNTED = Carried("counted", follows="round", each_round=True)
"""What a group's clients count together, where a weighting counts clients: their samples, their odds."""


class MembersGroups(MembersChoice):
    """The groups' means of this round and the rounds before: K R teachers for any number of clients.

    A weighting that counts clients (`samples`, `odds`, `dafkd`) gives a group the sum of what its clients count, and
    nothing to one that nobody trained in its round.
    """

    declares = Declares(source="FedSDD", carries=(PAST, COUNTED))

    kind: Literal["groups"] = "groups"
    are_groups = True
    rounds: int = Field(1, ge=1, le=64, description="R; 4 for strong heterogeneity")

    @property
    def earlier_rounds(self) -> int:
        """R - 1."""
        return self.rounds - 1


BANK = Carried("bank", follows="round", tells_of="client")


class MembersAnchor(MembersChoice):
    """The round's client models, and the model that they started from, which counts what the absent clients would.

    In the first round nobody has trained that model yet, and the clients teach alone.
    """

    declares = Declares(source="Reflux")

    kind: Literal["anchor"] = "anchor"
    counts_absent = True


class MembersBank(MembersChoice):
    """Every client that was ever in a round and is still registered: the absent ones by what they said last.

    What a client's model says of the server's sets is kept until it is in a round again.
    """

    declares = Declares(source="Reflux", carries=(BANK,))

    kind: Literal["bank"] = "bank"
    counts_absent = True
    max_mib: int = Field(
        512,
        ge=1,
        le=1_048_576,
        description="the most that may be kept, in MiB, of all registered clients: 4 bytes a sample of the server's "
        "sets and output; where they would need more, the round's teachers are those of 'anchor'",
    )

    def lighter(self, needed: int) -> MembersChoice | None:
        """Return the anchor, which keeps nothing."""
        return MembersAnchor() if needed > self.max_mib * 2**20 else None


class PosteriorChoice(Choice):
    """What members are drawn from."""

    slot = "distil.members.posterior"


class SampleGaussian(PosteriorChoice):
    """Diagonal Gaussian around the weighted mean."""

    declares = Declares(source="FedBE eq. 5")

    kind: Literal["gaussian"] = "gaussian"
    scale: float = Field(0.1, ge=0, le=10, description="1 is eq. 5; the authors' runs used 0.1")


class SampleDirichlet(PosteriorChoice):
    """Random convex combinations, gamma ~ Dir(alpha)."""

    declares = Declares(source="FedBE eq. 6 and 7")

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0, le=100)


class SampleSwag(PosteriorChoice):
    """Mean, diagonal and low-rank deviations of the received models."""

    declares = Declares(source="FedDF Table 7")

    kind: Literal["swag"] = "swag"
    scale: float = Field(1.0, ge=0, le=10)


class MembersPosterior(MembersChoice):
    """Clients, their mean and models sampled from a posterior over them, or some of the three."""

    declares = Declares(source="FedBE section 4")

    kind: Literal["posterior"] = "posterior"
    clients: bool = Field(True, description="C: every client's model teaches")
    mean: bool = Field(
        True, description="A: their mean teaches; alone, and without augmentation, it has nothing to say (FedBE C.3)"
    )
    samples: int = Field(10, ge=0, le=1000, description="M of S: so many samples teach; 0 for none")
    posterior: Annotated[PosteriorChoice, ONE_OF] = SampleGaussian()
    sample_batch_norm: bool = Field(True, description="sample BatchNorm statistics like weights (FedBE B.1)")

    @property
    def hears_clients(self) -> bool:
        """They do, unless mean and samples teach alone."""
        return self.clients


Members = Annotated[MembersChoice, ONE_OF]


CONFIDENT = Only(
    OF_CLASSES,
    "a regression's values say nothing of how sure a teacher is",
    "'uniform', 'samples', or 'odds' of discriminators (fedgo)",
)
"""Of what reads how sure a teacher is of its classes."""


# weigh: how much each teacher counts, per sample
class WeighChoice(Choice):
    """How much each teacher counts, sample by sample."""

    slot = "distil.weigh"

    @property
    def factors_of(self) -> "tuple[WeighChoice, ...]":
        """What it is a product of; itself, where it is none."""
        return (self,)

    @property
    def counts_clients(self) -> bool:
        """Whether it reads what clients alone have."""
        return "scores" in self.needs

    @property
    def balances(self) -> bool:
        """Whether a client's weights hang on what all registered clients' discriminators say."""
        return False


class WeighFactor(WeighChoice):
    """A weighting that can be a factor of a product."""


class WeighUniform(WeighFactor):
    """1/m for each of the m teachers."""

    declares = Declares(source="FedDF")

    kind: Literal["uniform"] = "uniform"


class WeighSamples(WeighFactor):
    """n_k / n, the same for every sample."""

    kind: Literal["samples"] = "samples"

    @property
    def counts_clients(self) -> bool:
        """It counts clients' samples."""
        return True


class WeighVariance(WeighFactor):
    """Variance over the classes of a teacher's output, normalised over teachers."""

    declares = Declares(source="Fed-ET eq. 3", only=CONFIDENT)

    kind: Literal["variance"] = "variance"
    space: Literal["probs", "logits"] = Field("probs", description="Fed-ET: probs; FedGO describes logits")


class WeighEntropy(WeighFactor):
    """Softmax over teachers of -H(softmax f_k) / tau."""

    declares = Declares(source="FedHKT, FedDS, as compared by FedGO", only=CONFIDENT)

    kind: Literal["entropy"] = "entropy"
    tau: float = Field(1.0, gt=0, le=VALUE, description="temperature: the larger, the more alike teachers count")


DISCRIMINATOR = Sent("a discriminator of its data", noised="trained by DP-SGD like the model", when="before")


class WeighDafkd(WeighFactor):
    """The discriminator's probability D, normalised over teachers."""

    declares = Declares(source="DaFKD", needs=frozenset({"scores"}), sends=(DISCRIMINATOR,))

    kind: Literal["dafkd"] = "dafkd"
    link: Link = Field(
        "sigmoid",
        description="D = sigmoid(a), as DaFKD; sigmoid(sigmoid(a)), between 0.5 and 0.73, as FedGO compares it (Fig. "
        "2); or `prob`: the discriminator has the option output = probability and gives D itself",
    )


class WeighOdds(WeighFactor):
    """n_k times the discriminator's odds D/(1-D), normalised over teachers."""

    declares = Declares(source="FedGO eq. 9", needs=frozenset({"scores"}), sends=(DISCRIMINATOR,))

    kind: Literal["odds"] = "odds"
    link: Link = Field(
        "double_sigmoid",
        description="D = sigmoid(sigmoid(a)), odds within (1, e), as FedGO E.2; plain D = sigmoid(a); or `prob`: "
        "the discriminator has the option output = probability and gives D itself",
    )


CLAIMS = Carried("claims", follows="round", tells_of="all")


class WeighBalancedOdds(WeighFactor):
    """Odds of one sigmoid, scaled until every server sample has total 1 and every registered client its share n_k / n.

    Scales of clients and of samples are found in turn on the whole server set (Sinkhorn), once for all rounds: again
    when a client joins or leaves, or declares another number of samples.
    """

    declares = Declares(
        source="FedGO eq. 9; Sinkhorn & Knopp 1967",
        needs=frozenset({"scores"}),
        carries=(CLAIMS,),
        sends=(DISCRIMINATOR,),
    )

    kind: Literal["balanced_odds"] = "balanced_odds"
    sweeps: int = Field(50, ge=0, le=10_000, description="over samples and clients; 0 for plain odds")
    sharpness: float = Field(
        1.0,
        gt=0,
        le=100,
        description="beta, what log-odds are multiplied by before they are balanced; above 1 where clients have few "
        "samples, and their discriminators took few steps",
    )

    @property
    def balances(self) -> bool:
        """It does."""
        return True


class WeighProduct(WeighChoice):
    """A product of weightings, normalised over teachers: the sum of their logarithms.

    A factor that is 0 for all teachers of a sample is left out there.
    """

    kind: Literal["product"] = "product"
    factors: Annotated[tuple[Annotated[WeighFactor, OPEN], ...], LISTED] = Field(min_length=2, max_length=6)

    @property
    def needs(self) -> frozenset[Need]:
        """What any of the factors needs."""
        return frozenset(need for factor in self.factors for need in factor.needs)

    @property
    def only(self) -> Only | None:
        """What the first factor asks that asks anything."""
        return next((factor.only for factor in self.factors if factor.only is not None), None)

    @property
    def factors_of(self) -> tuple[WeighChoice, ...]:
        """The factors."""
        return self.factors

    @property
    def counts_clients(self) -> bool:
        """Whether any of the factors does."""
        return any(factor.counts_clients for factor in self.factors)

    @property
    def balances(self) -> bool:
        """Whether any of the factors does."""
        return any(factor.balances for factor in self.factors)


Weigh = Annotated[WeighChoice, OPEN]


# combine: teachers -> pseudo-label
class CombineChoice(Choice):
    """How the teachers' outputs make one pseudo-label."""

    slot = "distil.combine"


PROBABILITIES = Only(OF_CLASSES, "a regression's values are no probabilities", "'logits', the mean of the outputs")


class CombineLogits(CombineChoice):
    """Softmax of the weighted mean of logits; of regressions, the weighted mean of their values."""

    declares = Declares(source="FedDF AVGLOGITS, FedGO")

    kind: Literal["logits"] = "logits"


class CombineProbs(CombineChoice):
    """Weighted mean of probabilities."""

    declares = Declares(source="FedBE eq. 4", only=PROBABILITIES)

    kind: Literal["probs"] = "probs"
    sharpen: float | None = Field(None, gt=0, le=100, description="power p^s / sum p^s; FedBE takes 2")

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        """Of a regression the values themselves are averaged, unless something else is asked for."""
        if setting.task == "regression":
            why = "a regression's values are no probabilities, and their mean is what they say together"
            yield Remark("", "'logits': the mean of the outputs", why, becomes=CombineLogits())


class CombineEra(CombineChoice):
    """Softmax of the mean probabilities at a low temperature: entropy reduction."""

    declares = Declares(source="DS-FL", only=PROBABILITIES)

    kind: Literal["era"] = "era"
    temperature: float = Field(0.1, gt=0, le=100, description="the lower, the sharper the label")


class CombineConsensus(CombineChoice):
    """The weighted consensus's hard label, and the weighted vote of those who disagree."""

    declares = Declares(
        source="Fed-ET eq. 4 to 8",
        only=Only(
            frozenset({"classification"}),
            "a consensus is one class a sample",
            "'logits' or 'probs' with the objective 'kl', and the recipe feddf",
        ),
    )

    kind: Literal["consensus"] = "consensus"


Combine = Annotated[CombineChoice, ONE_OF]
