"""How a federation goes on: from stage to stage, from round to round. Called after whatever allows it."""

import json
from datetime import timedelta
from functools import lru_cache

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.grouping import split
from contract.groups import copies
from contract.ids import new_id
from contract.wire.plans import RoundsPlan
from service.domain import gate, selection
from service.domain import rounds as rules
from service.domain.federation import FederationConfig
from service.domain.states import FEDERATION, ROUND, advance
from service.operations import effects, hearing, jobs, release
from service.operations.clock import now
from service.persistence.tables import (
    ClientRow,
    CurrentModelRow,
    DiscriminatorRow,
    FederationRow,
    GanUpdateRow,
    JobRow,
    ParticipantRow,
    RoundRow,
    UpdateRow,
)

GENERATOR = "generator"
GAN = "gan"
DISCRIMINATOR = "discriminator"
SAMPLES = "samples"
_STATE = "state:"


def config_of(federation: FederationRow) -> FederationConfig:
    """Return a federation's configuration, which never changes once it is created."""
    return _parsed(federation.id, json.dumps(federation.config))


@lru_cache(maxsize=256)
def _parsed(federation_id: str, text: str) -> FederationConfig:
    return FederationConfig.model_validate_json(text)


def prototype_key(name: str) -> str:
    """Return the key under which a prototype's current model is kept."""
    return f"prototype:{name}"


def state_key(name: str) -> str:
    """Return the key under which something is kept that a recipe hands from round to round."""
    return _STATE + name


def kept_state(session: Session, federation_id: str) -> dict[str, str]:
    """Return name -> model id of what the recipe hands from round to round."""
    current = current_models(session, federation_id)
    return {key.removeprefix(_STATE): id_ for key, id_ in current.items() if key.startswith(_STATE)}


def move(session: Session, federation: FederationRow, event: str) -> None:
    """Apply an event to a federation's state and wake its devices."""
    federation.state = advance(FEDERATION, federation.state, event, "federation")
    effects.touch(session, federation)


def locked(session: Session, federation_id: str) -> FederationRow:
    """Return a federation, locked for this transaction."""
    return session.scalars(
        select(FederationRow)
        .where(FederationRow.id == federation_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()


def live_clients(session: Session, federation_id: str) -> list[ClientRow]:
    """Return the clients that are not revoked, by name."""
    rows = session.scalars(
        select(ClientRow).where(ClientRow.federation_id == federation_id, ClientRow.revoked_at.is_(None))
    )
    return sorted(rows, key=lambda client: client.name)


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
    if config_of(federation).recipe.discriminators is None:
        return clients
    scored = {id_ for id_, row in discriminators_of(session, federation.id).items() if row.scores_digest}
    return [client for client in clients if client.id in scored]


def newest_round(session: Session, federation: FederationRow) -> RoundRow | None:
    """Return the round with the highest index, if there is one."""
    return session.scalars(
        select(RoundRow).where(RoundRow.federation_id == federation.id).order_by(RoundRow.index.desc()).limit(1)
    ).first()


def current_models(session: Session, federation_id: str) -> dict[str, str]:
    """Return key -> model id of the current models: `prototype:<name>`, `generator`, `discriminator`, `gan`…"""
    rows = session.scalars(select(CurrentModelRow).where(CurrentModelRow.federation_id == federation_id))
    return {row.key: row.model_id for row in rows}


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


def _delivered(session: Session, federation: FederationRow) -> set[str]:
    """Return the ids of the clients whose delivery is here that the federation's stage collects."""
    if federation.state == "training_generator":
        return {client.id for client, _ in gan_updates(session, federation, federation.gan_round)}
    return set(discriminators_of(session, federation.id))


def _collected(session: Session, federation: FederationRow) -> bool:
    """Whether every enrolled client's delivery is here; at the deadline, enough of them."""
    config = config_of(federation)
    clients = live_clients(session, federation.id)
    here = _delivered(session, federation)
    delivered = sum(client.id in here for client in clients)
    if delivered < config.rounds.quorum:
        return False
    deadline = federation.collect_deadline_at
    return delivered == len(clients) or (deadline is not None and now() >= deadline)


def _busy(session: Session, federation: FederationRow, kind: str) -> bool:
    found = session.scalars(
        select(JobRow.id).where(
            JobRow.federation_id == federation.id, JobRow.kind == kind, JobRow.state.in_(("queued", "running"))
        )
    ).first()
    return found is not None


def proceed(session: Session, federation: FederationRow, max_attempts: int) -> None:
    """Do whatever is due: average generators, score discriminators, open or close a round, end. Idempotent."""
    if federation.state == "training_generator":
        if federation.collect_deadline_at is not None and _collected(session, federation):
            _close_gan_round(session, federation, max_attempts)
    elif federation.state == "collecting_discriminators" and _collected(session, federation):
        move(session, federation, "score")
        jobs.enqueue(session, "score", federation, max_attempts)
    elif federation.state == "running":
        _score_latecomers(session, federation, max_attempts)
        newest = newest_round(session, federation)
        if newest is not None and newest.state == "collecting":
            _listen(session, federation, newest)
            settle(session, federation, newest, max_attempts)
        elif newest is None or newest.state != "aggregating":
            _next_round(session, federation, newest)


def open_gan_round(session: Session, federation: FederationRow, gan_round: int, deadline_seconds: int) -> None:
    """Let the clients train the federated generator for another round."""
    federation.gan_round = gan_round
    federation.collect_deadline_at = jobs.later(deadline_seconds)
    if federation.state == "preparing":
        move(session, federation, "train_generator")
    else:
        effects.touch(session, federation)


def _close_gan_round(session: Session, federation: FederationRow, max_attempts: int) -> None:
    """Take no more generators of this round and average those of the clients that are still enrolled."""
    for client, row in gan_updates(session, federation, federation.gan_round):
        if client.revoked_at is not None:
            session.delete(row)
            effects.release_blobs(session, {row.digest})
    federation.collect_deadline_at = None
    jobs.enqueue(session, "generator", federation, max_attempts)
    effects.touch(session, federation)


def let_go_of_gan(session: Session, federation: FederationRow, gan_round: int) -> None:
    """Let go of what clients sent in a round of the federated generator; the rows stay and answer a repeated upload."""
    release.let_go(session, [row for _, row in gan_updates(session, federation, gan_round)])


def _score_latecomers(session: Session, federation: FederationRow, max_attempts: int) -> None:
    if config_of(federation).recipe.discriminators is None:
        return
    if unscored(session, federation.id) and not _busy(session, federation, "score"):
        jobs.enqueue(session, "score", federation, max_attempts)


def _next_round(session: Session, federation: FederationRow, newest: RoundRow | None) -> None:
    plan = config_of(federation).rounds
    index = newest.index if newest else 0
    if newest is not None and rules.is_over(index, plan.total, federation.accuracy, plan.target_accuracy):
        _finish(session, federation)
        return
    if federation.skipped_rounds >= plan.max_skipped:
        assert newest is not None
        why = f"{federation.skipped_rounds} rounds in a row were skipped, the last one because: {newest.reason}"
        halt(session, federation, "rounds_skipped", f"{why}; see to the devices, then resume")
        return
    clients = eligible_clients(session, federation)
    if len(clients) >= clients_wanted(plan, newest):
        _open_round(session, federation, index + 1, clients)


def clients_wanted(plan: RoundsPlan, newest: RoundRow | None) -> int:
    """Return how many clients must be ready for the next round to open."""
    return plan.quorum if newest is None else max(1, plan.min_updates)


def halt(session: Session, federation: FederationRow, error: str, detail: str) -> None:
    """Let a running federation wait for an operator, and say why."""
    federation.error, federation.detail = error, detail[:2000]
    move(session, federation, "pause")


def _finish(session: Session, federation: FederationRow) -> None:
    """End a federation whose last round is over; one in which nothing was ever published has failed."""
    federation.finished_at = now()
    published = select(RoundRow.id).where(RoundRow.federation_id == federation.id, RoundRow.state == "published")
    if session.scalars(published.limit(1)).first() is not None:
        move(session, federation, "finish")
        return
    newest = newest_round(session, federation)
    reason = newest.reason if newest is not None and newest.reason else ""
    federation.error = gate.CODE if reason.startswith(gate.CODE) else "too_few_updates"
    federation.detail = f"nothing was published; the last round: {reason}"[:2000]
    move(session, federation, "fail")


def _open_round(session: Session, federation: FederationRow, index: int, clients: list[ClientRow]) -> None:
    config = config_of(federation)
    moment = now()
    sizes = {client.name: client.num_samples for client in clients}
    asked = selection.choose(config.rounds, federation.seed, index, sizes, config.recipe.selection)
    models = current_models(session, federation.id)
    round_ = RoundRow(
        id=new_id("round"),
        federation_id=federation.id,
        index=index,
        state="collecting",
        needed=selection.needed(config.rounds, len(clients)),
        min_updates=config.rounds.min_updates,
        base_models={p.name: models[prototype_key(p.name)] for p in config.published},
        models={},
        metrics={},
        opened_at=moment,
        deadline_at=moment + timedelta(seconds=config.rounds.deadline_seconds),
    )
    session.add(round_)
    session.flush()
    trains = _groups(config, federation.seed, index, [client for client in clients if client.name in set(asked)])
    session.add_all(
        ParticipantRow(round_id=round_.id, client_id=client.id, prototype=trains[client.name], asked_at=moment)
        for client in clients
        if client.name in trains
    )
    federation.round_index = index
    effects.touch(session, federation)


def _groups(config: FederationConfig, seed: int, index: int, asked: list[ClientRow]) -> dict[str, str]:
    """Return client name -> what it trains: its prototype, or in a grouped federation its group's copy of it."""
    found: dict[str, str] = {}
    for prototype in config.prototypes:
        names = [client.name for client in asked if client.prototype == prototype.name]
        groups = split(names, config.group_count, seed=seed, round_index=index)
        for copy, members in zip(copies(prototype.name, config.group_count), groups, strict=True):
            found |= dict.fromkeys(members, copy)
    return found


def _listen(session: Session, federation: FederationRow, round_: RoundRow) -> None:
    """Find out who has gone silent, and ask others in their place where the plan says so."""
    hearing.mark_lost(session, round_)
    config = config_of(federation)
    if config.rounds.replace_lost and now() < round_.deadline_at:
        lost = hearing.lost_without_substitute(session, round_)
        if lost and hearing.substitute(
            session, federation, round_, lost, eligible_clients(session, federation), config
        ):
            effects.touch(session, federation)


def settle(session: Session, federation: FederationRow, round_: RoundRow, max_attempts: int) -> None:
    """Close a collecting round if it is full or due: fuse it, extend it, let it fail, or skip it and go on."""
    plan = config_of(federation).rounds
    decision = rules.decide(hearing.round_view(session, round_), now(), plan)
    if decision.action == "aggregate":
        close(session, federation, round_, max_attempts)
    elif decision.action == "extend":
        round_.extensions += 1
        round_.deadline_at = now() + timedelta(seconds=plan.deadline_seconds)
        round_.reason = decision.reason
        federation.detail = f"round {round_.index}: {decision.reason}"
        effects.touch(session, federation)
    elif decision.action == "fail":
        round_.state = advance(ROUND, round_.state, "fail", "round")
        round_.closed_at, round_.reason = now(), f"too_few_updates: {decision.reason}"
        remedy = "resume to give the round up, or close it with force to fuse what is here"
        halt(session, federation, "too_few_updates", f"round {round_.index}: {decision.reason}; {remedy}")
    elif decision.action == "skip":
        round_.state = advance(ROUND, round_.state, "skip", "round")
        round_.closed_at = now()
        skipped(session, federation, round_, decision.reason)
        let_go(session, round_)
        session.flush()
        proceed(session, federation, max_attempts)


def skipped(session: Session, federation: FederationRow, round_: RoundRow, reason: str) -> None:
    """Say of a round why it published nothing, and count it."""
    round_.reason = reason
    federation.skipped_rounds += 1
    federation.detail = f"round {round_.index} was skipped: {reason}"
    effects.touch(session, federation)


def let_go(session: Session, round_: RoundRow) -> None:
    """Let go of the updates of a round that nobody will fuse."""
    release.let_go(session, session.scalars(select(UpdateRow).where(UpdateRow.round_id == round_.id)))


def close(session: Session, federation: FederationRow, round_: RoundRow, max_attempts: int, event: str = "") -> None:
    """Take no more updates and fuse what is here; `event` is `retry` for a round that has failed."""
    round_.state = advance(ROUND, round_.state, event or "aggregate", "round")
    round_.closed_at, round_.reason = now(), None
    jobs.enqueue(session, "round", federation, max_attempts, round_id=round_.id)
    effects.touch(session, federation)
