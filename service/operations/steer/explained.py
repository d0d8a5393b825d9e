"""Why rounds came out so: figures stay with a round, pixels with the newest rounds alone."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.persistence.tables import RoundRow

PICTURED = 20
"""Rounds of a federation whose samples are kept: 32 kB of pixels each, at most."""


def keep(session: Session, round_: RoundRow, found: dict[str, Any] | None) -> None:
    """Keep what a round's job found, and let go of the samples of the round that leaves the newest ones."""
    round_.explanation = found
    old = session.scalar(
        select(RoundRow).where(
            RoundRow.federation_id == round_.federation_id, RoundRow.index == round_.index - PICTURED
        )
    )
    if old is not None and old.explanation is not None and "samples" in old.explanation:
        old.explanation = {name: value for name, value in old.explanation.items() if name != "samples"}
