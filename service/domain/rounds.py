"""When a round closes and what follows: state and clock in, decision out. No database, no clock of its own."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from contract.tasks import ACCURACY, Metric
from contract.wire.devices import Heartbeat
from contract.wire.plans import OnDeadline, RoundsPlan
from service.domain import gate

SKIPPED = "rounds_skipped"
MISSING_PACKAGE = "missing_package"
"""Code of a federation that halts after too many rounds in a row that published nothing."""
TOO_FEW = "too_few_updates"
"""Code of a federation that halts, or ends with nothing published, for want of updates."""


STUCK_SECONDS, STUCK_PASSES = 600.0, 20
"""So long a device may stay at one pass of its training: seconds, or the time of so many passes, whichever is more."""


@dataclass(frozen=True)
class RoundView:
    """What the rules look at.

    Attributes:
        asked: participants that can still answer or have answered; revoked ones that have not are left out.
        answered: updates that are here.
        needed: updates that close the round before its deadline.
        min_updates: fewer are never fused.
        deadline_at: the present deadline.
        lost: participants that have not answered and whose heartbeats stopped.
        training: participants that have not answered and whose heartbeats go on.
        extensions: deadlines that the round has had beyond its first.
        waits: the model of some participants is not made yet: groups run ahead of a distillation.
    """

    asked: int
    answered: int
    needed: int
    min_updates: int
    deadline_at: datetime
    lost: int = 0
    training: int = 0
    extensions: int = 0
    waits: bool = False


@dataclass(frozen=True)
class Decision:
    """What happens to a collecting round; `reason` is for people."""

    action: Literal["wait", "aggregate", "skip", "extend", "fail"]
    reason: str = ""


def decide(view: RoundView, now: datetime, plan: RoundsPlan | None = None) -> Decision:
    """Say whether a collecting round goes on, is fused, extended, skipped, or fails.

    Enough updates, or one of everybody who is still there and not lost, closes it at once, if they are at least
    `min_updates`; at the deadline `min_updates` decide, after the grace for those that train. With too few of them a
    lost device is waited for until the deadline: it may come back. The clock decides only which updates a model is
    made of; the model depends on these alone. A round that waits for a model stays open: its deadline counts from when
    the model is there.
    """
    if view.waits:
        return Decision("wait")
    plan = plan or RoundsPlan()
    enough = view.answered >= max(1, view.min_updates)
    if enough and view.answered >= min(view.needed, view.asked - view.lost):
        lost = f", {view.lost} lost" if view.lost else ""
        return Decision("aggregate", f"{view.answered} of {view.asked} answered{lost}")
    got = f"got {view.answered} of {view.min_updates} updates"
    if view.asked and view.answered >= view.asked:
        return _too_few("skip" if plan.on_deadline == "extend" else plan.on_deadline, f"{got}, and nobody is left")
    if now < view.deadline_at and view.asked:
        return Decision("wait")
    if view.training and now < closes_at(view.deadline_at, plan):
        return Decision("wait", f"grace: {view.training} still train")
    if enough:
        return Decision("aggregate", f"deadline: {view.answered} of {view.asked} answered")
    if plan.on_deadline == "extend" and view.asked and view.extensions < plan.max_extensions:
        return Decision("extend", f"{got} by the deadline; extended {view.extensions + 1} of {plan.max_extensions}")
    return _too_few("fail" if plan.on_deadline == "fail" else "skip", f"{got} by the deadline")


def room(view: RoundView) -> int:
    """Return how many more updates come before one by which a round may close at once, see `decide`."""
    full = max(1, view.min_updates, min(view.needed, view.asked - view.lost))
    return min(full, view.asked) - view.answered


def _too_few(policy: OnDeadline, reason: str) -> Decision:
    return Decision("fail" if policy == "fail" else "skip", reason)


def closes_at(deadline_at: datetime, plan: RoundsPlan) -> datetime:
    """Return when a round closes for a device that trains: at the deadline, or after the grace."""
    return deadline_at + timedelta(seconds=plan.grace_seconds if plan.late == "grace" else 0)


def silent_after(plan: RoundsPlan) -> timedelta:
    """Return the silence after which a device that has sent heartbeats counts as lost."""
    return timedelta(seconds=plan.heartbeat_seconds * plan.lost_after)


def stuck_after(beat: Heartbeat) -> timedelta | None:
    """Return how long a device may stay at one pass before it counts as lost; None for one that counts none.

    Heartbeats come from a thread of their own, and go on when the one that trains hangs. A device with long passes says
    how long they are.
    """
    if beat.passes is None:
        return None
    return timedelta(seconds=max(STUCK_SECONDS, STUCK_PASSES * (beat.pass_seconds or 0.0)))


def is_over(
    round_index: int, rounds_total: int, measured: float | None, target: float | None, metric: Metric = ACCURACY
) -> bool:
    """Say whether the federation ends after this round: the last one, or its target is reached.

    Args:
        round_index: of the round.
        rounds_total: of the plan.
        measured: value of the task's main metric, if it was measured.
        target: that ends the federation, if any does.
        metric: the main one.
    """
    if round_index >= rounds_total:
        return True
    return target is not None and measured is not None and not metric.better(target, measured)


@dataclass(frozen=True)
class Standing:
    """How far a federation is.

    Attributes:
        index: the newest round's; 0 before the first.
        measured: the task's main metric, such as the accuracy, of the models that devices get; None without a test set.
        skipped: rounds in a row that published nothing.
        reason: why the newest one published nothing, or not all.
    """

    index: int
    measured: float | None = None
    skipped: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class Onward:
    """What follows a round that is over; a federation that halts waits for an operator, for the reason in `detail`."""

    action: Literal["open", "end", "halt"]
    detail: str = ""


def onward(standing: Standing, plan: RoundsPlan, metric: Metric = ACCURACY) -> Onward:
    """Say whether another round may open; `metric` is the task's main one."""
    if standing.index and is_over(standing.index, plan.total, standing.measured, plan.target, metric):
        return Onward("end")
    why = too_many_skipped(standing, plan)
    return Onward("open") if why is None else Onward("halt", why)


def too_many_skipped(standing: Standing, plan: RoundsPlan) -> str | None:
    """Say why a federation halts that has skipped too many rounds in a row, or None."""
    if standing.skipped < plan.max_skipped:
        return None
    why = f"{standing.skipped} rounds in a row were skipped, the last one because: {standing.reason}"
    return f"{why}; see to the devices, then resume"


def ends_empty(reason: str | None) -> tuple[str, str]:
    """Return code and detail of a federation that ends and has never published anything; `reason` is its last round's.

    Its code says whether the gate turned all models away, or too few clients answered.
    """
    told = reason or ""
    return gate.CODE if told.startswith(gate.CODE) else TOO_FEW, f"nothing was published; the last round: {told}"


def clients_wanted(plan: RoundsPlan, first: bool) -> int:
    """Return how many clients must be ready for the next round to open."""
    return plan.quorum if first else max(1, plan.least)
