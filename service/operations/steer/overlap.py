"""Groups that run ahead: models that a round's distillation leaves alone are published before it (FedSDD App. A.6).

What follows is in `lifecycle`: the next round opens with them, and waits for the main model.
"""

import logging
from dataclasses import replace

from sqlalchemy.orm import Session

from contract.wire.federations import TERMINAL_STATES
from service.operations.ledger import after_commit, locks
from service.operations.ledger.clock import now
from service.operations.progress import jobs, lifecycle, reading
from service.operations.steer import fusion
from service.operations.store import provenance
from service.operations.store.outcome import Outcome
from service.persistence.tables import ModelRow, RoundRow

log = logging.getLogger("service.overlap")


def publish_groups(session: Session, job_id: str, fence: int, outcome: Outcome) -> None:
    """Make the averages of a round that still distils visible, and go on with them. The job stays with its worker.

    A job that was lost and done again says the same again: what it said first stays. The models have a document of
    their own, of the attempt that made them, whatever becomes of the round.

    Args:
        outcome: models that are no students, and where they come from.

    Raises:
        LostLease: the caller no longer holds the job; nothing changes.
    """
    locks.hold_blobs(session)
    job = jobs.held(session, job_id, fence)
    federation = reading.locked(session, job.federation_id)
    round_ = session.get_one(RoundRow, job.round_id)
    after_commit.release_blobs(session, {digest for digest, _ in outcome.files.values()})
    if federation.state in TERMINAL_STATES:
        return
    if round_.groups_published_at is not None:
        _compare(session, round_, outcome.files)
        return
    outcome = replace(outcome, provenance_id=provenance.record(session, federation, job, outcome, part="groups"))
    fusion.add_round_models(session, federation, round_, outcome.files, outcome)
    round_.groups_published_at = now()
    follower = reading.newest_round(session, federation)
    if follower is not None and follower.waits_for == round_.id:  # what it went ahead with was taken back
        follower.base_models = lifecycle.bases(session, federation, ahead=True)
    after_commit.touch(session, federation)
    session.flush()
    lifecycle.proceed(session, federation)


def _compare(session: Session, round_: RoundRow, files: dict[str, tuple[str, int]]) -> None:
    """Say so if another machine averages otherwise; clients have trained from what was published first."""
    known = {name: session.get_one(ModelRow, id_).digest for name, id_ in round_.models.items()}
    other = sorted(name for name, (digest, _) in files.items() if known.get(name) != digest)
    if other:
        log.warning("round %s: %s came out otherwise in another attempt; the first stays", round_.id, ", ".join(other))
