"""Updates that are here and are not fused: left out by an operator, or by a rule while they were fused."""

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from service.domain.errors import DomainError, invalid_field
from service.operations.ledger import entries, row_events
from service.operations.progress import reading
from service.persistence.tables import FederationRow, RoundRow

_BY_HAND = "left out by an operator"


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
    rows = entries.of_round(session, round_)
    known = {key for each in rows for key in _called(each)}
    unknown = sorted(set(wanted) - known)
    if unknown:
        raise invalid_field("exclude", f"no update of {unknown[0][:100]!r} is in round {round_.index}")
    fresh = [each for each in rows if each.row.excluded is None and _called(each) & set(wanted)]
    for each in fresh:
        each.row.excluded = _BY_HAND
    left = sum(each.row.excluded is None for each in rows)
    if left == 0 or (left < round_.min_updates and not force):
        raise DomainError(
            "too-few-updates",
            f"{left} of {round_.min_updates} updates would be left; "
            + ("leave fewer out" if left == 0 else "set force to fuse them all the same"),
            answered=left,
            min_updates=round_.min_updates,
        )
    return {each.client.id for each in fresh}


def _called(entry: entries.Entry) -> set[str]:
    """Return what an operator may call an update: all of its client's, or this one where it gave several."""
    return {entry.client.id, entry.client.name, entry.label}


def note(session: Session, round_: RoundRow, found: Mapping[str, str]) -> dict[str, str]:
    """Record whose updates a rule left out; return name -> reason of all that were not fused.

    Args:
        found: client's name, or what the update is called -> reason.
    """
    reasons = {}
    for each in entries.of_round(session, round_):
        each.row.excluded = each.row.excluded or found.get(each.label)
        if each.row.excluded:
            reasons[each.label] = each.row.excluded
    return reasons


def tell_flags(session: Session, round_: RoundRow, found: Mapping[str, list[dict[str, str]]]) -> None:
    """Tell whose updates are not like the others'.

    Args:
        found: client's name, or what the update is called -> its flags, each with `kind` and `detail`.
    """
    for each in entries.of_round(session, round_):
        if flags := found.get(each.label):
            said = "; ".join(flag["detail"] for flag in flags)
            row_events.note(session, "update.flagged", each.row, flags=[flag["kind"] for flag in flags], detail=said)


def tell_outliers(session: Session, round_: RoundRow, found: Mapping[str, str]) -> None:
    """Tell whose updates lie far from the others'.

    Args:
        found: client's name, or what the update is called -> reason.
    """
    for each in entries.of_round(session, round_):
        if each.label in found:
            row_events.note(session, "update.outlier", each.row, detail=found[each.label])
