"""Why a round came out as it did, as it is shown; and how often a client was odd in the same way."""

from collections import Counter
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.wire import explanations as wire
from service.domain.errors import DomainError
from service.operations.progress import reading
from service.persistence.tables import RoundRow

_LAST = 3
"""Rounds that are looked at for what is seen again."""
_BACK = 20
"""Rounds before this one among which those are: a client is not asked in all of them."""


def describe(session: Session, row: RoundRow, images: bool) -> wire.Explanation:
    """Return what there is to say of a round's clients, and the server's images themselves if asked for.

    Raises:
        DomainError: not-found, saying why there is nothing.
    """
    found = row.explanation
    if found is None:
        raise DomainError("not-found", f"round {row.index} has no explanation: {_why(session, row)}")
    seen = _seen(session, row)
    weights = row.metrics.get("weights", {})
    clients = [
        wire.ExplainedClient(
            name=name,
            weight=weights.get(name),
            flags=[wire.Flag(**flag, seen=seen[name, flag["kind"]]) for flag in found["flags"].get(name, [])],
            **figures,
        )
        for name, figures in sorted(found["clients"].items())
    ]
    return wire.Explanation(
        round_id=row.id,
        round=row.index,
        federation_id=row.federation_id,
        votes=found.get("votes"),
        without=found.get("without"),
        clients=clients,
        samples=[wire.Sample(**(each if images else each | {"image": None})) for each in found.get("samples", [])],
        seconds=row.metrics.get("seconds", {}).get("explain"),
    )


def _why(session: Session, row: RoundRow) -> str:
    plan = reading.config_for(session, row).rounds
    if plan.secure is not None:
        return "in secure rounds nobody sees a single update"
    if plan.explain == "off":
        return "rounds.explain of its plan is 'off'"
    if row.state == "published":
        return "it was published before rounds were explained"
    return f"it is {row.state}; a round is explained when its models are made"


def _seen(session: Session, row: RoundRow) -> Counter[tuple[str, str]]:
    """Count (client, kind) over the last rounds in which the client counted."""
    query = (
        select(RoundRow.explanation)
        .where(RoundRow.federation_id == row.federation_id, RoundRow.index <= row.index)
        .where(RoundRow.explanation.is_not(None))
        .order_by(RoundRow.index.desc())
        .limit(_BACK)
    )
    looked_at: Counter[str] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    each: dict[str, Any]
    for each in session.scalars(query):
        for name in each["clients"]:
            looked_at[name] += 1
            if looked_at[name] <= _LAST:
                found.update({(name, flag["kind"]) for flag in each["flags"].get(name, [])})
    return found
