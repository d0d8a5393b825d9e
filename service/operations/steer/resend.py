"""What devices sent and was lost here is asked for again, where the federation can still wait for it."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from contract.recipes.parts import GeneratorFederated
from service.domain.states import ROUND, advance
from service.operations.ledger import after_commit
from service.operations.ledger.clock import now
from service.operations.progress import jobs, lifecycle, reading
from service.operations.store.faults import Use
from service.persistence.tables import (
    DiscriminatorRow,
    FederationRow,
    GanUpdateRow,
    ParticipantRow,
    RoundRow,
    UpdateRow,
)


def ask_again(session: Session, federation: FederationRow, lost: Sequence[Use], why: str) -> bool:
    """Forget deliveries whose files are lost, so that their clients are asked again; return whether that is possible.

    Of a round it is as long as its deadline lies ahead and nobody has its models; a closed one collects on. Of the
    stages before the rounds it always is.
    """
    rows = [use.row for use in lost]
    updates = [row for row in rows if isinstance(row, UpdateRow)]
    generators = [row for row in rows if isinstance(row, GanUpdateRow)]
    discriminators = [use.row for use in lost if use.what == "discriminator" and isinstance(use.row, DiscriminatorRow)]
    done = False
    if len(updates) == len(rows):
        done = _updates(session, federation, updates, why)
    elif len(generators) == len(rows):
        done = _generators(session, federation, generators)
    elif len(discriminators) == len(rows):
        done = _discriminators(session, federation, discriminators)
    if done:
        federation.detail = why[:2000]
        after_commit.touch(session, federation)
        session.flush()
    return done


def _updates(session: Session, federation: FederationRow, rows: list[UpdateRow], why: str) -> bool:
    (round_id,) = {row.round_id for row in rows}
    round_, newest = session.get_one(RoundRow, round_id), reading.newest_round(session, federation)
    if newest is None or newest.id != round_.id or round_.groups_published_at is not None:
        return False
    if federation.state not in ("running", "paused") or now() >= round_.deadline_at:
        return False
    if round_.secure_session is not None and round_.secure_phase != "training":
        return False  # its survivors are decided, and masks are used once
    if round_.state == "aggregating":
        round_.state = advance(ROUND, round_.state, "reopen", "round")
        round_.closed_at = None
    elif round_.state != "collecting":
        return False
    for row in rows:
        asked = session.get_one(ParticipantRow, (round_.id, row.client_id))
        asked.asked_at = now()
        asked.fetched_at = asked.heard_at = asked.silent_at = asked.lost_at = asked.progress = None
        session.delete(row)
    round_.reason = why[:2000]
    return True


def _generators(session: Session, federation: FederationRow, rows: list[GanUpdateRow]) -> bool:
    stage = reading.config_of(federation).recipe.discriminators
    if federation.state != "training_generator" or stage is None:
        return False
    assert isinstance(stage.generator, GeneratorFederated)
    if any(row.gan_round != federation.gan_round for row in rows):
        return False
    for row in rows:
        session.delete(row)
    lifecycle.open_gan_round(session, federation, federation.gan_round, stage.generator.deadline_seconds)
    return True


def _discriminators(session: Session, federation: FederationRow, rows: list[DiscriminatorRow]) -> bool:
    stage = reading.config_of(federation).recipe.discriminators
    if federation.state not in ("collecting_discriminators", "scoring", "running", "paused") or stage is None:
        return False
    for row in rows:
        if row.scores_digest is not None:
            after_commit.release_blobs(session, {row.scores_digest})
        session.delete(row)
    if federation.state == "scoring":
        lifecycle.move(session, federation, "recollect")
        federation.collect_deadline_at = jobs.later(stage.deadline_seconds)
    return True


def score_again(session: Session, federation: FederationRow, lost: Sequence[Use]) -> None:
    """Have discriminators whose scores are lost scored once more; the round that reads them waits for a retry."""
    rows = [use.row for use in lost if use.what == "scores" and isinstance(use.row, DiscriminatorRow)]
    for row in rows:
        row.scores_digest = None
    if rows:
        session.flush()
        jobs.enqueue(session, "score", federation)
