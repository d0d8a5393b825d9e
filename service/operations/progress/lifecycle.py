"""How a federation goes on: from stage to stage, from round to round. Called after whatever allows it."""

from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.groups import is_main
from contract.ids import new_id
from service.domain import rounds as rules
from service.domain import selection
from service.domain.errors import DomainError
from service.domain.states import FEDERATION, ROUND, advance
from service.operations.ledger import after_commit, garbage
from service.operations.ledger.clock import now, patient
from service.operations.progress import jobs, participants, secure, sharing
from service.operations.progress.reading import (
    config_for,
    config_of,
    current_models,
    delivered_count,
    eligible_clients,
    eligible_count,
    gan_updates,
    live_count,
    newest_round,
    prototype_key,
    unscored,
)
from service.persistence.tables import (
    ClientRow,
    FederationRow,
    JobRow,
    ParticipantRow,
    RoundRow,
    UpdateRow,
)

_ROOM = "potstill.room"
"""Round id -> updates that it can take before one may end it, as far as this transaction knows."""


def move(session: Session, federation: FederationRow, event: str) -> None:
    """Apply an event to a federation's state and wake its devices."""
    federation.state = advance(FEDERATION, federation.state, event, "federation")
    after_commit.touch(session, federation)


def _collected(session: Session, federation: FederationRow) -> bool:
    """Whether every enrolled client's delivery is here; at the deadline, enough of them."""
    here = delivered_count(session, federation)
    if here < config_of(federation).rounds.quorum:
        return False
    deadline = federation.collect_deadline_at
    return (deadline is not None and patient(now()) >= deadline) or here == live_count(session, federation.id)


def _busy(session: Session, federation: FederationRow, kind: str) -> bool:
    found = session.scalars(
        select(JobRow.id).where(
            JobRow.federation_id == federation.id, JobRow.kind == kind, JobRow.state.in_(("queued", "running"))
        )
    ).first()
    return found is not None


def proceed(session: Session, federation: FederationRow) -> None:
    """Do whatever is due: average generators, score discriminators, open or close a round, end. Idempotent."""
    if federation.state == "collecting_discriminators" and not config_of(federation).recipe.reads_scores:
        move(session, federation, "run")  # it has waited since a version that collected what nobody reads
    if federation.state == "training_generator":
        if federation.collect_deadline_at is not None and _collected(session, federation):
            _close_gan_round(session, federation)
    elif federation.state == "collecting_discriminators" and _collected(session, federation):
        move(session, federation, "score")
        jobs.enqueue(session, "score", federation)
    elif federation.state == "running":
        _score_latecomers(session, federation)
        newest = newest_round(session, federation)
        if newest is None or newest.state not in ("collecting", "aggregating"):
            _next_round(session, federation, newest)
        elif newest.state == "aggregating":
            if newest.groups_published_at is not None or newest.buffered:
                _run_ahead(session, federation, newest)
        else:
            _listen(session, federation, newest)
            if newest.waits_for is None or _caught_up(session, federation, newest):
                settle(session, federation, newest)


def answered(session: Session, federation: FederationRow, round_: RoundRow) -> None:
    """Go on after an update. Of several in one transaction only those that may end the round look at all that is due:
    what is due by the clock waits for the next one, or for the sweep.
    """
    room: dict[str, int] = session.info.setdefault(_ROOM, {})
    room[round_.id] = room.get(round_.id, 0) - 1
    if room[round_.id] <= 0:
        proceed(session, federation)


def open_gan_round(session: Session, federation: FederationRow, gan_round: int, deadline_seconds: int) -> None:
    """Let the clients train the federated generator for another round."""
    federation.gan_round = gan_round
    federation.collect_deadline_at = jobs.later(deadline_seconds)
    if federation.state == "preparing":
        move(session, federation, "train_generator")
    else:
        after_commit.touch(session, federation)


def _close_gan_round(session: Session, federation: FederationRow) -> None:
    """Take no more generators of this round and average those of the clients that are still enrolled."""
    for client, row in gan_updates(session, federation, federation.gan_round):
        if client.revoked_at is not None:
            session.delete(row)
            after_commit.release_blobs(session, {row.digest})
    federation.collect_deadline_at = None
    jobs.enqueue(session, "generator", federation)
    after_commit.touch(session, federation)


def let_go_of_gan(session: Session, federation: FederationRow, gan_round: int) -> None:
    """Let go of what clients sent in a round of the federated generator; the rows stay and answer a repeated upload."""
    garbage.let_go(session, [row for _, row in gan_updates(session, federation, gan_round)])


def _score_latecomers(session: Session, federation: FederationRow) -> None:
    if not config_of(federation).recipe.reads_scores:
        return
    if unscored(session, federation.id) and not _busy(session, federation, "score"):
        jobs.enqueue(session, "score", federation)


def _next_round(session: Session, federation: FederationRow, newest: RoundRow | None) -> None:
    config = config_of(federation)
    plan = config.rounds
    standing = _standing(federation, newest)
    onward = rules.onward(standing, plan)
    if onward.action == "end":
        _finish(session, federation)
    elif onward.action == "halt":
        halt(session, federation, rules.SKIPPED, onward.detail)
    elif config.lacking:  # devices would train for a round that nobody can fuse
        halt(session, federation, rules.MISSING_PACKAGE, config.lacking)
    elif eligible_count(session, federation) >= rules.clients_wanted(plan, first=newest is None):
        _open_round(session, federation, standing.index + 1)


def _standing(federation: FederationRow, newest: RoundRow | None) -> rules.Standing:
    if newest is None:
        return rules.Standing(0, federation.accuracy)
    return rules.Standing(newest.index, federation.accuracy, federation.skipped_rounds, newest.reason)


def _held(session: Session, federation: FederationRow, newest: RoundRow) -> bool:
    """Halt, and say so, after too many rounds in a row that published nothing."""
    why = rules.too_many_skipped(_standing(federation, newest), config_of(federation).rounds)
    if why is not None:
        halt(session, federation, rules.SKIPPED, why)
    return why is not None


def halt(session: Session, federation: FederationRow, error: str, detail: str) -> None:
    """Let a running federation wait for an operator, and say why."""
    federation.error, federation.detail = error, detail[:2000]
    move(session, federation, "pause")


def _run_ahead(session: Session, federation: FederationRow, distilling: RoundRow) -> None:
    """Open the next round while the main model of this one is distilled (FedSDD App. A.6), or while it is fused.

    Everybody is drawn now; those who drew the main model wait for it. Where rounds do not wait nobody is drawn.
    """
    plan = config_of(federation).rounds
    enough = eligible_count(session, federation) >= rules.clients_wanted(plan, first=False)
    if distilling.index < plan.total and enough:
        _open_round(session, federation, distilling.index + 1, waits_for=distilling)


def _caught_up(session: Session, federation: FederationRow, round_: RoundRow) -> bool:
    """Give a round that ran ahead what it waited for, if that is there; say whether it can be settled.

    When the round before was given up it gets the main model that there is. When the federation ends with the round
    before, this one is withdrawn.
    """
    before = session.get_one(RoundRow, round_.waits_for)
    if before.state == "aggregating" or _held(session, federation, before):
        return False
    config = config_of(federation)
    plan, metric = config.rounds, config.task.main_metric
    over = rules.is_over(before.index, plan.total, federation.accuracy, plan.target, metric)
    if before.state == "published" and over:
        round_.state = advance(ROUND, round_.state, "skip", "round")
        round_.closed_at, round_.waits_for = now(), None
        round_.reason = f"withdrawn: the federation ended with round {before.index}"
        federation.round_index = before.index
        let_go(session, round_)
        _finish(session, federation)
        return False
    round_.base_models = bases(session, federation, ahead=False) | round_.base_models
    round_.waits_for, round_.deadline_at = None, jobs.later(config_for(session, round_).rounds.deadline_seconds)
    after_commit.touch(session, federation)
    session.flush()
    return True


def bases(session: Session, federation: FederationRow, ahead: bool) -> dict[str, str]:
    """Return name -> current model of what a round starts from; one that goes ahead lacks the main models."""
    models = current_models(session, federation.id)
    names = [each.name for each in config_of(federation).published]
    return {name: models[prototype_key(name)] for name in names if not (ahead and is_main(name))}


def _finish(session: Session, federation: FederationRow) -> None:
    """End a federation whose last round is over; one in which nothing was ever published has failed."""
    federation.finished_at = now()
    published = select(RoundRow.id).where(RoundRow.federation_id == federation.id, RoundRow.state == "published")
    if session.scalars(published.limit(1)).first() is not None:
        move(session, federation, "finish")
        return
    newest = newest_round(session, federation)
    federation.error, detail = rules.ends_empty(None if newest is None else newest.reason)
    federation.detail = detail[:2000]
    move(session, federation, "fail")


def _open_round(
    session: Session,
    federation: FederationRow,
    index: int,
    waits_for: RoundRow | None = None,
) -> None:
    config = config_of(federation)
    moment, buffering = now(), config.rounds.buffering
    clients = eligible_clients(session, federation) if buffering is None else []
    of_its_own = buffering is None or waits_for is None  # else devices go on from the models before
    round_ = RoundRow(
        id=new_id("round"),
        federation_id=federation.id,
        index=index,
        state="collecting",
        buffered=buffering is not None,
        needed=selection.needed(config.rounds, len(clients)) if buffering is None else buffering.size,
        min_updates=config.rounds.least,
        base_models=bases(session, federation, ahead=waits_for is not None) if of_its_own else {},
        waits_for=None if waits_for is None else waits_for.id,
        models={},
        metrics={},
        opened_at=moment,
        deadline_at=moment + timedelta(seconds=config.rounds.deadline_seconds),
    )
    session.add(round_)
    session.flush()
    if buffering is None:
        _ask(session, federation, round_, clients)
    federation.round_index = index
    secure.begin(session, federation, round_)
    after_commit.touch(session, federation)


def _ask(session: Session, federation: FederationRow, round_: RoundRow, clients: list[ClientRow]) -> None:
    """Draw who takes part in a round, and what each trains."""
    config, sizes = config_of(federation), {client.name: client.num_samples for client in clients}
    asked = selection.choose(config.rounds, federation.seed, round_.index, sizes, config.recipe.selection)
    prototypes = {client.name: client.prototype for client in clients if client.name in set(asked)}
    trains = selection.deal(config, federation.seed, round_.index, prototypes)
    session.add_all(
        ParticipantRow(
            round_id=round_.id, client_id=client.id, prototype=trains[client.name], asked_at=round_.opened_at
        )
        for client in clients
        if client.name in trains
    )


def _listen(session: Session, federation: FederationRow, round_: RoundRow) -> None:
    """Find out who has gone silent, and ask others in their place where the plan says so."""
    participants.mark_lost(session, round_)
    config = config_for(session, round_)
    if config.rounds.replace_lost and (round_.waits_for is not None or patient(now()) < round_.deadline_at):
        lost = participants.lost_without_substitute(session, round_)
        if lost and participants.substitute(
            session, federation, round_, lost, eligible_clients(session, federation), config
        ):
            after_commit.touch(session, federation)


def settle(session: Session, federation: FederationRow, round_: RoundRow) -> None:
    """Close a collecting round if it is full or due: fuse it, extend it, let it fail, or skip it and go on."""
    plan = config_for(session, round_).rounds
    if round_.secure_phase is None:
        view = participants.round_view(session, round_)
        session.info.setdefault(_ROOM, {})[round_.id] = 0 if round_.buffered else rules.room(view)
        decision = rules.decide(view, patient(now()), plan)
    else:
        decision = secure.step(session, federation, round_)
    if decision.action == "aggregate":
        close(session, federation, round_)
    elif decision.action == "extend":
        round_.extensions += 1
        round_.deadline_at = now() + timedelta(seconds=plan.deadline_seconds)
        round_.reason = decision.reason
        federation.detail = f"round {round_.index}: {decision.reason}"
        after_commit.touch(session, federation)
    elif decision.action == "fail":
        round_.state = advance(ROUND, round_.state, "fail", "round")
        round_.closed_at, round_.reason = now(), f"{rules.TOO_FEW}: {decision.reason}"
        remedy = "resume to give the round up, or close it with force to fuse what is here"
        halt(session, federation, rules.TOO_FEW, f"round {round_.index}: {decision.reason}; {remedy}")
    elif decision.action == "skip":
        round_.state = advance(ROUND, round_.state, "skip", "round")
        round_.closed_at = now()
        skipped(session, federation, round_, decision.reason)
        let_go(session, round_)
        session.flush()
        proceed(session, federation)


def give_up_sums(session: Session, federation: FederationRow, rounds: set[str]) -> None:
    """Skip a secure round whose survivors were decided, when an update of one of them is deleted.

    Raises:
        DomainError: in-use, when the round is closed and its sum is to be read by a job.
    """
    if config_of(federation).rounds.secure is None:
        return
    for round_ in (session.get_one(RoundRow, id_) for id_ in sorted(rounds)):
        if round_.state != "collecting":
            detail = f"its masked update is in the sum of round {round_.index}; ask again when that round is over"
            raise DomainError("in-use", detail)
        if round_.secure_phase in ("confirm", "reveal"):
            round_.state = advance(ROUND, round_.state, "skip", "round")
            round_.closed_at = now()
            skipped(session, federation, round_, "a masked update was deleted while its sum was unmasked")
            let_go(session, round_)
            session.flush()


def skipped(session: Session, federation: FederationRow, round_: RoundRow, reason: str) -> None:
    """Say of a round why it published nothing, and count it."""
    round_.reason = reason
    federation.skipped_rounds += 1
    federation.detail = f"round {round_.index} was skipped: {reason}"
    after_commit.touch(session, federation)


def let_go(session: Session, round_: RoundRow) -> None:
    """Let go of the updates of a round that nobody will fuse, and of what its devices said to each other."""
    secure.forget(session, round_)
    sharing.let_go(session, round_.id)
    garbage.let_go(session, session.scalars(select(UpdateRow).where(UpdateRow.round_id == round_.id)))


def close(session: Session, federation: FederationRow, round_: RoundRow, event: str = "") -> None:
    """Take no more updates and fuse what is here; `event` is `retry` for a round that has failed."""
    round_.state = advance(ROUND, round_.state, event or "aggregate", "round")
    round_.closed_at, round_.reason = now(), None
    round_.secure_phase = round_.secure_until = None
    jobs.enqueue(session, "round", federation, round_id=round_.id)
    after_commit.touch(session, federation)
    if round_.buffered and federation.state == "running":
        session.flush()
        proceed(session, federation)
