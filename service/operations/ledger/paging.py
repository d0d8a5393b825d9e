"""Lists in pages: sorted by id, which is the order of creation."""

from typing import Any, TypeVar

from sqlalchemy import Select
from sqlalchemy.orm import InstrumentedAttribute, Session

Row = TypeVar("Row")


def page(
    session: Session,
    query: Select[Any],
    key: InstrumentedAttribute[str],
    limit: int,
    after: str | None,
    newest_first: bool = False,
) -> tuple[list[Any], str | None]:
    """Return up to `limit` rows after the one with the id `after`, and the cursor of the next page or None."""
    if after is not None:
        query = query.where(key < after if newest_first else key > after)
    rows = list(session.scalars(query.order_by(key.desc() if newest_first else key).limit(limit + 1)))
    return rows[:limit], (getattr(rows[limit - 1], key.key) if len(rows) > limit else None)
