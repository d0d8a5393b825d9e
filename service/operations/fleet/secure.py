"""What devices say in a secure round, and the transaction that makes it count: the same words again change nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from contract.wire.secure import Advertisement, Confirmation, Revelation, SecurePhase, SecureReceipt, Shares
from service.domain.errors import DomainError, invalid_field, not_found
from service.domain.principal import Principal
from service.domain.secure import Group
from service.operations.fleet import clients
from service.operations.fleet.updates import refuse_closed
from service.operations.progress import lifecycle, reading, secure
from service.persistence.tables import ClientRow, FederationRow, ParticipantRow, RoundRow, SecureMemberRow


@dataclass(frozen=True)
class _Device:
    """A participant that speaks, and where."""

    session: Session
    federation: FederationRow
    round: RoundRow
    client: ClientRow
    model: str

    def too_late(self, why: str) -> DomainError:
        return refuse_closed(self.session, self.round, f"round {self.round.index} {why}")


Said = Advertisement | Shares | Confirmation | Revelation


def say(session: Session, round_id: str, principal: Principal, said: Said) -> SecureReceipt:
    """Take what a device says in the present phase of a secure round; a phase that is complete now ends with it.

    Raises:
        DomainError: not-found, forbidden, not-selected; round-closed, when the session or its phase is over;
            already-delivered, for other words than before; invalid-field, for words about the wrong devices.
    """
    round_ = session.get(RoundRow, round_id)
    if round_ is None:
        raise not_found("round", round_id)
    principal.need_federation(round_.federation_id)
    federation = reading.locked(session, round_.federation_id)
    session.refresh(round_)
    client = clients.still_enrolled(session, principal.id)
    participant = session.get(ParticipantRow, (round_id, client.id))
    if participant is None:
        raise DomainError("not-selected", f"this client was not asked in round {round_.index}; wait for an assignment")
    phase, take = _TAKES[type(said)]
    if round_.secure_session != said.session:
        raise refuse_closed(session, round_, f"round {round_.index} has another session of secure aggregation")
    if not _known(session, round_, client, said):
        taken = round_.state == "collecting" and federation.state in ("running", "paused")
        if not taken or round_.secure_phase != phase:
            raise refuse_closed(session, round_, f"round {round_.index} is not in its phase {phase!r}")
        take(_Device(session, federation, round_, client, participant.prototype), said)
        session.flush()
        lifecycle.proceed(session, federation)
    return SecureReceipt(round_id=round_.id, session=said.session, phase=phase)


def _known(session: Session, round_: RoundRow, client: ClientRow, said: Said) -> bool:
    """Whether the client has said this before.

    Raises:
        DomainError: already-delivered, when it was something else.
    """
    row = secure.member_of(session, round_.id, client.id)
    before = None if row is None else _COLUMNS[type(said)](row)
    if before is None:
        return False
    if before != _content(said):
        raise DomainError("already-delivered", "this client has said something else in this phase; the first counts")
    return True


def _content(said: Said) -> Any:
    if isinstance(said, Advertisement):
        return said.keys.model_dump()
    if isinstance(said, Confirmation):
        return said.signature
    return said.sealed if isinstance(said, Shares) else {"seeds": said.seeds, "keys": said.keys}


_COLUMNS: dict[type[Said], Callable[[SecureMemberRow], Any]] = {
    Advertisement: lambda row: row.keys,
    Shares: lambda row: row.sealed,
    Confirmation: lambda row: row.signature,
    Revelation: lambda row: row.revealed,
}


def _advertise(who: _Device, said: Any) -> None:
    who.session.add(SecureMemberRow(round_id=who.round.id, client_id=who.client.id, keys=_content(said)))


def _place(who: _Device) -> tuple[SecureMemberRow, Group]:
    row = secure.member_of(who.session, who.round.id, who.client.id)
    if row is None:
        raise who.too_late("goes on without this client")
    return row, secure.groups_of(who.session, who.federation, who.round)[who.model]


def _share(who: _Device, said: Any) -> None:
    row, group = _place(who)
    if set(said.sealed) != set(group.graph.adjacent[who.client.name]):
        raise invalid_field("sealed", "there must be a share for each device that this one masks with, and no other")
    row.sealed = _content(said)


def _confirm(who: _Device, said: Any) -> None:
    row, _ = _place(who)
    if not row.survives:
        raise who.too_late("goes on without this client's update")
    row.signature = _content(said)


def _reveal(who: _Device, said: Any) -> None:
    row, group = _place(who)
    if row.signature is None:
        raise who.too_late("is unmasked by those who signed its survivors")
    here, held = set(group.survivors), set(group.graph.holders(who.client.name))
    if not set(said.seeds) <= here & held:
        raise invalid_field("seeds", "shares of seeds are revealed of survivors that this device holds shares of")
    if not set(said.keys) <= (set(group.sharing) - here) & held:
        raise invalid_field("keys", "shares of keys are revealed of those that dropped out after they shared theirs")
    row.revealed = _content(said)


_Take = Callable[[_Device, Any], None]
_TAKES: dict[type[Said], tuple[SecurePhase, _Take]] = {
    Advertisement: ("keys", _advertise),
    Shares: ("shares", _share),
    Confirmation: ("confirm", _confirm),
    Revelation: ("reveal", _reveal),
}
