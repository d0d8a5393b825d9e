"""What a finished job changes: models, metrics, the round and what follows, in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.recipes.parts import GeneratorFederated
from contract.wire.federations import TERMINAL_STATES, Prototype
from contract.wire.retention import Retention
from service.domain import kept
from service.domain.errors import DomainError, invalid_field
from service.domain.states import ROUND, advance
from service.operations.ledger import after_commit, audit, locks
from service.operations.ledger.clock import now
from service.operations.progress import jobs, lifecycle, reading
from service.operations.steer import exclusions, gating, retention, rollback
from service.operations.store import provenance
from service.operations.store.outcome import Outcome
from service.persistence.tables import (
    CurrentModelRow,
    FederationRow,
    JobRow,
    ModelRow,
    RoundRow,
    UpdateRow,
)

__all__ = ["Outcome", "cancelled", "give_up", "publish", "request_cancel", "revive"]


def publish(session: Session, job_id: str, fence: int, outcome: Outcome, keep: Retention | None) -> None:
    """Make a job's result visible, all of it or nothing; then let go of what is no longer kept (`keep`, by default).

    Raises:
        LostLease: the caller no longer holds the job; nothing changes.
    """
    locks.hold_blobs(session)
    job = jobs.held(session, job_id, fence)
    federation = reading.locked(session, job.federation_id)
    if job.cancel_requested:  # the wish came first: nothing of the result is kept
        after_commit.release_blobs(session, {digest for digest, _ in outcome.files.values()})
        cancelled(session, job)
        return
    job.peak_memory_bytes = outcome.peak_memory_bytes
    job.resumed_from = outcome.resumed_from
    job.device = outcome.device or job.device
    jobs.end(job, "finish")
    if federation.state in TERMINAL_STATES:
        after_commit.release_blobs(session, {digest for digest, _ in outcome.files.values()})
        return
    outcome = replace(outcome, provenance_id=provenance.record(session, federation, job, outcome))
    if job.kind == "initialize":
        _initialized(session, federation, outcome)
    elif job.kind == "generator":
        _generated(session, federation, outcome)
    elif job.kind == "score":
        _scored(session, federation, outcome)
    else:
        _fused(session, federation, job, outcome)
    session.flush()
    lifecycle.proceed(session, federation)
    session.flush()
    retention.apply(session, federation, keep or Retention())


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
        reading.prototype_key(prototype.name),
        file,
        role,
        prototype=prototype.name,
        architecture=prototype.architecture,
        options=prototype.options,
        **values,
    )


def _figures(outcome: Outcome, prototype: str) -> dict[str, Any]:
    accuracy = outcome.metrics.get("model", {}).get("prototypes", {}).get(prototype)
    gate = outcome.metrics.get("gate", {})
    measured = gate.get("models", {}).get(prototype, {}).get("after")
    found = {"accuracy": accuracy, gate.get("metric", ""): measured}
    return {name: value for name, value in found.items() if value is not None}


def _initialized(session: Session, federation: FederationRow, outcome: Outcome) -> None:
    config = reading.config_of(federation)
    for prototype in config.published:
        _add_prototype_model(
            session,
            federation,
            prototype,
            outcome.files[prototype.name],
            "initial",
            round_index=0,
            metrics=_figures(outcome, prototype.name),
            provenance_id=outcome.provenance_id,
        )
    _keep_state(session, federation, None, outcome)
    federation.accuracy = outcome.metrics.get("accuracy")
    if config.recipe.discriminators is None:
        lifecycle.move(session, federation, "run")
    else:
        jobs.enqueue(session, "generator", federation)


def _averaged(session: Session, federation: FederationRow) -> list[str]:
    """End the round of the federated generator whose average is here; return the digests that it was made of."""
    parents = [row.digest for _, row in reading.gan_updates(session, federation, federation.gan_round)]
    federation.gan_round += 1
    return parents


def _generated(session: Session, federation: FederationRow, outcome: Outcome) -> None:
    discriminators = reading.config_of(federation).recipe.discriminators
    assert discriminators is not None
    generator, plan = discriminators.generator, discriminators.plan
    parents: list[str] = []
    if isinstance(generator, GeneratorFederated):
        parents = _averaged(session, federation)
        if reading.GAN in outcome.files:
            key, upcoming = reading.GAN, federation.gan_round
            made: dict[str, Any] = {"round_index": upcoming, "parents": parents, "provenance_id": outcome.provenance_id}
            _add_model(session, federation, key, outcome.files[key], key, **made)
            lifecycle.open_gan_round(session, federation, upcoming, generator.deadline_seconds)
            return
    networks = {
        reading.GENERATOR: (generator.architecture, generator.options, outcome.metrics),
        reading.DISCRIMINATOR: (plan.architecture, plan.options, {}),
        reading.SAMPLES: (None, {}, {}),
    }
    for name, file in outcome.files.items():
        architecture, options, metrics = networks[name]
        _add_model(
            session,
            federation,
            name,
            file,
            name,
            architecture=architecture,
            options=options,
            metrics=metrics,
            parents=parents if name == reading.GENERATOR else [],
            provenance_id=outcome.provenance_id,
        )
    federation.collect_deadline_at = jobs.later(discriminators.deadline_seconds)
    lifecycle.move(session, federation, "collect")


def _scored(session: Session, federation: FederationRow, outcome: Outcome) -> None:
    rejected = outcome.metrics.get("rejected", {})
    for client, row in reading.unscored(session, federation.id):
        if client.name in outcome.files:
            row.scores_digest = outcome.files[client.name][0]
            row.provenance_id = outcome.provenance_id
        elif client.name in rejected:
            row.rejected = str(rejected[client.name])[:2000]
    if federation.state == "scoring":
        lifecycle.move(session, federation, "run")


def _fused(session: Session, federation: FederationRow, job: JobRow, outcome: Outcome) -> None:
    round_ = session.get_one(RoundRow, job.round_id)
    rejected = gating.judge(session, federation, round_, outcome.metrics)
    excluded = exclusions.note(session, round_, outcome.metrics.get("excluded", {}))
    ahead = dict(round_.models)  # these went ahead of the others, and clients may have trained from them
    for name, id_ in ahead.items():
        model = session.get_one(ModelRow, id_)
        model.metrics, model.provenance_id = _figures(outcome, name), model.provenance_id or outcome.provenance_id
    files = {name: file for name, file in outcome.files.items() if name not in ahead and name not in rejected}
    after_commit.release_blobs(session, {file[0] for name, file in outcome.files.items() if name not in files})
    add_round_models(session, federation, round_, files, outcome)
    published = bool(round_.models) or not rejected
    _keep_state(session, federation, round_, _gated_state(session, federation, outcome, rejected, not published))
    round_.metrics = outcome.metrics | ({"excluded": excluded} if excluded else {})
    if published:
        round_.state = advance(ROUND, round_.state, "publish", "round")
        round_.published_at = now()
        round_.reason, federation.detail, federation.skipped_rounds = None, None, 0
        if not rejected:  # or it would be the accuracy of models that nobody gets
            federation.accuracy = outcome.metrics.get("accuracy", federation.accuracy)
    if rejected:
        gating.turn_away(session, federation, round_, rejected, published)
    after_commit.touch(session, federation)


def _gated_state(
    session: Session, federation: FederationRow, outcome: Outcome, rejected: Mapping[str, str], nothing_left: bool
) -> Outcome:
    """Return the outcome with what is kept of it when models were rejected."""
    if outcome.state is None or not rejected:
        return outcome
    after_commit.release_blobs(session, {digest for digest, _ in outcome.state.values()})
    rows = {n: session.get_one(ModelRow, id_) for n, id_ in reading.kept_state(session, federation.id).items()}
    old = {name: (row.digest, row.size) for name, row in rows.items()}
    return replace(outcome, state=kept.after_gate(old, outcome.state, rejected.keys(), nothing_left))


def add_round_models(
    session: Session,
    federation: FederationRow,
    round_: RoundRow,
    files: dict[str, tuple[str, int]],
    outcome: Outcome,
) -> None:
    """Add models that a round made, and let devices have them."""
    config = reading.config_of(federation)
    query = select(UpdateRow.digest).where(UpdateRow.round_id == round_.id, UpdateRow.excluded.is_(None))
    updates = sorted(set(session.scalars(query)))
    made = {}
    for prototype in config.published:
        if prototype.name not in files:
            continue
        base = session.get_one(ModelRow, round_.base_models[prototype.name])
        made[prototype.name] = _add_prototype_model(
            session,
            federation,
            prototype,
            files[prototype.name],
            "global",
            round_id=round_.id,
            round_index=round_.index,
            recipe=config.recipe.model_dump(mode="json"),
            parents=[base.digest, *updates],
            metrics=_figures(outcome, prototype.name),
            provenance_id=outcome.provenance_id,
        ).id
    round_.models = round_.models | made


def _keep_state(session: Session, federation: FederationRow, round_: RoundRow | None, outcome: Outcome) -> None:
    """Replace what the recipe hands from round to round; what it no longer names stays as long as retention has it."""
    if outcome.state is None:
        return
    for name, id_ in reading.kept_state(session, federation.id).items():
        old = session.get_one(ModelRow, id_)
        if outcome.state.get(name, ("", 0))[0] == old.digest:
            continue
        session.execute(
            delete(CurrentModelRow).where(
                CurrentModelRow.federation_id == federation.id, CurrentModelRow.key == reading.state_key(name)
            )
        )
    session.flush()
    kept = reading.kept_state(session, federation.id)
    made = {
        "round_id": round_.id if round_ else None,
        "round_index": round_.index if round_ else 0,
        "provenance_id": outcome.provenance_id,
    }
    for name, file in outcome.state.items():
        if name not in kept:
            _add_model(session, federation, reading.state_key(name), file, "state", name=name, **made)


def give_up(session: Session, job: JobRow, error: str, detail: str) -> None:
    """Record that a job has failed for good: its round fails, its federation pauses or, before the first round, fails.

    The current models stay as they are. `retry` of the job takes everything up again.
    """
    federation = reading.locked(session, job.federation_id)
    job.error, job.detail = error, detail[:2000]
    if job.state == "running":
        jobs.end(job, "fail")
    if federation.state in TERMINAL_STATES:
        return
    if job.round_id is not None:
        round_ = session.get_one(RoundRow, job.round_id)
        round_.state = advance(ROUND, round_.state, "fail", "round")
        round_.reason = f"{error}: {detail}"[:2000]
    federation.error, federation.detail = error, detail[:2000]
    if job.kind == "score" and federation.state in ("running", "paused"):
        for _, row in reading.unscored(session, federation.id):  # or the next event would queue the same job again
            row.rejected = f"{error}: {detail}"[:2000]
    elif federation.state == "running":
        lifecycle.move(session, federation, "pause")
    elif federation.state != "paused":
        lifecycle.move(session, federation, "fail")


def request_cancel(session: Session, job: JobRow) -> None:
    """Do an operator's wish: end a queued job at once; ask the worker of a running one, which looks every second.

    Asking twice is asking once.
    """
    reading.locked(session, job.federation_id)
    job = jobs.fresh(session, job)
    audit.record(session, "job.cancel", job.id, federation=job.federation_id, kind=job.kind)
    if job.state == "running":
        job.cancel_requested = True
    else:
        cancelled(session, job)


def cancelled(session: Session, job: JobRow) -> None:
    """End a job that an operator does not want, in its worker's name. What it was for waits for a retry."""
    reading.locked(session, job.federation_id)
    jobs.end(job, "cancel")
    give_up(session, job, "cancelled", "cancelled by an operator; retry the job to go on")


def revive(session: Session, job: JobRow, exclude: Sequence[str] = (), force: bool = False) -> None:
    """Retry a failed job and put its round and federation back to where they were.

    Args:
        exclude: names or ids of clients whose updates are left out from now on.
        force: also when fewer than `min_updates` are left.

    Raises:
        DomainError: invalid-transition, when its federation is over or went on without it; invalid-field and
            too-few-updates, for what is to be left out.
    """
    federation = reading.locked(session, job.federation_id)
    job = jobs.fresh(session, job)
    if federation.state in ("cancelled", "finished"):
        raise DomainError("invalid-transition", f"its federation is {federation.state}", state=federation.state)
    rounds = {round_.id: round_ for round_ in reading.open_rounds(session, federation)}
    round_ = None if job.round_id is None else rounds.get(job.round_id)
    if job.round_id is not None and round_ is None:
        newest = max(each.index for each in rounds.values())
        raise DomainError("invalid-transition", f"the federation went on to round {newest}", state=job.state)
    if exclude and round_ is None:
        raise invalid_field("exclude", f"a job of kind {job.kind!r} fuses no updates")
    jobs.requeue(session, job)
    audit.record(session, "job.retry", job.id, federation=federation.id, kind=job.kind, without=len(exclude))
    if round_ is not None:
        rollback.check_same_bases(session, federation, round_)
        rollback.take_back(session, federation, round_, exclusions.exclude(session, round_, exclude, force))
        round_.state = advance(ROUND, round_.state, "retry", "round")
        round_.reason = None
        if federation.state == "paused":
            lifecycle.move(session, federation, "resume")
    elif federation.state == "failed":
        lifecycle.move(session, federation, _revival(federation, job))
        federation.finished_at = None
    elif job.kind == "score":
        for row in reading.discriminators_of(session, federation.id).values():
            if row.scores_digest is None:
                row.rejected = None
    federation.error = federation.detail = None


def _revival(federation: FederationRow, job: JobRow) -> str:
    """Return the event that puts a failed federation back to the stage that its job belongs to."""
    if job.kind == "generator" and federation.gan_round > 0:
        return "revive_generator"
    return "revive_scoring" if job.kind == "score" else "revive"
