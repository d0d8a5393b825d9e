"""What is known of a federation: reads, and the lock. What follows from it is in `lifecycle`."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Select, bindparam, event, func, select
from sqlalchemy.orm import Session

from contract.bodies import stored
from contract.federation import FederationConfig
from contract.networks import shelf
from contract.wire.changes import RoundPlan
from service.domain.errors import not_found
from service.domain.plans import with_plan
from service.persistence.tables import (
    Base,
    ClientRow,
    CurrentModelRow,
    DiscriminatorRow,
    FederationRow,
    GanUpdateRow,
    RoundRow,
)

GENERATOR = "generator"
GAN = "gan"
DISCRIMINATOR = "discriminator"
SAMPLES = "samples"
_STATE = "state:"
_KNOWN, _ONCE, _LOCKED = "potstill.known", "potstill.once", "potstill.locked"
_OF_ROW: WeakKeyDictionary[FederationRow, tuple[dict[str, Any], FederationConfig]] = WeakKeyDictionary()
"""Row -> its JSON, which is never changed in place, and the same read."""
_NEWEST = (
    select(RoundRow).where(RoundRow.federation_id == bindparam("federation")).order_by(RoundRow.index.desc()).limit(1)
)
_LOCKING = select(FederationRow).where(FederationRow.id == bindparam("federation")).with_for_update()
Found = TypeVar("Found")
Row = TypeVar("Row", bound=Base)


def at_once(session: Session) -> None:
    """Keep what is read from now on, so that it is read once; for a session that only reads, and ends at once."""
    keep_rows(session)
    session.info[_KNOWN], session.info[_ONCE] = {}, True


def keep_rows(session: Session) -> None:
    """Keep rows as long as the session: else one is let go with the last who uses it, and read anew."""
    kept: list[object] = []
    event.listen(session, "loaded_as_persistent", lambda session, row: kept.append(row))


def in_turn(session: Session, federation_id: str) -> None:
    """Lock a federation for several deliveries of one transaction: what they read of it from now on stays as it is."""
    keep_rows(session)
    session.info[_KNOWN] = {}
    locked(session, federation_id)
    session.info[_LOCKED] = federation_id


def fresh(session: Session, table: type[Row], key: Any) -> Row:
    """Return a row, which is there, as it is now; in a turn of deliveries as it was under the federation's lock."""
    return session.get_one(table, key, populate_existing=_LOCKED not in session.info)


def remember(session: Session, what: tuple[str, str], found: Any) -> None:
    """Keep what was found, where the session is one of `at_once` or `in_turn`."""
    if _KNOWN in session.info:
        session.info[_KNOWN][what] = found


def remembered(session: Session, what: tuple[str, str]) -> Any | None:
    """Return what is kept under a name, if anything is."""
    return session.info.get(_KNOWN, {}).get(what)


def _once(session: Session, what: tuple[str, str], read: Callable[[], Found]) -> Found:
    if _ONCE not in session.info:
        return read()
    known = session.info[_KNOWN]
    if what not in known:
        known[what] = read()
    found: Found = known[what]
    return found


def config_of(federation: FederationRow) -> FederationConfig:
    """Return a federation's configuration, as rounds that open now have it."""
    known = _OF_ROW.get(federation)
    if known is None or known[0] is not federation.config:
        known = _OF_ROW[federation] = federation.config, _parsed(federation.id, json.dumps(federation.config))
    return known[1]


def config_for(session: Session, round_: RoundRow) -> FederationConfig:
    """Return the configuration that a round has: its federation's, with the plan that it opened with."""
    return config_in(session.get_one(FederationRow, round_.federation_id), round_)


def config_in(federation: FederationRow, round_: RoundRow) -> FederationConfig:
    """Return the configuration that a federation's round has."""
    config = config_of(federation)
    return config if round_.plan is None else with_plan(config, stored(RoundPlan, round_.plan))


@lru_cache(maxsize=256)
def _parsed(federation_id: str, text: str) -> FederationConfig:
    config = stored(FederationConfig, text)
    for name, facts in config.networks.items():
        shelf.know(name, facts)
    return config


def prototype_key(name: str) -> str:
    """Return the key under which a prototype's current model is kept."""
    return f"prototype:{name}"


def state_key(name: str) -> str:
    """Return the key under which something is kept that a recipe hands from round to round."""
    return _STATE + name


def carried_state(session: Session, federation_id: str) -> dict[str, str]:
    """Return name -> model id of what the recipe hands from round to round."""
    current = current_models(session, federation_id)
    return {key.removeprefix(_STATE): id_ for key, id_ in current.items() if key.startswith(_STATE)}


def get(session: Session, federation_id: str) -> FederationRow:
    """Return a federation, or refuse with not-found."""
    row = session.get(FederationRow, federation_id)
    if row is None:
        raise not_found("federation", federation_id)
    return row


def get_locked(session: Session, federation_id: str) -> FederationRow:
    """Return a federation, locked for this transaction, or refuse with not-found."""
    return locked(session, get(session, federation_id).id)


def get_round(session: Session, round_id: str) -> RoundRow:
    """Return a round, or refuse with not-found."""
    row = session.get(RoundRow, round_id)
    if row is None:
        raise not_found("round", round_id)
    return row


def locked(session: Session, federation_id: str) -> FederationRow:
    """Return a federation, locked for this transaction."""
    if session.info.get(_LOCKED) == federation_id:
        return session.get_one(FederationRow, federation_id)
    options = {"populate_existing": True}
    return session.scalars(_LOCKING, {"federation": federation_id}, execution_options=options).one()


def live_clients(session: Session, federation_id: str) -> list[ClientRow]:
    """Return the clients that are not revoked, by name."""
    rows = session.scalars(
        select(ClientRow).where(ClientRow.federation_id == federation_id, ClientRow.revoked_at.is_(None))
    )
    return sorted(rows, key=lambda client: client.name)


def _count(session: Session, query: Select[Any]) -> int:
    return session.scalar(query.with_only_columns(func.count())) or 0


def _live(federation_id: str) -> Select[Any]:
    return select(ClientRow.id).where(ClientRow.federation_id == federation_id, ClientRow.revoked_at.is_(None))


def live_count(session: Session, federation_id: str) -> int:
    """Return how many clients are not revoked: counted by the database, as it is asked with every delivery."""
    return _count(session, _live(federation_id))


def delivered_count(session: Session, federation: FederationRow) -> int:
    """Return how many of the live clients have delivered what the federation's stage collects."""
    query = _live(federation.id)
    if federation.state == "training_generator":
        query = query.join(GanUpdateRow, GanUpdateRow.client_id == ClientRow.id)
        return _count(session, query.where(GanUpdateRow.gan_round == federation.gan_round))
    return _count(session, query.join(DiscriminatorRow, DiscriminatorRow.client_id == ClientRow.id))


def eligible_count(session: Session, federation: FederationRow) -> int:
    """Return how many clients may be asked: counted by the database, as it is asked with every enrolment."""
    query = _live(federation.id)
    if config_of(federation).recipe.reads_scores:
        query = query.join(DiscriminatorRow, DiscriminatorRow.client_id == ClientRow.id)
        query = query.where(DiscriminatorRow.scores_digest.is_not(None))
    return _count(session, query)


def discriminator_count(session: Session, federation_id: str) -> int:
    """Return how many discriminators are here, those of revoked clients included."""
    query: Select[Any] = select(DiscriminatorRow.id).where(DiscriminatorRow.federation_id == federation_id)
    return _count(session, query)


def discriminators_of(session: Session, federation_id: str) -> dict[str, DiscriminatorRow]:
    """Return client id -> discriminator."""
    rows = session.scalars(select(DiscriminatorRow).where(DiscriminatorRow.federation_id == federation_id))
    return {row.client_id: row for row in rows}


def unscored(session: Session, federation_id: str) -> list[tuple[ClientRow, DiscriminatorRow]]:
    """Return the discriminators that still have to be scored, with their clients: live ones, not rejected."""
    rows = session.execute(
        select(ClientRow, DiscriminatorRow)
        .join(DiscriminatorRow, DiscriminatorRow.client_id == ClientRow.id)
        .where(
            ClientRow.federation_id == federation_id,
            ClientRow.revoked_at.is_(None),
            DiscriminatorRow.scores_digest.is_(None),
            DiscriminatorRow.rejected.is_(None),
        )
    )
    return sorted(((row[0], row[1]) for row in rows), key=lambda pair: pair[0].name)


def eligible_clients(session: Session, federation: FederationRow) -> list[ClientRow]:
    """Return the clients that may be asked: enrolled and, where the recipe reads discriminators, scored."""
    clients = live_clients(session, federation.id)
    if not config_of(federation).recipe.reads_scores:
        return clients
    scored = {id_ for id_, row in discriminators_of(session, federation.id).items() if row.scores_digest}
    return [client for client in clients if client.id in scored]


def newest_round(session: Session, federation: FederationRow) -> RoundRow | None:
    """Return the round with the highest index, if there is one."""

    def read() -> RoundRow | None:
        return session.scalars(_NEWEST, {"federation": federation.id}).first()

    return _once(session, ("newest", federation.id), read)


def open_rounds(session: Session, federation: FederationRow) -> list[RoundRow]:
    """Return the rounds that something may still come of: the newest, and the one whose models it waits for."""
    newest = newest_round(session, federation)
    if newest is None:
        return []
    return [newest] if newest.waits_for is None else [session.get_one(RoundRow, newest.waits_for), newest]


def current_models(session: Session, federation_id: str) -> dict[str, str]:
    """Return key -> model id of the current models: `prototype:<name>`, `generator`, `discriminator`, `gan`…"""

    def read() -> dict[str, str]:
        rows = session.scalars(select(CurrentModelRow).where(CurrentModelRow.federation_id == federation_id))
        return {row.key: row.model_id for row in rows}

    return dict(_once(session, ("current", federation_id), read))


def gan_updates(session: Session, federation: FederationRow, gan_round: int) -> list[tuple[ClientRow, GanUpdateRow]]:
    """Return what clients sent in a round of the federated generator, by name.

    Once the round is closed no name comes twice: a revoked client's, which another one may bear now, is removed then.
    """
    rows = session.execute(
        select(ClientRow, GanUpdateRow)
        .join(GanUpdateRow, GanUpdateRow.client_id == ClientRow.id)
        .where(GanUpdateRow.federation_id == federation.id, GanUpdateRow.gan_round == gan_round)
    )
    return sorted(((row[0], row[1]) for row in rows), key=lambda pair: pair[0].name)
