"""What is kept of a federation, and for how long."""

from typing import Annotated, Literal

from pydantic import Field

from contract.bodies import Part
from contract.bounds import ROUNDS

Rounds = Annotated[int, Field(ge=0, le=ROUNDS)]


class Retention(Part):
    """Which blobs stay. What a document of provenance names but was removed is shown there as removed.

    Never removed: current models, what a round that is collected or fused reads, and what nobody asked to remove.
    """

    updates: Rounds | Literal["all"] = Field(
        0,
        description="published rounds, from the newest back, whose updates stay, with the state that they read: "
        "`potstill replay` needs them. 0 removes a round's updates in the moment it is published",
        examples=[0, 3, "all"],
    )
    models: Annotated[int, Field(ge=1, le=ROUNDS)] | Literal["all"] = Field(
        "all", description="published rounds, from the newest back, whose models stay", examples=["all", 10]
    )
    ensembles: Annotated[int, Field(ge=1, le=100_000)] | Literal["all"] = Field(
        1,
        description="published rounds, from the newest back, whose ensembles stay; `rounds.keep_ensemble` makes them",
        examples=[1, 3, "all"],
    )
    predictions: Annotated[int, Field(ge=1, le=10_000)] = Field(
        20, description="predictions, from the newest back, whose files stay"
    )
    discriminators: bool = Field(True, description="keep discriminators and their scores after the federation's end")
    samples: bool = Field(True, description="keep generated samples after the federation's end")
    days: float | None = Field(
        None,
        ge=0,
        le=36_500,
        description="days after a federation's end until all but its current models is removed; null: never",
    )
