"""A recipe: the whole composition of parts that fuses a round. It travels as JSON and is stored with its models."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from contract.recipes import parts


class Distillation(BaseModel):
    """The part of a recipe that runs networks: teachers label server data, students learn from the labels."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    members: parts.Members = parts.MembersClients()
    weigh: parts.Weigh = parts.WeighUniform()
    combine: parts.Combine = parts.CombineLogits()
    objective: parts.DistilObjective = parts.ObjectiveKl()
    students: parts.Students = parts.StudentsPrototypes()
    data: parts.Data = parts.DataUnlabeled()
    schedule: parts.Schedule = parts.Schedule(epochs=10)


class Recipe(BaseModel):
    """How a round becomes the next global model.

    `distil` is null for recipes that only average. `discriminators` is there when a weighting reads them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.+_-]{0,63}$", examples=["fedgo"])
    groups: parts.Groups = parts.GroupsPrototype()
    fuse: parts.Fuse = parts.FuseWeightedMean()
    distil: Distillation | None = None
    discriminators: parts.Discriminators | None = None

    @property
    def needs_networks(self) -> bool:
        """Whether fusing a round runs a network, and thus needs torch and registered architectures."""
        return self.distil is not None

    @model_validator(mode="after")
    def _mixture_is_possible(self) -> "Recipe":
        weigh = self.distil.weigh.kind if self.distil else None
        if weigh in ("odds", "dafkd") and self.discriminators is None:
            raise ValueError(f"distil.weigh: {weigh!r} reads discriminators; add the part 'discriminators'")
        if weigh not in ("odds", "dafkd") and self.discriminators is not None:
            raise ValueError("discriminators: no weighting reads them; leave the part out or weigh by 'odds'")
        if self.distil:
            schedule = self.distil.schedule
            if (schedule.epochs is None) == (schedule.steps is None):
                raise ValueError("distil.schedule: give either epochs or steps")
        return self


def discriminator_link(recipe: Recipe) -> str:
    """Return the link through which discriminators are trained: 'double_sigmoid' or 'sigmoid'."""
    weigh = recipe.distil.weigh if recipe.distil else None
    return weigh.link if isinstance(weigh, parts.WeighOdds) else "sigmoid"


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` laid over it, nested; a changed `kind` replaces that part whole."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("kind", old.get("kind")) == old.get("kind"):
            result[key] = merge(old, value)
        else:
            result[key] = value
    return result
