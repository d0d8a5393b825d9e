"""What is kept of a federation: decided after each publication and by the tidying, whoever runs it."""

import json
from collections.abc import Iterable
from datetime import timedelta

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session, aliased

from contract.bodies import stored
from contract.wire.federations import TERMINAL_STATES
from contract.wire.retention import Retention
from service.domain.errors import not_found
from service.domain.mixture import check_retention
from service.domain.states import LIVE
from service.operations.ledger import audit, garbage
from service.operations.ledger.clock import A_DAY, now, patient
from service.operations.progress import buffered, reading
from service.operations.steer import ensembles, predicting
from service.operations.store import provenance
from service.persistence.tables import (
    CurrentModelRow,
    DiscriminatorRow,
    FederationRow,
    GanUpdateRow,
    ModelRow,
    ProvenanceRow,
    RoundRow,
    UpdateRow,
)

_AFTER_ROUNDS = ("initial", "global", "gan")


def plan_of(federation: FederationRow, default: Retention) -> Retention:
    """Return a federation's own plan, or the service's; masked updates are of no use after their round."""
    plan = default if federation.retention is None else stored(Retention, federation.retention)
    return plan if reading.config_of(federation).rounds.secure is None else plan.model_copy(update={"updates": 0})


def change(session: Session, federation_id: str, plan: Retention) -> None:
    """Give a federation a plan of its own and apply it at once.

    Raises:
        DomainError: not-found; invalid-field, for what a secure round cannot keep.
    """
    if session.get(FederationRow, federation_id) is None:
        raise not_found("federation", federation_id)
    federation = reading.locked(session, federation_id)
    check_retention(reading.config_of(federation).rounds, plan)
    federation.retention = plan.model_dump(mode="json")
    audit.record(session, "federation.retention", federation_id, federation=federation_id, **federation.retention)
    apply(session, federation, plan)


def apply(session: Session, federation: FederationRow, default: Retention) -> int:
    """Let go of what the plan does not keep; return how many blobs. Doing it twice does no harm."""
    plan = plan_of(federation, default)
    ended = federation.state in ("finished", "cancelled")  # a failed one may be revived
    expired = _is_expired(federation, plan)
    published = _published(session, federation, plan)
    count = garbage.let_go(session, _spent_updates(session, federation, plan, published, expired))
    count += garbage.let_go(session, _spent_gan_updates(session, federation, plan, expired))
    count += garbage.let_go(session, _old_models(session, federation, plan, published, expired))
    if expired or (ended and not plan.discriminators):
        mine = select(DiscriminatorRow).where(DiscriminatorRow.federation_id == federation.id)
        count += garbage.let_go(session, session.scalars(mine.where(DiscriminatorRow.removed_at.is_(None))))
    if expired or (ended and not plan.samples):
        count += garbage.let_go(session, _models(session, federation, ModelRow.role == "samples"))
    kept = [] if expired else None if plan.ensembles == "all" else [row.id for row in published[: plan.ensembles]]
    count += garbage.let_go(session, ensembles.spent(session, federation, kept))
    count += garbage.let_go(session, predicting.spent(session, federation, 0 if expired else plan.predictions))
    _old_states(session, federation, plan, published, expired)
    return count


def _is_expired(federation: FederationRow, plan: Retention) -> bool:
    if plan.days is None or federation.state not in TERMINAL_STATES or federation.finished_at is None:
        return False
    return patient(now(), A_DAY) - timedelta(days=plan.days) >= federation.finished_at


def _published(session: Session, federation: FederationRow, plan: Retention) -> list[RoundRow]:
    """Return the published rounds, the newest first: as many as the plan counts."""
    counts = (plan.updates, plan.models, plan.ensembles)
    most = max((count for count in counts if count != "all"), default=0)
    mine = select(RoundRow).where(RoundRow.federation_id == federation.id, RoundRow.state == "published")
    return list(session.scalars(mine.order_by(RoundRow.index.desc()).limit(most)))


def is_needed(federation: FederationRow) -> ColumnElement[bool]:
    """Whether a round's updates are still to be fused.

    A failed round may be tried again until another one follows that does not wait for its models.
    """
    if federation.state not in LIVE:
        return RoundRow.id.is_(None)
    follower = aliased(RoundRow)
    waited = select(follower.waits_for).where(follower.federation_id == federation.id, follower.waits_for.is_not(None))
    newest = RoundRow.index == federation.round_index
    failed = (RoundRow.state == "failed") & (newest | RoundRow.id.in_(waited))
    return or_(RoundRow.state.in_(("collecting", "aggregating")), failed)


def _spent_updates(
    session: Session, federation: FederationRow, plan: Retention, published: list[RoundRow], expired: bool
) -> list[UpdateRow]:
    query = (
        select(UpdateRow)
        .join(RoundRow, RoundRow.id == UpdateRow.round_id)
        .where(RoundRow.federation_id == federation.id, UpdateRow.removed_at.is_(None), ~is_needed(federation))
    )
    if not expired and plan.updates == "all":
        # Also of rounds that have a document and no models: a gate turned them away, or they were given up.
        fused = select(ProvenanceRow.round_id).where(ProvenanceRow.round_id.is_not(None))
        query = query.where(RoundRow.state != "published", RoundRow.id.not_in(fused))
    elif not expired and plan.updates != "all":
        query = query.where(RoundRow.id.not_in([round_.id for round_ in published[: plan.updates]]))
    return list(session.scalars(query))


def _spent_gan_updates(
    session: Session, federation: FederationRow, plan: Retention, expired: bool
) -> list[GanUpdateRow]:
    query = select(GanUpdateRow).where(GanUpdateRow.federation_id == federation.id, GanUpdateRow.removed_at.is_(None))
    if not expired and federation.state in (*LIVE, "failed"):  # a failed job may be tried again
        query = query.where(GanUpdateRow.gan_round != federation.gan_round)
    if plan.updates == "all" and not expired and federation.state != "cancelled":
        return []
    if not expired and plan.updates != "all":
        query = query.where(GanUpdateRow.gan_round < federation.gan_round - plan.updates)
    return list(session.scalars(query))


def _models(session: Session, federation: FederationRow, *which: ColumnElement[bool]) -> list[ModelRow]:
    mine = select(ModelRow).where(ModelRow.federation_id == federation.id, ModelRow.removed_at.is_(None), *which)
    return list(session.scalars(mine))


def _old_models(
    session: Session, federation: FederationRow, plan: Retention, published: list[RoundRow], expired: bool
) -> list[ModelRow]:
    """Return the models of rounds that are no longer kept, but for those that somebody may still read."""
    if plan.models == "all" and not expired:
        return []
    query: list[ColumnElement[bool]] = [
        ModelRow.role.in_(_AFTER_ROUNDS),
        ModelRow.id.not_in(select(CurrentModelRow.model_id)),
    ]
    if not expired:
        assert plan.models != "all"
        kept = published[: plan.models]
        oldest = kept[-1].index if len(kept) == plan.models else 0
        query.append(ModelRow.round_index < oldest)
        if federation.state in ("created", "preparing", "training_generator"):
            return []
    old = _models(session, federation, *query)
    needed = _bases(session, federation) | imported(session) if old else set()
    return [model for model in old if model.id not in needed]


def _bases(session: Session, federation: FederationRow) -> set[str]:
    """Return the models that rounds and devices started from whose updates are not fused yet."""
    rounds = session.execute(
        select(RoundRow.id, RoundRow.base_models).where(RoundRow.federation_id == federation.id, is_needed(federation))
    ).all()
    found = {id_ for _, bases in rounds for id_ in bases.values()}
    return found | buffered.begun_models(session, federation, [row.id for row in rounds])


def imported(session: Session, without: str = "") -> set[str]:
    """Return the models that federations name which have not begun yet, whosever they are."""
    unbegun = FederationRow.state.in_(("created", "preparing", "failed"))
    waiting = select(FederationRow.config).where(unbegun, FederationRow.id != without)
    return {word for config in session.scalars(waiting) for word in _model_ids(config)}


def _model_ids(tree: object) -> Iterable[str]:
    return {word for word in json.dumps(tree).split('"') if word.startswith("mdl_")}


def _old_states(
    session: Session, federation: FederationRow, plan: Retention, published: list[RoundRow], expired: bool
) -> None:
    """Forget what recipes handed on once, as soon as no round reads it whose updates stay."""
    if plan.updates == "all" and not expired:
        return
    current = select(CurrentModelRow.model_id)
    old = _models(session, federation, ModelRow.role == "state", ModelRow.id.not_in(current))
    if not old:
        return
    kept = [] if expired or plan.updates == "all" else published[: plan.updates]
    documents = session.scalars(
        select(ProvenanceRow.document).where(ProvenanceRow.round_id.in_([round_.id for round_ in kept]))
    )
    read = {digest for text in documents for _, digest in provenance.places(json.loads(text)["spec"])}
    for model in old:
        if model.digest not in read:
            garbage.let_go(session, [model])
            session.delete(model)


def everyone(session: Session) -> list[str]:
    """Return all federations by id, for the tidying: a plan may have changed, or days have passed."""
    return list(session.scalars(select(FederationRow.id).order_by(FederationRow.id)))


def tidy(session: Session, federation_id: str, default: Retention) -> None:
    """Apply the plan of one federation, if it is still there."""
    if session.get(FederationRow, federation_id) is not None:
        apply(session, reading.locked(session, federation_id), default)
