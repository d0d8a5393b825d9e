"""Bytes of files by device, round and file: what requests count, and what is kept of it."""

from collections.abc import Iterator, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.wire.federations import TERMINAL_STATES
from service.domain.principal import Principal
from service.infra.traffic import AFTERWARDS, Account, Counts, Traffic
from service.operations.ledger.unit import Store
from service.operations.ledger.upserts import inserting
from service.persistence.tables import FederationRow, ModelRow, TrafficRow

_ROWS = 500  # of one statement: databases bound the number of its values


def of_download(session: Session, model: ModelRow, caller: Principal) -> Account | None:
    """Return the account of a download; None for a model of no federation."""
    return None if model.federation_id is None else _account(session, model.federation_id, caller, model.id)


def of_upload(session: Session, caller: Principal, item: str) -> Account | None:
    """Return the account of what a device sends; None for who is none."""
    return None if caller.role != "device" else _account(session, caller.federation_id or "", caller, item)


def _account(session: Session, federation_id: str, caller: Principal, item: str) -> Account:
    client = caller.id if caller.role == "device" else ""
    federation = session.get_one(FederationRow, federation_id)
    over = federation.state in TERMINAL_STATES
    return Account(federation_id, AFTERWARDS if over else federation.round_index, client, item)


def flush(store: Store, traffic: Traffic) -> None:
    """Take what was counted to the database, in one transaction; what cannot be written is kept for the next time."""
    counts = traffic.drain()
    if not counts:
        return
    try:
        with store.write() as session:
            record(session, counts)
    except BaseException:
        traffic.add(counts)
        raise


def record(session: Session, counts: Mapping[Account, Counts]) -> None:
    """Add counts to those that are kept; of a federation that was deleted nothing is."""
    there = _locked(session, sorted({account.federation_id for account in counts}))
    rows = [vars(account) | vars(each) for account, each in sorted(counts.items()) if account.federation_id in there]
    for start in range(0, len(rows), _ROWS):
        made = inserting(session, TrafficRow).values(rows[start : start + _ROWS])
        added = {name: getattr(TrafficRow, name) + made.excluded[name] for name in ("down", "up", "requests")}
        session.execute(made.on_conflict_do_update(index_elements=list(TrafficRow.__table__.primary_key), set_=added))


def _locked(session: Session, ids: list[str]) -> set[str]:
    """Return which federations are there, and see that they stay until the end of the transaction."""
    query = select(FederationRow.id).where(FederationRow.id.in_(ids)).order_by(FederationRow.id)
    return set(session.scalars(query.with_for_update(read=True, key_share=True)))


def kept(session: Session, federation_id: str) -> Iterator[tuple[Account, Counts]]:
    """Yield what is kept of a federation."""
    for row in session.scalars(select(TrafficRow).where(TrafficRow.federation_id == federation_id)):
        account = Account(row.federation_id, row.round_index, row.client_id, row.item)
        yield account, Counts(row.down, row.up, row.requests)
