"""What an operator changes of a federation that runs: how devices train, how rounds go, how long students learn."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field, model_validator

from contract.bodies import Part
from contract.bounds import CLIENTS, ROUNDS, STEPS, DataValue
from contract.local import LocalChanges, LocalPlan
from contract.recipes.parts import Schedule
from contract.staleness import Staleness
from contract.wire.common import Name, Request, Response
from contract.wire.plans import PER_CLIENT, STALEST, ClientsPerRound, Explain, Late, OnDeadline, RoundsPlan

_FIXED = {
    "local.objective": "what devices keep and send hangs on it",
    "local.precision": "what devices send hangs on it",
    "local.privacy": "what devices were promised and have spent hangs on it",
    "rounds.gate": "models that were measured by one gate are not judged by another",
    "rounds.on_bad_teacher": "whether groups run ahead hangs on it",
    "rounds.min_clients": "it is of the first round",
    "rounds.max_samples_per_client": "devices that enrolled were held to it",
    "rounds.metrics": "what workers need for them was looked for before the first round",
    "rounds.mode": "what devices have begun hangs on it",
    "rounds.secure": "what the service may see was promised to the devices",
    "recipe": "what is kept from round to round hangs on it; `schedule` can be changed",
    "task": "every model is for it",
    "prototypes.*.architecture": "every model has its tensors",
    "prototypes.*.trains": "every model has these tensors",
    "prototypes.*.keeps": "every model has the other tensors",
    "prototypes.*.lora": "every model has the factors that it averages",
    "datasets": "figures and scores are of these sets",
    "seed": "every draw hangs on it",
}


class ScheduleChanges(Part):
    """How long and how fast students learn, from the next round on."""

    epochs: int | None = Field(None, ge=1, le=10_000, description="takes the place of `steps`")
    steps: int | None = Field(None, ge=1, le=STEPS, description="takes the place of `epochs`")
    batch_size: int | None = Field(None, ge=1, le=65_536)
    lr: float | None = Field(None, gt=0, le=10, description="of the schedule's optimiser")

    @model_validator(mode="after")
    def _one_length(self) -> "ScheduleChanges":
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give either epochs or steps")
        return self


class RoundsChanges(Part):
    """How rounds go, from the next one on; what is left out stays, null is the default again."""

    total: int | None = Field(None, ge=1, le=ROUNDS, description="not below the newest round")
    clients_per_round: ClientsPerRound | None = None
    min_updates: int | None = Field(None, ge=1, le=CLIENTS)
    deadline_seconds: int | None = Field(None, ge=1, le=30 * 86_400)
    on_deadline: OnDeadline | None = None
    max_extensions: int | None = Field(None, ge=1, le=100)
    max_skipped: int | None = Field(None, ge=1, le=ROUNDS)
    late: Late | None = None
    grace_seconds: int | None = Field(None, ge=1, le=86_400)
    heartbeat_seconds: int | None = Field(None, ge=1, le=3600)
    lost_after: int | None = Field(None, ge=2, le=1000)
    replace_lost: bool | None = None
    keep_ensemble: bool | None = None
    over_selection: float | None = Field(None, ge=1, le=10)
    max_distance: float | None = Field(None, gt=0, le=1e6)
    explain: Explain | None = None
    target_accuracy: float | None = Field(None, gt=0, le=1)
    target_metric: DataValue | None = None
    job_seconds: int | None = Field(None, ge=1, le=30 * 86_400, description="of jobs that begin from now on")
    buffer: int | None = Field(None, ge=1, le=CLIENTS, description="of buffered rounds, as the next three")
    max_staleness: int | None = Field(None, ge=0, le=STALEST)
    per_client: int | None = Field(None, ge=1, le=PER_CLIENT)
    staleness: Staleness | None = Field(None, examples=[{"kind": "constant"}])


class PlanChange(Request):
    """A change of the plan. A round that has opened keeps the plan that it opened with; the next one has this.

    What is left out stays as it is. An option that is null gets its default again; of a prototype, what its clients do
    otherwise ends.
    """

    local: LocalChanges | None = Field(None, examples=[{"epochs": 2}])
    prototypes: dict[Name, LocalChanges | None] | None = Field(
        None,
        max_length=32,
        description="by name, beside what is said of it already; null: its clients do as all others",
        examples=[{"main": {"batch_size": 16}}],
    )
    rounds: RoundsChanges | None = Field(None, examples=[{"total": 30}])
    schedule: ScheduleChanges | None = Field(None, description="of the distillation", examples=[{"epochs": 3}])

    @model_validator(mode="before")
    @classmethod
    def _changeable(cls, value: Any) -> Any:
        if isinstance(value, dict):
            for path, why in _FIXED.items():
                for where in _places(value, path.split(".")):
                    raise ValueError(f"{where}: it cannot be changed: {why}; create another federation")
        return value

    @model_validator(mode="after")
    def _something(self) -> "PlanChange":
        if not self.told():
            raise ValueError("name what changes: local, prototypes, rounds or schedule")
        return self

    def told(self) -> dict[str, Any]:
        """Return what it changes, and nothing else; None where an option is to have its default again."""
        found: dict[str, Any] = {}
        for section in ("local", "rounds", "schedule"):
            part = getattr(self, section)
            if part is not None and part.model_fields_set:
                found[section] = _set_in(part)
        if self.prototypes:
            found["prototypes"] = {
                name: None if part is None else _set_in(part) for name, part in self.prototypes.items()
            }
        return found


def _set_in(part: Part) -> dict[str, Any]:
    """Return the options that were named, null ones too; what lies below one is whole."""
    whole = part.model_dump(mode="json")
    return {name: whole.get(name) for name in type(part).model_fields if name in part.model_fields_set}


def _places(tree: Any, path: list[str], before: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield where a path leads to something, `*` for any name; with dots between the steps."""
    if not path:
        yield ".".join(before)
    elif isinstance(tree, dict):
        steps = list(tree) if path[0] == "*" else [path[0]] if path[0] in tree else []
        for step in steps:
            yield from _places(tree[step], path[1:], (*before, step))


class RoundPlan(Response):
    """The plan that a round has, as far as plans can change."""

    local: LocalPlan = Field(description="of the federation")
    prototypes: dict[str, LocalChanges] = Field(default_factory=dict, description="what their clients do otherwise")
    rounds: RoundsPlan
    schedule: Schedule | None = Field(None, description="of the distillation; null without one")
