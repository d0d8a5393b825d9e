"""When a round closes and what follows: state and clock in, decision out. No database, no clock of its own."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True)
class RoundView:
    """What the rules look at."""

    asked: int
    answered: int
    needed: int
    min_updates: int
    deadline_at: datetime


@dataclass(frozen=True)
class Decision:
    """What happens to a collecting round; `reason` is for people."""

    action: Literal["wait", "aggregate", "skip"]
    reason: str = ""


def decide(view: RoundView, now: datetime) -> Decision:
    """Say whether a collecting round goes on, is fused, or is skipped.

    Enough updates, or one of everybody who is still there, closes it at once; at the deadline `min_updates` decide.
    """
    complete = view.answered >= min(view.needed, view.asked) and view.answered > 0
    if complete and view.answered >= view.min_updates:
        return Decision("aggregate", f"{view.answered} of {view.asked} answered")
    if view.asked and view.answered >= view.asked:
        return Decision("skip", f"got {view.answered} of {view.min_updates} updates, and nobody is left to answer")
    if now < view.deadline_at and view.asked:
        return Decision("wait")
    if view.answered >= view.min_updates:
        return Decision("aggregate", f"deadline: {view.answered} of {view.asked} answered")
    return Decision("skip", f"got {view.answered} of {view.min_updates} updates by the deadline")


def is_over(round_index: int, rounds_total: int, accuracy: float | None, target: float | None) -> bool:
    """Say whether the federation ends after this round: the last one, or its target accuracy is reached."""
    return round_index >= rounds_total or (target is not None and accuracy is not None and accuracy >= target)
