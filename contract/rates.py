"""How much devices do from round to round: how their learning rate falls, and who does a part of the work."""

import math
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from contract.bodies import LISTED
from contract.choices import ONE_OF, Choice, Declares, Implementations, Options
from contract.seeds import derive_seed

Share = Annotated[float, Field(gt=0, lt=1)]


class RateChoice(Choice):
    """What becomes of the optimiser's learning rate over the rounds."""

    slot = "local.rate_over_rounds"


class RateSteps(RateChoice):
    """The rate is multiplied by a factor each time that a share of the rounds is over."""

    declares = Declares(source="FedBE section 5.1")

    kind: Literal["steps"] = "steps"
    at: Annotated[tuple[Share, ...], LISTED] = Field(
        (0.3, 0.6), min_length=1, max_length=32, description="shares of rounds.total; FedBE: after 30 % and 60 %"
    )
    factor: float = Field(0.1, gt=0, le=1)


class RateCosine(RateChoice):
    """The rate falls along half a cosine: in round t of T it is lr/2 (1 + cos(pi (t - 1) / T)), `least` lr at least."""

    declares = Declares(source="Loshchilov & Hutter 2017, eq. 5, by round")

    kind: Literal["cosine"] = "cosine"
    least: float = Field(0.0, ge=0, lt=1, description="share of the rate that it falls to, never quite in T rounds")


class RateExponential(RateChoice):
    """The rate is multiplied by a factor after every round."""

    declares = Declares(source="Reddi et al. 2021, section 5 compares such schedules")

    kind: Literal["exponential"] = "exponential"
    factor: float = Field(0.99, gt=0, le=1)


implements = Implementations[Any]()


@implements(RateSteps)
def _steps(rate: RateSteps, index: int, total: int) -> float:
    over = Fraction(index - 1, total)  # exact: 0.3 of 10 rounds is over after three
    return float(rate.factor ** sum(over >= Fraction(str(share)) for share in rate.at))


@implements(RateCosine)
def _cosine(rate: RateCosine, index: int, total: int) -> float:
    return rate.least + (1 - rate.least) / 2 * (1 + math.cos(math.pi * (index - 1) / total))


@implements(RateExponential)
def _exponential(rate: RateExponential, index: int, total: int) -> float:
    return float(rate.factor ** (index - 1))


def factor_of(rate: RateChoice | None, index: int, total: int) -> float:
    """Return what the learning rate is multiplied by in round `index` of `total`; 1 in the first round.

    Rounds after the last, which a plan that was cut short can have, are as the last.
    """
    return 1.0 if rate is None else float(implements.of(rate)(rate, min(index, total), total))


class PartialWork(Options):
    """Devices that do a part of the work: in every round each draws its own number of epochs.

    FedBE Table 6 draws E_i from (0, 20]; here it is a whole number, every one from `least` to `epochs` alike.
    """

    least: int = Field(1, ge=1, le=10_000, description="fewest epochs; the most are those of the plan")

    def draw(self, epochs: int, seed: int, index: int, client: str) -> int:
        """Return the epochs of a client in a round; the same for the same seed and names (ADR 8)."""
        span = epochs - self.least + 1
        return self.least + derive_seed(seed, "round", index, "client", client, "epochs") % span


RateOverRounds = Annotated[RateChoice, ONE_OF]


class Variation(Options):
    """What plans have beside one round's training: how it varies over rounds and devices."""

    rate_over_rounds: RateOverRounds | None = Field(
        None, exclude_if=lambda value: value is None, description="null: the optimiser's rate in every round"
    )
    partial_work: PartialWork | None = Field(
        None, exclude_if=lambda value: value is None, description="null: everybody trains `epochs` epochs"
    )

    @model_validator(mode="after")
    def _some_work(self) -> "Variation":
        epochs, partial = getattr(self, "epochs", None), self.partial_work
        if partial is not None and epochs is not None and partial.least > epochs:
            raise ValueError(f"partial_work.least: {partial.least} epochs at least, of {epochs}")
        return self
