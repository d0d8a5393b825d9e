"""What devices did in a federation's rounds, added up by the database: a report is as small for many as for few."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, and_, case, cast, extract, func, literal, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from contract.federation import FederationConfig
from contract.groups import original
from service.domain.costs import Trained
from service.persistence.tables import ClientRow, FederationRow, ParticipantRow, RoundRow, UpdateRow

_A_SECOND = 1_000_000  # moments have microseconds
_BATCH = 1000


@dataclass(frozen=True)
class Part:
    """What the devices that train one model did in a round.

    Attributes:
        devices: that were told to train.
        answered: of them, whose update was taken.
        up: bytes of these updates.
        took: seconds from the fetch of the assignment to the accepted file, of all that answered together.
        slowest: of one.
        training: of `took`, what devices told of.
    """

    prototype: str
    devices: int
    answered: int
    up: int
    took: float
    slowest: float
    training: float


def of_rounds(session: Session, federation: FederationRow) -> dict[str, list[Part]]:
    """Return round id -> its parts, of rounds in which somebody was told to train."""
    took = case(
        (and_(ParticipantRow.fetched_at.is_not(None), UpdateRow.received_at > ParticipantRow.fetched_at),
         _microseconds(session, UpdateRow.received_at) - _microseconds(session, ParticipantRow.fetched_at)),
        else_=0,
    )  # fmt: skip
    sums = (func.sum(UpdateRow.size), func.sum(took), func.max(took), func.sum(UpdateRow.metrics["seconds"].as_float()))
    figures = (func.count(), func.count(UpdateRow.id), *(func.coalesce(each, 0) for each in sums))
    query = (
        _told_to_train(ParticipantRow.round_id, ParticipantRow.prototype, *figures)
        .join(RoundRow, RoundRow.id == ParticipantRow.round_id)
        .where(RoundRow.federation_id == federation.id)
        .group_by(ParticipantRow.round_id, ParticipantRow.prototype)
        .order_by(ParticipantRow.prototype)
    )
    found: dict[str, list[Part]] = {}
    for round_id, prototype, devices, answered, up, all_took, most, trained in session.execute(query):
        part = Part(
            prototype, devices, answered, int(up), int(all_took) / _A_SECOND, int(most) / _A_SECOND, float(trained)
        )
        found.setdefault(round_id, []).append(part)
    return found


def newcomers(session: Session, federation: FederationRow) -> Counter[tuple[int, str]]:
    """Return (round's index, model) -> devices that had not trained its prototype, nor a copy of it."""
    query = (
        _told_to_train(ParticipantRow.client_id, ParticipantRow.prototype, func.min(RoundRow.index))
        .join(RoundRow, RoundRow.id == ParticipantRow.round_id)
        .where(RoundRow.federation_id == federation.id)
        .group_by(ParticipantRow.client_id, ParticipantRow.prototype)
    )
    first: dict[tuple[str, str], tuple[int, str]] = {}
    for client, model, index in session.execute(query):
        who = (client, original(model))
        first[who] = min(first.get(who, (index, model)), (index, model))
    return Counter(first.values())


def trained(session: Session, row: RoundRow, config: FederationConfig) -> Iterator[Trained]:
    """Yield the updates of a round, those alike as one; each by itself where devices draw how much they train."""
    figures = (ParticipantRow.prototype, UpdateRow.num_samples)
    here = ParticipantRow.round_id == row.id
    if any(config.plan_of(each).partial_work is not None for each in row.base_models):
        named = select(ClientRow.name, *figures, literal(1))
        query: Select[str, str, int, int] = named.join(ParticipantRow, ParticipantRow.client_id == ClientRow.id)
    else:
        query = select(literal(""), *figures, func.count()).select_from(ParticipantRow).group_by(*figures)
    for found in session.execute(query.join(UpdateRow, _theirs()).where(here).execution_options(yield_per=_BATCH)):
        yield Trained(*found)


def _told_to_train(*figures: ColumnElement[Any] | InstrumentedAttribute[Any]) -> Select[Any]:
    asked = ParticipantRow.fetched_at.is_not(None) | UpdateRow.id.is_not(None)
    return select(*figures).select_from(ParticipantRow).outerjoin(UpdateRow, _theirs()).where(asked)


def _theirs() -> ColumnElement[bool]:
    """Whose update it is, by the columns of an index: without one each participant's is looked for among all."""
    return (UpdateRow.round_id == ParticipantRow.round_id) & (UpdateRow.client_id == ParticipantRow.client_id)


def _microseconds(session: Session, moment: InstrumentedAttribute[Any]) -> ColumnElement[int]:
    """Return a moment as a whole number; SQLite keeps text with six digits after the point."""
    if session.get_bind().dialect.name == "postgresql":
        return cast(extract("epoch", moment) * _A_SECOND, BigInteger)
    seconds = cast(func.strftime("%s", func.substr(moment, 1, 19)), BigInteger)  # it rounds .9995 up to the next
    return seconds * _A_SECOND + cast(func.substr(moment, 21), BigInteger)
