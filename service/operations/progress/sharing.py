"""A round's labels shared among workers: shards are jobs of their own, and the round's job waits for them.

It can do without any of them: what no shard has brought, because it failed, was cancelled or lost its file, the round's
job works out itself. So nothing here decides what a round becomes, only how long it takes.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract import traces
from contract.federation import FederationConfig
from contract.recipes.parts import PAST
from service.domain import sharing as rules
from service.operations.ledger import after_commit, entries
from service.operations.ledger.clock import now
from service.operations.progress import jobs, reading
from service.persistence.tables import DatasetRow, FederationRow, JobRow, LabelShardRow, RoundRow

WAIT_SECONDS = 30.0
"""A round's job looks again so often; the last shard calls it sooner."""
_MEASURED = 3
"""Rounds that are looked back on for what a teacher costs."""


def of_job(session: Session, job_id: str) -> LabelShardRow | None:
    """Return the shard that a job makes; None where its round is over."""
    return session.get(LabelShardRow, job_id)


def files(session: Session, round_id: str) -> list[str]:
    """Return the digests of what a round's shards have brought, in the order in which these were added."""
    mine = select(LabelShardRow.digest).where(LabelShardRow.round_id == round_id, LabelShardRow.digest.is_not(None))
    return [digest for digest in session.scalars(mine.order_by(LabelShardRow.job_id)) if digest is not None]


def _rows(session: Session, round_id: str) -> list[tuple[LabelShardRow, JobRow]]:
    query = select(LabelShardRow, JobRow).join(JobRow, JobRow.id == LabelShardRow.job_id)
    found = session.execute(query.where(LabelShardRow.round_id == round_id).order_by(LabelShardRow.job_id))
    return [(row, job) for row, job in found]


def _left(session: Session, round_id: str) -> list[JobRow]:
    return [job for _, job in _rows(session, round_id) if job.state in ("queued", "running")]


# ------------------------------------------------------------------------------------------------------------- sharing
def comes_first(
    session: Session, job: JobRow, workers: int, shard_seconds: float, measured: float | None = None
) -> bool:
    """Put a round's job back where shards of its labels are to be made first; return whether that is so.

    They are added when the job is taken for the first time, where earlier rounds say that it is worth it, or when it
    finds out by itself; where groups run ahead, when it has handed over what these wait for.

    Args:
        session: of a transaction that holds job and federation.
        job: the round's.
        workers: that are alive and would make them.
        shard_seconds: about how long one is to take; 0: none are made.
        measured: what a teacher costs in this round, once that is known; default: what it has cost before.
    """
    federation, round_ = session.get_one(FederationRow, job.federation_id), session.get_one(RoundRow, job.round_id)
    if _hands_over(session, round_):
        return False
    if not _rows(session, round_.id):
        with traces.below(traces.current() or job.traceparent):
            _add(session, federation, round_, workers, shard_seconds, measured)
    left = _left(session, round_.id)
    if left:
        jobs.put_off(session, job, WAIT_SECONDS, f"waits for {len(left)} shards of its labels")
    return bool(left)


def _hands_over(session: Session, round_: RoundRow) -> bool:
    """Whether groups wait for models that the round's job makes before it asks teachers."""
    config = reading.config_for(session, round_)
    return config.runs_ahead and round_.index < config.rounds.total and round_.groups_published_at is None


def may_come_first(session: Session, round_id: str, workers: int, shard_seconds: float) -> bool:
    """Whether `comes_first` has anything to look at; a look that takes no write lock."""
    shared = session.scalars(select(LabelShardRow.job_id).where(LabelShardRow.round_id == round_id).limit(1)).first()
    return shared is not None or (workers > 1 and shard_seconds > 0)


def _add(
    session: Session,
    federation: FederationRow,
    round_: RoundRow,
    workers: int,
    shard_seconds: float,
    measured: float | None,
) -> None:
    config, before = reading.config_for(session, round_), _before(session, round_)
    seconds = rules.seconds_of_a_teacher(before) if measured is None else measured
    if seconds is None or any(map(rules.was_in_vain, before)):
        return
    bad = {each for figures in before[:1] for each in rules.left_out(figures)}
    teachers = [each for each in _teachers(session, config, federation, round_) if each not in bad]
    size = 4 * math.prod(config.task.output_shape) * _samples(session, config)
    for shard in rules.shards(teachers, seconds, size, shard_seconds, workers):
        job = jobs.enqueue(session, "labels", federation, round_id=round_.id)
        session.flush()
        told = {"teachers": list(shard.teachers), "part": shard.part, "parts": shard.parts}
        session.add(LabelShardRow(job_id=job.id, federation_id=federation.id, round_id=round_.id, **told))
    session.flush()


def _before(session: Session, round_: RoundRow) -> list[Mapping[str, Any]]:
    """Return the figures of the newest rounds before, the newest first."""
    before = select(RoundRow.metrics).where(RoundRow.federation_id == round_.federation_id)
    published = before.where(RoundRow.state == "published", RoundRow.index < round_.index)
    return list(session.scalars(published.order_by(RoundRow.index.desc()).limit(_MEASURED)))


def _teachers(session: Session, config: FederationConfig, federation: FederationRow, round_: RoundRow) -> Sequence[str]:
    """Return the teachers that are here before the round is fused: clients, or the models of earlier rounds."""
    distil = config.recipe.distil
    if distil is None or config.recipe.sends_predictions:
        return []
    earlier = distil.members.earlier_rounds
    if earlier:
        kept = reading.carried_state(session, federation.id)
        return [name for each in config.published for name in _newest(kept, f"{PAST.named(each.name)}.", earlier)]
    if not distil.members.hears_clients or config.rounds.secure is not None:
        return []
    return [
        each.label
        for each in entries.of_round(session, round_)
        if each.row.excluded is None and each.row.num_samples > 0
    ]


def _newest(names: Mapping[str, str], stem: str, count: int) -> list[str]:
    """Return the names that are a stem and a round, of the newest rounds."""
    rounds = sorted(int(name[len(stem) :]) for name in names if name.startswith(stem) and name[len(stem) :].isdecimal())
    return [f"{stem}{index}" for index in rounds[-count:]]


def _samples(session: Session, config: FederationConfig) -> int:
    """Return how many samples a teacher is asked of, about."""
    roles = config.datasets
    ids = {each for each in (roles.unlabeled, roles.test) if each is not None}
    sets = session.scalars(select(DatasetRow.num_samples).where(DatasetRow.id.in_(ids)))
    distil = config.recipe.distil
    return sum(sets) + int(getattr(None if distil is None else distil.data, "count", 0))


# -------------------------------------------------------------------------------------------------------------- ending
def settle(session: Session, round_id: str) -> None:
    """Call the round's job when none of its shards is left to wait for."""
    session.flush()
    if _left(session, round_id):
        return
    waiting = select(JobRow).where(JobRow.round_id == round_id, JobRow.kind == "round", JobRow.state == "queued")
    for job in session.scalars(waiting.with_for_update()):
        job.not_before, job.queued_at, job.detail = None, now(), None
        after_commit.wake_workers(session, job.queue)


def figures(session: Session, round_id: str) -> dict[str, Any]:
    """Return what a round's figures say of its shards: how many, of how many teachers, which worker made how many."""
    made = [(row, job) for row, job in _rows(session, round_id) if row.digest is not None]
    if not made:
        return {}
    by = Counter(job.worker_id or "" for _, job in made)
    return {
        "shards": len(made),
        "asked": round(sum(len(row.teachers) / row.parts for row, _ in made), 3),
        "seconds": round(sum(row.seconds or 0.0 for row, _ in made), 3),
        "bytes": sum(row.size or 0 for row, _ in made),
        "workers": by,
    }


def stop(session: Session, round_id: str) -> None:
    """End the shards of a round that are not made yet, for nobody waits for them any more."""
    for job in _left(session, round_id):
        jobs.withdraw(session, job, "the round needs it no more")


def let_go(session: Session, round_id: str) -> None:
    """Forget a round's shards and what they have brought."""
    stop(session, round_id)
    rows = [row for row, _ in _rows(session, round_id)]
    after_commit.release_blobs(session, {row.digest for row in rows if row.digest is not None})
    for row in rows:
        session.delete(row)


def let_go_of_all(session: Session, federation_id: str) -> None:
    """Forget the shards of all rounds of a federation."""
    mine = select(LabelShardRow.round_id).where(LabelShardRow.federation_id == federation_id).distinct()
    for round_id in list(session.scalars(mine)):
        let_go(session, round_id)


def lose(session: Session, digests: set[str]) -> None:
    """Go on without files that are damaged or missing."""
    for row in session.scalars(select(LabelShardRow).where(LabelShardRow.digest.in_(digests))):
        row.digest = None
