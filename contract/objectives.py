"""What an objective of devices is, with DaFKD's and Reflux's; the others stand with the plan, in `contract.local`."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from contract.bodies import LISTED
from contract.bounds import ROUNDS, VALUE, DataValue, FreeOptions, Reference
from contract.choices import Carried, Choice, Declares, Only, Partner, Sent
from contract.optimizers import Adam
from contract.passes import Passes
from contract.tensors import Header, TensorError
from contract.updates import DISCRIMINATOR, GENERATOR, SENT_GENERATOR, Layout, features_of

if TYPE_CHECKING:
    from contract.architectures import Role


class ClientObjective(Choice):
    """What a device minimises on its own data, and what it sends beside the weights, or instead of them."""

    slot = "local.objective"
    sends_weights: ClassVar[bool] = True
    starts_at_model: ClassVar[bool] = True  # or its distance from that model says nothing
    shaped_by: ClassVar[str | None] = None
    """Which of the files that come beside the model the shapes of `adds` follow, by the names of `contract.updates`."""

    @property
    def networks(self) -> "tuple[tuple[Role, str, dict[str, Any]], ...]":
        """Role, architecture and options of the networks that are trained beside the model."""
        return ()

    def adds(self, base: Header, num_classes: int, beside: Header | None) -> Layout:
        """Return the tensors that an update has beside the weights, in file order; arguments as `contract.layout`'s.

        Raises:
            TensorError: the model, or what came beside it, is not what the objective needs.
        """
        return {}

    def passes(self, epochs: int) -> Passes:
        """Return how often samples go through the network; what only measures is not counted."""
        return Passes(epochs)

    def check(self, plan: Any) -> None:
        """Refuse a plan, a `LocalPlan`, that this objective does not go with.

        Raises:
            ValueError: names the field, says why, and what to do.
        """


JOINT_GENERATOR = Carried(SENT_GENERATOR, follows="round", sent=True)
_Rounds = Annotated[int, Field(ge=0, le=ROUNDS)]


class DafkdObjective(ClientObjective):
    """Cross-entropy, and a discriminator on the classifier's own features, against a generator that learns from it.

    The features are the trunk that both share. Trunk, classifier and generator are averaged; the discriminator's head
    is the device's own: it goes to the server with the update, which reads it for that round's teacher.
    """

    declares = Declares(
        source="DaFKD",
        needs=frozenset({"features"}),
        reads=(SENT_GENERATOR,),
        partner=Partner(
            "joint_mean", "the objective 'dafkd' trains generators, which 'joint_mean' alone averages; set fuse"
        ),
        sends=(Sent("a generator, and a discriminator's head,", "take the recipe dafkd-lite or feddf"),),
        only=Only(
            frozenset({"classification"}),
            "its discriminator judges one vector of features a sample",
            "'sgd', 'fedprox' or 'scaffold', as the recipe dafkd-lite",
        ),
    )

    shaped_by = SENT_GENERATOR
    kind: Literal["dafkd"] = "dafkd"
    architecture: Reference = Field("gen-mlp", description="of the generator")
    options: FreeOptions = Field(default_factory=dict, description="of the generator's network")
    optimizer: Adam = Field(
        Adam(lr=1e-3, betas=(0.5, 0.99), weight_decay=1e-4),
        description="of the generator; the discriminator's head moves by the plan's, as the model",
    )
    penalty: float = Field(
        0.3, ge=0, le=VALUE, description="weight of (||grad D||_2 - 1)^2 between real and generated samples; 0: none"
    )
    discriminator_rounds: _Rounds | None = Field(
        None, description="so many rounds train the discriminator; null: all. The authors' code: 3"
    )
    generator_rounds: _Rounds | None = Field(
        None, description="so many rounds train the generator; null: all. The authors' code: 5"
    )
    input_range: Annotated[tuple[DataValue, DataValue], LISTED] = Field(
        (0.0, 1.0), description="data values that map to -1 and 1"
    )

    @model_validator(mode="after")
    def _range_ascends(self) -> "DafkdObjective":
        if not self.input_range[1] > self.input_range[0]:
            raise ValueError("input_range: the upper end must be above the lower")
        return self

    @property
    def networks(self) -> "tuple[tuple[Role, str, dict[str, Any]], ...]":
        """The generator."""
        return (("generator", self.architecture, self.options),)

    def adds(self, base: Header, num_classes: int, beside: Header | None) -> Layout:
        """The generator, in the shapes of the one that was sent, and the discriminator's head on the features."""
        if beside is None:
            raise TensorError("tensors", "DaFKD trains a generator on from the one that is sent, which did not come")
        width = features_of(base)
        head: Layout = {DISCRIMINATOR + "weight": ("F32", (1, width)), DISCRIMINATOR + "bias": ("F32", (1,))}
        return {GENERATOR + name: (info.dtype, info.shape) for name, info in beside.tensors.items()} | head

    def trains(self, round_index: int) -> tuple[bool, bool]:
        """Return whether a round, 1 for the first, trains the discriminator, and the generator."""
        limits = (self.discriminator_rounds, self.generator_rounds)
        first, second = (limit is None or round_index <= limit for limit in limits)
        return first, second

    def passes(self, epochs: int) -> Passes:
        """Real samples, as many generated ones, those between them, and those that the generator learns from."""
        return Passes(4 * epochs)


class PriorAdjustedObjective(ClientObjective):
    """Cross-entropy of logits + lambda ln pi, pi the classes' shares on the device: what it lacks is not unlearnt.

    The offset is for training alone: the network is sent without it, and the shares stay on the device.
    """

    declares = Declares(
        source="logit adjustment, Menon et al. 2021; balanced softmax, Ren et al. 2020",
        only=Only(
            frozenset({"classification"}),
            "it shifts logits by the classes' shares",
            "'sgd', 'fedprox' or 'scaffold'",
        ),
    )

    kind: Literal["prior_adjusted_ce"] = "prior_adjusted_ce"
    weight: float = Field(0.5, ge=0, le=100, description="lambda; 0 is cross-entropy")
    eps: float = Field(0.1, gt=0, le=VALUE, description="added to the number of samples of every class")

    def check(self, plan: Any) -> None:
        """Refuse differential privacy."""
        if plan.privacy is not None:
            raise ValueError(
                "privacy: the classes' shares on a device, which move every gradient, get no noise; take the objective "
                "sgd or fedprox, or leave local.privacy out"
            )
