"""Updates that are here and are not fused: left out by an operator, or by a rule while they were fused."""

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.errors import DomainError, invalid_field
from service.operations.ledger import row_events
from service.operations.progress import reading
from service.persistence.tables import ClientRow, FederationRow, RoundRow, UpdateRow

_BY_HAND = "left out by an operator"


def _updates(session: Session, round_: RoundRow) -> list[tuple[ClientRow, UpdateRow]]:
    rows = session.execute(
        select(ClientRow, UpdateRow)
        .join(UpdateRow, UpdateRow.client_id == ClientRow.id)
        .where(UpdateRow.round_id == round_.id)
    )
    return [(row[0], row[1]) for row in rows]


def exclude(session: Session, round_: RoundRow, wanted: Sequence[str], force: bool) -> set[str]:
    """Leave clients' updates out of a round that is fused again; return these clients' ids.

    Those that were left out before stay out.

    Args:
        wanted: the clients' names or ids.
        force: also when fewer than `min_updates` are left; one is needed in any case.

    Raises:
        DomainError: invalid-field, naming whose update is not here; too-few-updates.
    """
    if not wanted:
        return set()
    if reading.config_of(session.get_one(FederationRow, round_.federation_id)).rounds.secure is not None:
        raise invalid_field(
            "exclude", "nobody's update can be taken out of the sum of a secure round; try it again whole"
        )
    rows = _updates(session, round_)
    known = {key for client, _ in rows for key in (client.id, client.name)}
    unknown = sorted(set(wanted) - known)
    if unknown:
        raise invalid_field("exclude", f"no update of {unknown[0][:100]!r} is in round {round_.index}")
    fresh = {
        client.id
        for client, update in rows
        if update.excluded is None and (client.id in wanted or client.name in wanted)
    }
    for client, update in rows:
        if client.id in fresh:
            update.excluded = _BY_HAND
    left = sum(update.excluded is None for _, update in rows)
    if left == 0 or (left < round_.min_updates and not force):
        raise DomainError(
            "too-few-updates",
            f"{left} of {round_.min_updates} updates would be left; "
            + ("leave fewer out" if left == 0 else "set force to fuse them all the same"),
            answered=left,
            min_updates=round_.min_updates,
        )
    return fresh


def note(session: Session, round_: RoundRow, found: Mapping[str, str]) -> dict[str, str]:
    """Record whose updates a rule left out; return name -> reason of all that were not fused.

    Args:
        found: client's name -> reason.
    """
    reasons = {}
    for client, update in _updates(session, round_):
        update.excluded = update.excluded or found.get(client.name)
        if update.excluded:
            reasons[client.name] = update.excluded
    return reasons


def tell_outliers(session: Session, round_: RoundRow, found: Mapping[str, str]) -> None:
    """Tell whose updates lie far from the others'.

    Args:
        found: client's name -> reason.
    """
    for client, update in _updates(session, round_):
        if client.name in found:
            row_events.note(session, "update.outlier", update, detail=found[client.name])
