"""What jobs that fuse a round hand over: new models, of which the gate may turn some away."""

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.tasks import measured_of
from service.domain import carried
from service.domain.states import ROUND, advance
from service.operations.ledger import after_commit
from service.operations.ledger.clock import now
from service.operations.progress import lifecycle, reading, secure, sharing
from service.operations.steer import ensembles, evaluating, exclusions, explained, gating, halting, new_models
from service.operations.store.outcome import Outcome
from service.persistence.tables import FederationRow, JobRow, ModelRow, RoundRow, UpdateRow


def publish(session: Session, federation: FederationRow, job: JobRow, outcome: Outcome) -> None:
    """Publish a round's models, but those that the gate rejects; a round of which none is left is skipped."""
    round_ = session.get_one(RoundRow, job.round_id)
    excluded = exclusions.note(session, round_, outcome.metrics.get("excluded", {}))
    exclusions.tell_outliers(session, round_, outcome.metrics.get("outliers", {}))
    exclusions.tell_flags(session, round_, outcome.metrics.get("explanation", {}).get("flags", {}))
    on_devices = evaluating.note(session, round_, outcome.metrics)
    rejected = gating.judge(session, federation, round_, outcome.metrics, on_devices)
    ahead = dict(round_.models)  # these went ahead of the others, and clients may have trained from them
    for name, id_ in ahead.items():
        model = session.get_one(ModelRow, id_)
        model.metrics = new_models.figures_of(outcome, name)
        model.provenance_id = model.provenance_id or outcome.provenance_id
    files = {name: file for name, file in outcome.files.items() if name not in ahead and name not in rejected}
    after_commit.release_blobs(session, {file[0] for name, file in outcome.files.items() if name not in files})
    add_round_models(session, federation, round_, files, outcome)
    published = bool(round_.models) or not rejected
    gated = _gated_state(session, federation, outcome, rejected, not published)
    new_models.carry(session, federation, round_, gated)
    sent = new_models.sent(session, federation)
    figures = {name: value for name, value in outcome.metrics.items() if name != "explanation"}
    if "labels" in figures:
        figures["labels"] = figures["labels"] | sharing.figures(session, round_.id)
    explained.keep(session, round_, outcome.metrics.get("explanation"))
    round_.metrics = figures | ({"excluded": excluded} if excluded else {}) | ({"sent": sent} if sent else {})
    secure.forget(session, round_)
    sharing.let_go(session, round_.id)
    after_commit.release_blobs(session, outcome.member_digests)
    if published:
        round_.state = advance(ROUND, round_.state, "publish", "round")
        round_.published_at = now()
        round_.reason, federation.detail, federation.skipped_rounds = None, None, 0
        measured = measured_of(outcome.metrics)
        if not rejected and measured is not None:  # or it would be the accuracy of models that nobody gets
            federation.accuracy = measured
    if published and not rejected:
        ensembles.keep(session, federation, round_, outcome)
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
    rows = {n: session.get_one(ModelRow, id_) for n, id_ in reading.carried_state(session, federation.id).items()}
    old = {name: (row.digest, row.size) for name, row in rows.items()}
    return replace(outcome, state=carried.after_gate(old, outcome.state, rejected.keys(), nothing_left))


def add_round_models(
    session: Session,
    federation: FederationRow,
    round_: RoundRow,
    files: dict[str, tuple[str, int]],
    outcome: Outcome,
) -> None:
    """Add models that a round made, and let devices have them."""
    config = reading.config_for(session, round_)
    query = select(UpdateRow.digest).where(UpdateRow.round_id == round_.id, UpdateRow.excluded.is_(None))
    updates = sorted(set(session.scalars(query)))
    made = {}
    for prototype in config.published:
        if prototype.name not in files:
            continue
        base = session.get_one(ModelRow, round_.base_models[prototype.name])
        made[prototype.name] = new_models.add_prototype_model(
            session,
            federation,
            prototype,
            files[prototype.name],
            "global",
            round_id=round_.id,
            round_index=round_.index,
            recipe=config.recipe.model_dump(mode="json"),
            parents=[base.digest, *updates],
            metrics=new_models.figures_of(outcome, prototype.name),
            provenance_id=outcome.provenance_id,
        ).id
    round_.models = round_.models | made


def fail(session: Session, federation: FederationRow, job: JobRow, reason: str) -> None:
    """Say of the round that it has failed; its updates stay for a retry."""
    round_ = session.get_one(RoundRow, job.round_id)
    round_.state = advance(ROUND, round_.state, "fail", "round")
    round_.reason = reason[:2000]
    sharing.stop(session, round_.id)
    halting.fail(session, federation, job, reason)


def retry(session: Session, federation: FederationRow, job: JobRow) -> None:
    """Fuse the round again."""
    round_ = session.get_one(RoundRow, job.round_id)
    round_.state = advance(ROUND, round_.state, "retry", "round")
    round_.reason = None
    if federation.state == "paused":
        lifecycle.move(session, federation, "resume")
