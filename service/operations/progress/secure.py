"""Secure rounds: from phase to phase, by what their devices have said. Every change is one transaction's.

The service relays keys, sealed shares and signatures, and keeps the shares that are revealed at the end until the round
is over. It knows no secret of a device, and needs no cryptography.
"""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from service.domain import rounds as rules
from service.domain.errors import DomainError
from service.domain.rounds import Decision
from service.domain.secure import Group, Member, in_large_groups, too_few
from service.operations.ledger import after_commit
from service.operations.ledger.clock import now, patient
from service.operations.progress import jobs, participants
from service.operations.progress.reading import config_in, config_of
from service.persistence.tables import (
    ClientRow,
    FederationRow,
    ParticipantRow,
    RoundRow,
    SecureMemberRow,
    UpdateRow,
)

_WAIT = Decision("wait")


def begin(session: Session, federation: FederationRow, round_: RoundRow) -> None:
    """Let a round's devices exchange keys, where its plan is secure; what was said before is forgotten."""
    plan = config_of(federation).rounds.secure
    if plan is None:
        return
    forget(session, round_)
    round_.secure_session = secrets.token_hex(16)
    round_.secure_phase, round_.secure_until = "keys", jobs.later(plan.phase_seconds)


def forget(session: Session, round_: RoundRow) -> None:
    """Remove what devices said in a round: it is over, or begins again."""
    round_.secure_phase = round_.secure_until = None
    session.execute(delete(SecureMemberRow).where(SecureMemberRow.round_id == round_.id))


def member_of(session: Session, round_id: str, client_id: str) -> SecureMemberRow | None:
    """Return what a client has said in a round, if it has said anything."""
    return session.get(SecureMemberRow, (round_id, client_id))


def rows_of(session: Session, round_: RoundRow) -> dict[str, dict[str, tuple[ClientRow, SecureMemberRow]]]:
    """Return model -> name -> (client, what it has said)."""
    found = session.execute(
        select(ClientRow, ParticipantRow.prototype, SecureMemberRow)
        .join(SecureMemberRow, SecureMemberRow.client_id == ClientRow.id)
        .join(
            ParticipantRow,
            (ParticipantRow.client_id == SecureMemberRow.client_id)
            & (ParticipantRow.round_id == SecureMemberRow.round_id),
        )
        .where(SecureMemberRow.round_id == round_.id)
        .order_by(ClientRow.name)
    )
    groups: dict[str, dict[str, tuple[ClientRow, SecureMemberRow]]] = {}
    for client, model, row in found:
        groups.setdefault(model, {})[client.name] = (client, row)
    return groups


def groups_of(session: Session, federation: FederationRow, round_: RoundRow) -> dict[str, Group]:
    """Return model -> its group as it stands."""
    plan = config_of(federation).rounds.secure
    assert plan is not None
    session.flush()
    uploaded = set(session.scalars(select(UpdateRow.client_id).where(UpdateRow.round_id == round_.id)))
    return {
        model: Group(model, {name: _member(client, row, uploaded) for name, (client, row) in rows.items()}, plan)
        for model, rows in rows_of(session, round_).items()
    }


def _member(client: ClientRow, row: SecureMemberRow, uploaded: set[str]) -> Member:
    told = row.revealed or {}
    return Member(
        name=client.name,
        here=client.revoked_at is None,
        mask_key=bytes.fromhex(row.keys["mask"]),
        shared=row.sealed is not None,
        uploaded=client.id in uploaded,
        survives=row.survives,
        signed=row.signature is not None,
        revealed=row.revealed is not None,
        seeds=frozenset(told.get("seeds", ())),
        keys=frozenset(told.get("keys", ())),
    )


# ------------------------------------------------------------------------------------------------------- phase by phase
def step(session: Session, federation: FederationRow, round_: RoundRow) -> Decision:
    """Do what is due in a collecting secure round; say whether it goes on, is fused, extended or skipped."""
    return _STEPS[str(round_.secure_phase)](session, federation, round_)


def _is_over(round_: RoundRow) -> bool:
    return round_.secure_until is not None and patient(now()) >= round_.secure_until


def _enter(session: Session, federation: FederationRow, round_: RoundRow, phase: str) -> Decision:
    plan = config_in(federation, round_).rounds
    assert plan.secure is not None
    round_.secure_phase = phase
    round_.secure_until = None if phase == "training" else jobs.later(plan.secure.phase_seconds)
    if phase == "training":
        round_.deadline_at = jobs.later(plan.deadline_seconds)
    after_commit.touch(session, federation)
    return _WAIT


def _keep(session: Session, round_: RoundRow, groups: Iterable[Group], large: Callable[[Group], bool]) -> list[Group]:
    """Return the groups that go on; the rows of the others go."""
    kept = []
    rows = rows_of(session, round_)
    for group in groups:
        if large(group):
            kept.append(group)
        else:
            for _, row in rows[group.model].values():
                session.delete(row)
    session.flush()
    return kept


def _short(round_: RoundRow, count: int, said: str) -> Decision:
    return too_few(count, said, round_.min_updates)


def _keys(session: Session, federation: FederationRow, round_: RoundRow) -> Decision:
    """Wait for everybody who was asked; when that takes long, for as many as it takes."""
    groups = list(groups_of(session, federation, round_).values())
    view = participants.round_view(session, round_)
    said = sum(len(group.members) for group in groups)
    here = sum(group.counts("here") for group in groups)
    waits = view.asked - view.lost > here and patient(now()) < round_.deadline_at
    plan = config_of(federation).rounds.secure
    assert plan is not None
    said_by = {name: group.model for group in groups for name in group.members}
    large = in_large_groups(said_by, plan)
    enough = len(large) >= round_.min_updates
    if waits and not (enough and _is_over(round_)):
        return _WAIT
    if not enough:
        return _short(round_, said, "keys")
    _keep(session, round_, groups, lambda group: group.model in large.values())
    return _enter(session, federation, round_, "shares")


def _shares(session: Session, federation: FederationRow, round_: RoundRow) -> Decision:
    groups = list(groups_of(session, federation, round_).values())
    if any(group.is_open("shared", group.members) for group in groups) and not _is_over(round_):
        return _WAIT
    kept = _keep(session, round_, groups, lambda group: len(group.sharing) >= group.least)
    if sum(len(group.sharing) for group in kept) < round_.min_updates:
        return _short(round_, sum(len(group.sharing) for group in groups), "shares")
    return _enter(session, federation, round_, "training")


def _training(session: Session, federation: FederationRow, round_: RoundRow) -> Decision:
    """Take masked updates by the rules of every round, but no fewer of a group than its sum needs, if more may come."""
    groups = groups_of(session, federation, round_).values()
    plan = config_in(federation, round_).rounds
    view = participants.round_view(session, round_, sharing=True)
    view = replace(view, needed=max(view.needed, sum(group.least for group in groups)))
    decision = rules.decide(view, patient(now()), plan)
    if decision.action != "aggregate":
        return decision
    if any(_may_grow(session, round_, group) for group in groups) and patient(now()) < round_.deadline_at:
        return _WAIT
    return collected(session, federation, round_)


def _may_grow(session: Session, round_: RoundRow, group: Group) -> bool:
    """Whether a group lacks updates that may still come."""
    if group.counts("uploaded") >= group.least:
        return False
    rows = rows_of(session, round_)[group.model]
    waiting = (session.get_one(ParticipantRow, (round_.id, rows[name][0].id)) for name in group.sharing)
    present = [group.members[name] for name in group.sharing]
    return any(
        row.lost_at is None and each.here and not each.uploaded for row, each in zip(waiting, present, strict=True)
    )


def collected(session: Session, federation: FederationRow, round_: RoundRow) -> Decision:
    """Take no more masked updates: who uploaded is decided, for good, and the survivors are to sign that."""
    found = groups_of(session, federation, round_)
    kept = {model for model, group in found.items() if group.counts("uploaded") >= group.least}
    uploaded = {name for group in found.values() for name, member in group.members.items() if member.uploaded}
    for model, rows in rows_of(session, round_).items():
        for name, (client, row) in rows.items():
            if name in uploaded and model in kept:
                row.survives = True
            elif name in uploaded:
                _leave_out(session, round_, client)
    session.flush()
    return _go_on(session, federation, round_, "confirm", "masked updates")


def _leave_out(session: Session, round_: RoundRow, client: ClientRow) -> None:
    query = select(UpdateRow).where(UpdateRow.round_id == round_.id, UpdateRow.client_id == client.id)
    for update in session.scalars(query):
        update.excluded = "too few of its group are there to take the masks off its sum"


def _go_on(session: Session, federation: FederationRow, round_: RoundRow, phase: str, said: str) -> Decision:
    left = sum(len(group.survivors) for group in groups_of(session, federation, round_).values())
    if left < round_.min_updates:
        return _short(round_, left, said)
    return _enter(session, federation, round_, phase)


def _confirm(session: Session, federation: FederationRow, round_: RoundRow) -> Decision:
    groups = groups_of(session, federation, round_).values()
    if any(group.is_open("signed", group.survivors) for group in groups) and not _is_over(round_):
        return _WAIT
    _give_up(session, round_, (group for group in groups if group.counts("signed") < group.least))
    return _go_on(session, federation, round_, "reveal", "signatures")


def _reveal(session: Session, federation: FederationRow, round_: RoundRow) -> Decision:
    groups = [group for group in groups_of(session, federation, round_).values() if group.survivors]
    masked = [group for group in groups if not group.is_unmasked()]
    signed = {group.model: [name for name in group.survivors if group.members[name].signed] for group in masked}
    if any(group.is_open("revealed", signed[group.model]) for group in masked) and not _is_over(round_):
        return _WAIT
    _give_up(session, round_, masked)
    left = sum(len(group.survivors) for group in groups if group not in masked)
    return Decision("aggregate") if left >= round_.min_updates else _short(round_, left, "what unmasks the sum")


def _give_up(session: Session, round_: RoundRow, groups: Iterable[Group]) -> None:
    """Leave out groups whose masks nobody can take off any more."""
    rows = rows_of(session, round_)
    for group in groups:
        for name in group.survivors:
            client, row = rows[group.model][name]
            row.survives = False
            _leave_out(session, round_, client)
    session.flush()


_STEPS: dict[str, Callable[[Session, FederationRow, RoundRow], Decision]] = {
    "keys": _keys,
    "shares": _shares,
    "training": _training,
    "confirm": _confirm,
    "reveal": _reveal,
}


def close_by_hand(session: Session, federation: FederationRow, round_: RoundRow) -> None:
    """Take no more masked updates, on an operator's word; the devices that are there unmask the sum.

    Raises:
        DomainError: invalid-transition, when none are taken now, or too few are here.
    """
    if round_.secure_phase != "training":
        detail = f"round {round_.index} is secure and in its phase {round_.secure_phase!r}, which ends by itself"
        raise DomainError("invalid-transition", detail, state=round_.state)
    groups = groups_of(session, federation, round_).values()
    here = sum(group.counts("uploaded") for group in groups if group.counts("uploaded") >= group.least)
    if here < round_.min_updates:
        detail = f"{here} masked updates are in groups that are large enough to be unmasked; wait for more"
        raise DomainError("too-few-updates", detail, answered=here, min_updates=round_.min_updates)
    collected(session, federation, round_)
