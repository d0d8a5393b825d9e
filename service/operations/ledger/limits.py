"""Limits on what grows: how many rows of a kind there may be."""

from typing import Any

from sqlalchemy import Select, func, select, text
from sqlalchemy.orm import Session

from service.domain.errors import DomainError


def check_room(
    session: Session,
    rows: Select[Any],
    most: int,
    what: str,
    remedy: str,
    setting: str | None = None,
    alone: bool = False,
) -> None:
    """Refuse one more row when there are `most`. Those who add rows at the same moment are counted one after the other.

    Args:
        rows: the rows that count.
        what: their name in the plural.
        remedy: what the caller can do.
        setting: the environment variable that sets `most`, if one does.
        alone: the caller holds a lock already that keeps others from adding such rows.

    Raises:
        DomainError: limit-reached.
    """
    if not alone and session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(815003)"))
    there = session.scalar(select(func.count()).select_from(rows.subquery())) or 0
    if there >= most:
        raised = f", or the operator raises {setting}" if setting else ""
        raise DomainError(
            "limit-reached",
            f"there are {there} {what}, and {most} is the limit; {remedy}{raised}",
            limit=most,
            **({"setting": setting} if setting else {}),
        )
