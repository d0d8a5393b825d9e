"""In how many bits devices train and send weights."""

from typing import Literal

from pydantic import Field

from contract.choices import Choice, Declares, OneBase


class PrecisionChoice(Choice):
    """In how many bits weights are trained and sent."""

    slot = "local.precision"


class BinaryPrecision(PrecisionChoice):
    """Train and send one bit a weight and one scale an output channel, through a straight-through estimator."""

    declares = Declares(one_base=OneBase("bits stand for weights, not for their change", "null, full precision"))

    kind: Literal["binary"] = "binary"
    error_feedback: bool = Field(
        False, description="gone: refused in new federations, and without effect in those that have it"
    )
