"""What every choice of a recipe has in common."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base of every choice: unknown options are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
