"""How much an update counts that began from an older model, in rounds that do not wait: one class per choice."""

from typing import Annotated, Literal

from pydantic import Field

from contract.choices import ONE_OF, Choice, Declares


class StalenessChoice(Choice):
    """The factor s of an update whose model has been replaced so many times since; 1 of one that is fresh."""

    slot = "rounds.staleness"


class StalenessPolynomial(StalenessChoice):
    """(1 + staleness)^-exponent: with 0.5, FedBuff's 1 / sqrt(1 + staleness)."""

    declares = Declares(source="FedBuff, Nguyen et al. 2022, section 5; FedAsync, Xie et al. 2019, section 5.2")

    kind: Literal["polynomial"] = "polynomial"
    exponent: float = Field(0.5, ge=0, le=10, description="a; 0 is 'constant'")


class StalenessConstant(StalenessChoice):
    """1, whatever the age: `max_staleness` alone bounds it."""

    declares = Declares(source="FedAsync, Xie et al. 2019, section 5.2")

    kind: Literal["constant"] = "constant"


Staleness = Annotated[StalenessChoice, ONE_OF]
