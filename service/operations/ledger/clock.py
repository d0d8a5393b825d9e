"""The clock, as operations see it; `service.infra.clock` has it for all."""

from service.infra.clock import (
    A_DAY,
    PATIENCE,
    SLACK,
    STEPS,
    Step,
    is_due,
    is_impossible,
    is_recent,
    now,
    patient,
    recent,
    went_back,
)

__all__ = [
    "A_DAY",
    "PATIENCE",
    "SLACK",
    "STEPS",
    "Step",
    "is_due",
    "is_impossible",
    "is_recent",
    "now",
    "patient",
    "recent",
    "went_back",
]
