"""Federations: create, look at, steer."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from contract.federation import FederationConfig
from contract.ids import new_id
from contract.recipes.parts import GeneratorImported
from contract.recipes.recipe import Recipe
from contract.wire import federations as wire
from contract.wire.federations import DatasetRefs, FederationCreate
from service.domain import federation as rules
from service.domain import rounds as opening
from service.domain.errors import DomainError, invalid_field
from service.domain.mixture import check_mixture
from service.domain.states import LIVE, ROUND, advance
from service.infra import tokens
from service.operations.access import joining
from service.operations.ledger import audit
from service.operations.ledger.clock import now
from service.operations.ledger.limits import check_room
from service.operations.ledger.paging import page
from service.operations.progress import jobs, lifecycle, reading
from service.operations.store import datasets, models, workers
from service.persistence.tables import (
    ClientRow,
    DatasetRow,
    FederationRow,
    JobRow,
    ModelRow,
    ParticipantRow,
    RoundRow,
)


def create(
    session: Session, key: bytes, request: FederationCreate, join_days: float = 30.0, most: int = 10_000
) -> FederationRow:
    """Add a federation after checking that its parts fit together.

    Args:
        join_days: life of the join token where the request leaves it open.
        most: how many federations there may be that are not over.

    Raises:
        DomainError: invalid-field, naming the part and the reason; name-taken; limit-reached.
    """
    check_room(
        session,
        select(FederationRow.id).where(FederationRow.state.in_(LIVE)),
        most,
        "federations that are not over",
        "POTSTILL_MAX_FEDERATIONS",
        "finish or cancel one",
    )
    if session.scalars(select(FederationRow.id).where(FederationRow.name == request.name)).first():
        raise DomainError("name-taken", f"a federation {request.name!r} exists; choose another name", field="name")
    refs = _resolve_datasets(session, request)
    recipe = rules.resolve_recipe(request.recipe, refs.validation is not None)
    config = FederationConfig(
        task=request.task,
        prototypes=request.prototypes,
        server_model=request.server_model,
        recipe=recipe,
        local=rules.resolve_local(request, recipe),
        rounds=request.rounds,
        datasets=refs,
        queue=request.queue,
    )
    check_mixture(config, {role for role, id_ in refs if id_ is not None})
    for model_id in _imported(request, recipe):
        models.still_there(models.get(session, model_id))
    id_, nonce = new_id("federation"), tokens.fresh_nonce()
    row = FederationRow(
        id=id_,
        name=request.name,
        state="created",
        config=config.model_dump(mode="json"),
        seed=request.seed,
        retention=None if request.retention is None else request.retention.model_dump(mode="json"),
        join_nonce=nonce,
        join_hash=tokens.hash_token(key, tokens.derive(key, "join", id_, nonce)),
        created_at=now(),
        version=1,
        round_index=0,
        gan_round=0,
    )
    joining.limit(row, request.join, join_days)
    session.add(row)
    session.flush()
    audit.record(session, "federation.create", id_, federation=id_, name=row.name, recipe=recipe.name)
    return row


def _imported(request: FederationCreate, recipe: Recipe) -> list[str]:
    """Return the ids of the imported models that a federation starts from."""
    prototypes = [*request.prototypes, *([request.server_model] if request.server_model else [])]
    found = [prototype.initial_model for prototype in prototypes if prototype.initial_model is not None]
    generator = recipe.discriminators.generator if recipe.discriminators else None
    return [*found, generator.model] if isinstance(generator, GeneratorImported) else found


def _resolve_datasets(session: Session, request: FederationCreate) -> DatasetRefs:
    ids: dict[str, str | None] = {}
    for role in ("unlabeled", "validation", "test"):
        name = getattr(request.datasets, role)
        ids[role] = None
        if name is not None:
            row = datasets.find(session, name)
            if row is None:
                raise invalid_field(f"datasets.{role}", f"there is no data set {name!r}; register it first")
            _check_dataset(f"datasets.{role}", row, request, labeled=role != "unlabeled")
            ids[role] = row.id
    return DatasetRefs.model_validate(ids)


def _check_dataset(field: str, row: DatasetRow, request: FederationCreate, labeled: bool) -> None:
    spec = request.task.input
    if row.shape != spec.shape or row.dtype != spec.dtype:
        raise invalid_field(
            field, f"{row.name!r} has samples {row.dtype} {row.shape}, the task wants {spec.dtype} {spec.shape}"
        )
    if labeled and not row.labeled:
        raise invalid_field(field, f"{row.name!r} has no labels; upload it with a tensor 'labels'")
    if labeled and (row.num_classes or 0) > request.task.num_classes:
        raise invalid_field(
            field, f"{row.name!r} has label {(row.num_classes or 0) - 1}, the task {request.task.num_classes} classes"
        )


def start(session: Session, federation_id: str) -> FederationRow:
    """Begin: the first models are made, then rounds open as soon as enough clients are there."""
    row = reading.get_locked(session, federation_id)
    lifecycle.move(session, row, "start")
    row.started_at = now()
    audit.record(session, "federation.start", row.id, federation=row.id)
    jobs.enqueue(session, "initialize", row)
    return row


def pause(session: Session, federation_id: str) -> FederationRow:
    """Hold: a round that is being fused is still published, but no round closes or opens. Deadlines go on."""
    row = reading.get_locked(session, federation_id)
    lifecycle.move(session, row, "pause")
    audit.record(session, "federation.pause", row.id, federation=row.id)
    return row


def resume(session: Session, federation_id: str) -> FederationRow:
    """Go on. After a failed round this gives the round up and opens the next one from the same models.

    Where groups ran ahead of the failed round, their round goes on, and the main model's clients start it from the
    main model that there is.
    """
    row = reading.get_locked(session, federation_id)
    lifecycle.move(session, row, "resume")
    audit.record(session, "federation.resume", row.id, federation=row.id)
    row.error = row.detail = None
    row.skipped_rounds = 0
    for round_ in reading.open_rounds(session, row):
        if round_.state == "failed":
            lifecycle.let_go(session, round_)
    lifecycle.proceed(session, row)
    return row


def cancel(session: Session, federation_id: str) -> FederationRow:
    """End a federation for good; its models stay."""
    row = reading.get_locked(session, federation_id)
    lifecycle.move(session, row, "cancel")
    audit.record(session, "federation.cancel", row.id, federation=row.id)
    row.finished_at = now()
    for job in session.scalars(
        select(JobRow).where(JobRow.federation_id == row.id, JobRow.state.in_(("queued", "running")))
    ):
        jobs.withdraw(session, job)
    lifecycle.let_go_of_gan(session, row, row.gan_round)
    for round_ in reading.open_rounds(session, row):
        lifecycle.let_go(session, round_)
        if round_.state in ("collecting", "aggregating"):
            round_.state = advance(ROUND, round_.state, "fail", "round")
            round_.reason, round_.closed_at = "cancelled: the federation was cancelled", round_.closed_at or now()
    return row


def _counts(session: Session, ids: list[str]) -> dict[str, int]:
    rows = session.execute(
        select(ClientRow.federation_id, func.count())
        .where(ClientRow.federation_id.in_(ids), ClientRow.revoked_at.is_(None))
        .group_by(ClientRow.federation_id)
    )
    return {row[0]: row[1] for row in rows}


def _summary(row: FederationRow, clients: int) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "recipe": row.config["recipe"]["name"],
        "round": row.round_index,
        "rounds_total": row.config["rounds"]["total"],
        "clients": clients,
        "accuracy": row.accuracy,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "error": row.error,
        "detail": row.detail,
    }


def listing(session: Session, limit: int, after: str | None) -> tuple[list[wire.FederationSummary], str | None]:
    """Return a page of federations."""
    rows, following = page(session, select(FederationRow), FederationRow.id, limit, after)
    counts = _counts(session, [row.id for row in rows])
    return [wire.FederationSummary.model_validate(_summary(row, counts.get(row.id, 0))) for row in rows], following


def describe(session: Session, row: FederationRow) -> wire.Federation:
    """Return a federation in full."""
    config = reading.config_of(row)
    newest = reading.newest_round(session, row)
    current = reading.current_models(session, row.id)
    accuracies = session.execute(
        select(RoundRow.index, RoundRow.metrics)
        .where(RoundRow.federation_id == row.id, RoundRow.state == "published")
        .order_by(RoundRow.index)
    )
    refs = {}
    for prototype in config.published:
        id_ = current.get(reading.prototype_key(prototype.name))
        if id_ is not None:
            refs[prototype.name] = models.reference(session.get_one(ModelRow, id_))
    return wire.Federation.model_validate(
        _summary(row, _counts(session, [row.id]).get(row.id, 0))
        | {
            "task": config.task,
            "prototypes": config.prototypes,
            "server_model": config.server_model,
            "composition": config.recipe,
            "local": config.local,
            "rounds": config.rounds,
            "datasets": config.datasets,
            "seed": row.seed,
            "queue": config.queue,
            "retention": row.retention,
            "join": joining.state(row),
            "current_round": newest.id if newest else None,
            "waiting_for": _waiting_for(session, row, newest),
            "gan_round": row.gan_round,
            "discriminators": reading.discriminator_count(session, row.id),
            "models": refs,
            "accuracies": [(i, m["accuracy"]) for i, m in accuracies if m.get("accuracy") is not None],
        }
    )


def _waiting_for(session: Session, row: FederationRow, newest: RoundRow | None) -> str | None:
    """Say what keeps a federation from going on, if anything does."""
    unserved = workers.unserved(session, row.id)
    if unserved:
        return "; ".join(f"a worker of the queue {queue!r}: none is alive" for queue in unserved)
    if row.state != "running" or (newest is not None and newest.state in ("collecting", "aggregating")):
        return None
    wanted = opening.clients_wanted(reading.config_of(row).rounds, first=newest is None)
    ready = reading.eligible_count(session, row)
    return f"clients: a round opens with {wanted}, and {ready} {'is' if ready == 1 else 'are'} ready"


def versions(session: Session, ids: list[str]) -> dict[str, int]:
    """Return the versions of some federations."""
    rows = session.execute(select(FederationRow.id, FederationRow.version).where(FederationRow.id.in_(ids)))
    return {row[0]: row[1] for row in rows}


def due(session: Session) -> list[str]:
    """Return the federations for which a deadline has passed or a device has gone silent, in a fixed order."""
    moment = now()
    rounds = (
        select(FederationRow.id)
        .join(RoundRow, RoundRow.federation_id == FederationRow.id)
        .where(
            FederationRow.state == "running",
            RoundRow.state == "collecting",
            RoundRow.deadline_at <= moment,
            RoundRow.waits_for.is_(None),
        )
    )
    silent = (
        select(FederationRow.id)
        .join(RoundRow, RoundRow.federation_id == FederationRow.id)
        .join(ParticipantRow, ParticipantRow.round_id == RoundRow.id)
        .where(
            FederationRow.state == "running",
            RoundRow.state == "collecting",
            ParticipantRow.silent_at <= moment,
            ParticipantRow.lost_at.is_(None),
        )
    )
    stages = select(FederationRow.id).where(
        FederationRow.state.in_(("training_generator", "collecting_discriminators")),
        FederationRow.collect_deadline_at <= moment,
    )
    return sorted({id_ for query in (rounds, silent, stages) for id_ in session.scalars(query)})


def proceed(session: Session, federation_id: str) -> None:
    """Let a federation do what has become due."""
    lifecycle.proceed(session, reading.locked(session, federation_id))
