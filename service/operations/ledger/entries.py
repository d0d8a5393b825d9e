"""A round's updates as they are fused and shown: what each is called, what it began from, how old that is."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.domain import buffered as rules
from service.domain.buffered import Given, Version
from service.persistence.tables import ClientRow, ParticipantRow, RoundRow, UpdateRow


@dataclass(frozen=True)
class Entry:
    """One update of a round, as it is fused and shown.

    Attributes:
        row, client: of the update.
        prototype: the model that it trained.
        label: what it is called: the client's name, with a number where one has given several.
        base: id of the model that it began from.
        staleness: how often that was replaced before the round.
    """

    row: UpdateRow
    client: ClientRow
    prototype: str
    label: str
    base: str
    staleness: int


def of_round(session: Session, round_: RoundRow) -> list[Entry]:
    """Return a round's updates in the order of their labels: by client, the model that they began from, and turn."""
    found = session.execute(
        select(UpdateRow, ClientRow, ParticipantRow.prototype, RoundRow)
        .join(ClientRow, ClientRow.id == UpdateRow.client_id)
        .join(
            ParticipantRow,
            (ParticipantRow.client_id == UpdateRow.client_id) & (ParticipantRow.round_id == UpdateRow.round_id),
        )
        .join(RoundRow, RoundRow.id == func.coalesce(UpdateRow.begun_in, UpdateRow.round_id))
        .where(UpdateRow.round_id == round_.id)
    ).all()
    given = [Given(client.name, begun.index, row.turn, client.id) for row, client, _, begun in found]
    called, ages = rules.labels(given), dict[str, list[Version]]()
    for *_, begun in found:
        if begun.id != round_.id and begun.id not in ages:
            ages[begun.id] = between(session, begun, round_)[0]
    made = [
        Entry(row, client, prototype, called[key], row.base_model, rules.staleness(prototype, ages.get(begun.id, [])))
        for (row, client, prototype, begun), key in zip(found, given, strict=True)
    ]
    return sorted(made, key=lambda each: each.label)


def between(session: Session, begun: RoundRow, buffer: RoundRow) -> tuple[list[Version], bool]:
    """Return the rounds that came since an update began, and whether operators turned models back since."""
    rows = session.execute(
        select(RoundRow.index.label("number"), RoundRow.state, RoundRow.models, RoundRow.restarts)
        .where(RoundRow.federation_id == begun.federation_id)
        .where(RoundRow.index >= begun.index, RoundRow.index <= buffer.index)
    ).all()
    versions = [Version(row.state, tuple(row.models)) for row in rows if row.number < buffer.index]
    return versions, any(row.restarts for row in rows if row.number > begun.index)
