"""What a finished job changes: models, metrics, the round and what follows, in one transaction."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.wire.federations import Prototype
from service.domain.errors import DomainError
from service.domain.states import FEDERATION, ROUND, advance
from service.operations import effects, jobs, lifecycle
from service.operations.clock import now
from service.persistence.tables import (
    CurrentModelRow,
    FederationRow,
    JobRow,
    ModelRow,
    RoundRow,
    UpdateRow,
)


@dataclass(frozen=True)
class Outcome:
    """What a job made; the files are blobs already.

    `files` maps a prototype's name, `generator`, or a client's name to (digest, size).
    """

    files: dict[str, tuple[str, int]]
    metrics: dict[str, Any] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    device: str | None = None


def publish(session: Session, job_id: str, fence: int, outcome: Outcome, keep_updates: bool, max_attempts: int) -> None:
    """Make a job's result visible, all of it or nothing.

    Raises:
        LostLease: the caller no longer holds the job; nothing changes.
    """
    effects.lock_blobs(session)
    job = jobs.held(session, job_id, fence)
    federation = lifecycle.locked(session, job.federation_id)
    job.peak_memory_bytes = outcome.peak_memory_bytes
    job.device = outcome.device or job.device
    jobs.end(job, "finish")
    if federation.state in ("cancelled", "failed", "finished"):
        return
    if job.kind == "initialize":
        _initialized(session, federation, outcome, max_attempts)
    elif job.kind == "generator":
        _generated(session, federation, outcome)
    elif job.kind == "score":
        _scored(session, federation, outcome)
    else:
        _fused(session, federation, job, outcome, keep_updates)
    session.flush()
    lifecycle.proceed(session, federation, max_attempts)


def _add_model(
    session: Session, federation: FederationRow, key: str, file: tuple[str, int], role: str, **values: Any
) -> ModelRow:
    model = ModelRow(
        id=new_id("model"),
        federation_id=federation.id,
        role=role,
        digest=file[0],
        size=file[1],
        created_at=now(),
        **{"parents": [], "metrics": {}, "options": {}, **values},
    )
    session.add(model)
    session.flush()
    session.merge(CurrentModelRow(federation_id=federation.id, key=key, model_id=model.id))
    return model


def _add_prototype_model(
    session: Session, federation: FederationRow, prototype: Prototype, file: tuple[str, int], role: str, **values: Any
) -> ModelRow:
    return _add_model(
        session,
        federation,
        lifecycle.prototype_key(prototype.name),
        file,
        role,
        prototype=prototype.name,
        architecture=prototype.architecture,
        options=prototype.options,
        **values,
    )


def _figures(outcome: Outcome, prototype: str) -> dict[str, Any]:
    accuracy = outcome.metrics.get("model", {}).get("prototypes", {}).get(prototype)
    return {} if accuracy is None else {"accuracy": accuracy}


def _initialized(session: Session, federation: FederationRow, outcome: Outcome, max_attempts: int) -> None:
    config = lifecycle.config_of(federation)
    for prototype in config.prototypes:
        _add_prototype_model(
            session,
            federation,
            prototype,
            outcome.files[prototype.name],
            "initial",
            round_index=0,
            metrics=_figures(outcome, prototype.name),
        )
    federation.accuracy = outcome.metrics.get("accuracy")
    if config.recipe.discriminators is None:
        lifecycle.move(session, federation, "run")
    else:
        jobs.enqueue(session, "generator", federation, max_attempts)


def _generated(session: Session, federation: FederationRow, outcome: Outcome) -> None:
    discriminators = lifecycle.config_of(federation).recipe.discriminators
    assert discriminators is not None
    generator = discriminators.generator
    _add_model(
        session,
        federation,
        lifecycle.GENERATOR,
        outcome.files[lifecycle.GENERATOR],
        "generator",
        architecture=generator.architecture,
        options=generator.options,
        metrics=outcome.metrics,
    )
    plan = discriminators.plan
    _add_model(
        session,
        federation,
        lifecycle.DISCRIMINATOR,
        outcome.files[lifecycle.DISCRIMINATOR],
        "discriminator",
        architecture=plan.architecture,
        options=plan.options,
    )
    federation.collect_deadline_at = jobs.later(discriminators.deadline_seconds)
    lifecycle.move(session, federation, "collect")


def _scored(session: Session, federation: FederationRow, outcome: Outcome) -> None:
    names = {client.id: client.name for client in lifecycle.live_clients(session, federation.id)}
    for client_id, row in lifecycle.discriminators_of(session, federation.id).items():
        if names.get(client_id) in outcome.files:
            row.scores_digest = outcome.files[names[client_id]][0]
    if federation.state == "scoring":
        lifecycle.move(session, federation, "run")


def _fused(session: Session, federation: FederationRow, job: JobRow, outcome: Outcome, keep_updates: bool) -> None:
    round_ = session.get_one(RoundRow, job.round_id)
    config = lifecycle.config_of(federation)
    updates = list(session.scalars(select(UpdateRow).where(UpdateRow.round_id == round_.id)))
    parents = sorted({update.digest for update in updates})
    models = dict(round_.models)
    for prototype in config.prototypes:
        if prototype.name not in outcome.files:
            continue
        base = session.get_one(ModelRow, round_.base_models[prototype.name])
        model = _add_prototype_model(
            session,
            federation,
            prototype,
            outcome.files[prototype.name],
            "global",
            round_id=round_.id,
            round_index=round_.index,
            recipe=config.recipe.model_dump(mode="json"),
            parents=[base.digest, *parents],
            metrics=_figures(outcome, prototype.name),
        )
        models[prototype.name] = model.id
    round_.models = models
    round_.metrics = outcome.metrics
    round_.state = advance(ROUND, round_.state, "publish", "round")
    round_.published_at = now()
    federation.accuracy = outcome.metrics.get("accuracy", federation.accuracy)
    effects.touch(session, federation)
    if not keep_updates:
        effects.release_blobs(session, set(parents))


def give_up(session: Session, job: JobRow, error: str, detail: str) -> None:
    """Record that a job has failed for good: its round fails, its federation pauses or, before the first round, fails.

    The current models stay as they are. `retry` of the job takes everything up again.
    """
    federation = lifecycle.locked(session, job.federation_id)
    job.error, job.detail = error, detail[:2000]
    if job.state == "running":
        jobs.end(job, "fail")
    if federation.state in ("cancelled", "failed", "finished"):
        return
    if job.round_id is not None:
        round_ = session.get_one(RoundRow, job.round_id)
        round_.state = advance(ROUND, round_.state, "fail", "round")
        round_.reason = f"{error}: {detail}"[:2000]
    federation.error, federation.detail = error, detail[:2000]
    if federation.state in ("preparing", "scoring"):
        lifecycle.move(session, federation, "fail")
    elif federation.state == "running" and job.round_id is not None:
        lifecycle.move(session, federation, "pause")


def cancel(session: Session, job: JobRow) -> None:
    """End a job that an operator does not want any more; what it was for waits for a retry.

    A running job is only asked to stop: its worker looks every few seconds, kills the child and calls this again.
    """
    lifecycle.locked(session, job.federation_id)
    if job.state == "running" and not job.cancel_requested:
        jobs.request_cancel(session, job)
        return
    jobs.end(job, "cancel")
    give_up(session, job, "cancelled", "cancelled by an operator; retry the job to go on")


def revive(session: Session, job: JobRow) -> None:
    """Retry a failed job and put its round and federation back to where they were.

    Raises:
        DomainError: invalid-transition, when its federation is over or went on without it.
    """
    federation = lifecycle.locked(session, job.federation_id)
    if federation.state in ("cancelled", "finished"):
        raise DomainError("invalid-transition", f"its federation is {federation.state}", state=federation.state)
    newest = lifecycle.newest_round(session, federation)
    if job.round_id is not None and newest is not None and newest.id != job.round_id:
        raise DomainError("invalid-transition", f"the federation went on to round {newest.index}", state=job.state)
    jobs.requeue(session, job)
    if job.round_id is not None:
        round_ = session.get_one(RoundRow, job.round_id)
        round_.state = advance(ROUND, round_.state, "retry", "round")
        round_.reason = None
        if federation.state == "paused":
            lifecycle.move(session, federation, "resume")
    elif federation.state == "failed":
        federation.state = "scoring" if job.kind == "score" else advance(FEDERATION, federation.state, "revive", "")
        effects.touch(session, federation)
    federation.error = federation.detail = None
