"""Predictions are asked for, made by a job beside the federation's course, and kept for a while."""

import math

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract import architectures, vocabulary
from contract.ensembles import why_mute
from contract.federation import FederationConfig
from contract.groups import is_main
from contract.ids import new_id
from contract.wire.ensembles import EnsembleDocument, Network, PredictionDocument, PredictionRequest
from service.domain import parting
from service.domain.errors import DomainError, invalid_field
from service.operations.ledger import audit, locks
from service.operations.ledger.clock import now
from service.operations.ledger.limits import check_room
from service.operations.progress import jobs, reading
from service.operations.store import datasets, ensembles, models, predictions
from service.operations.store.outcome import Outcome
from service.persistence.tables import DatasetRow, EnsembleRow, FederationRow, JobRow, ModelRow, PredictionRow, RoundRow

MAX_WAITING = 8
"""Predictions of a federation that are not made yet."""
MAX_VALUES = 100_000_000
"""Samples times a network's outputs of one: 400 MB of logits."""


def ask(session: Session, federation_id: str, wish: PredictionRequest) -> PredictionRow:
    """Add a prediction and its job; all that it reads stays until it is made.

    Raises:
        DomainError: not-found, invalid-field, removed; limit-reached, when so many wait.
    """
    locks.hold_blobs(session)  # before the federation's, as everywhere
    federation = reading.get_locked(session, federation_id)
    mine = select(JobRow.id).where(JobRow.federation_id == federation.id, JobRow.kind == "predict")
    waiting = mine.where(JobRow.state.in_(("queued", "running")))
    check_room(session, waiting, MAX_WAITING, "predictions of the federation under way", "wait for one", alone=True)
    config = reading.config_of(federation)
    parting.check_predicts(config)
    data = _dataset(session, config, wish.dataset)
    found = _ensemble(session, federation, wish) if wish.ensemble else _model(session, federation, config, wish)
    job = jobs.enqueue(session, "predict", federation)
    session.flush()
    row = PredictionRow(
        id=new_id("prediction"),
        federation_id=federation.id,
        job_id=job.id,
        round_id=found.round_id,
        model_id=found.id if isinstance(found, ModelRow) else None,
        dataset=data.name,
        num_samples=data.num_samples,
        document=_document(config, data, found, _base(session, found)).model_dump(mode="json"),
        metrics={},
        created_at=now(),
    )
    session.add(row)
    session.flush()
    predictions.hold_inputs(session, row)
    audit.record(
        session,
        "federation.predict",
        row.id,
        federation=federation.id,
        dataset=data.digest,
        ensemble=wish.ensemble,
        job=job.id,
    )
    return row


def _dataset(session: Session, config: FederationConfig, named: str) -> DatasetRow:
    """Return a data set that the federation's networks read.

    Raises:
        DomainError: invalid-field.
    """
    row, task = datasets.find(session, named) or datasets.of_digest(session, named), config.task
    if row is None:
        raise invalid_field("dataset", f"there is no data set {named!r}; register it first")
    known = vocabulary.smallest(
        (f"prototype {each.name!r}", each.architecture, each.options) for each in config.published
    )
    why = datasets.why_not(row, task, row.labeled) or datasets.unknown_ids(row, known)
    if why is not None:
        raise invalid_field("dataset", why)
    if row.num_samples * math.prod(task.output_shape) > MAX_VALUES:
        most = MAX_VALUES // math.prod(task.output_shape)
        raise invalid_field("dataset", f"{row.name!r} has {row.num_samples} samples, {most} is the limit; cut it up")
    return row


def _round(session: Session, federation: FederationRow, index: int) -> RoundRow:
    mine = select(RoundRow).where(RoundRow.federation_id == federation.id, RoundRow.index == index)
    row = session.scalars(mine).first()
    if row is None or row.state != "published":
        state = "there is none" if row is None else f"it is {row.state}"
        raise invalid_field("round", f"round {index} has published nothing: {state}")
    return row


def _ensemble(session: Session, federation: FederationRow, wish: PredictionRequest) -> EnsembleRow:
    if wish.prototype is not None:
        raise invalid_field("prototype", "an ensemble is of all prototypes together; leave it out")
    if wish.round is None:
        row = ensembles.newest(session, federation.id)
    else:
        row = ensembles.of_round(session, _round(session, federation, wish.round))
    why = why_mute(ensembles.document_of(row))
    if why is not None:
        raise invalid_field("ensemble", why)
    return row


def _model(session: Session, federation: FederationRow, config: FederationConfig, wish: PredictionRequest) -> ModelRow:
    name = _prototype(config, wish.prototype)
    if wish.round is None:
        id_ = reading.current_models(session, federation.id).get(reading.prototype_key(name))
    else:
        round_ = _round(session, federation, wish.round)
        id_ = round_.models.get(name) or round_.base_models.get(name)  # who trained nothing has the one before
    if id_ is None:
        raise DomainError("not-found", f"the federation has no model of {name!r} yet; start it")
    row = models.get(session, id_)
    models.still_there(row)
    if row.architecture is None or not architectures.is_server_side(row.architecture):
        raise invalid_field("prototype", f"the service cannot run {row.architecture!r}; download the model")
    return row


def _prototype(config: FederationConfig, wanted: str | None) -> str:
    names = [each.name for each in config.published]
    if wanted is not None:
        if wanted not in names:
            raise invalid_field("prototype", f"there is no model of {wanted!r}; there are {', '.join(names)}")
        return wanted
    if config.server_model is not None:
        return names[-1]
    main = [name for name in names if is_main(name)]
    if len(main) > 1:
        raise invalid_field("prototype", f"name one of {', '.join(names)}, or take the ensemble")
    return main[0]


def _base(session: Session, found: ModelRow | EnsembleRow) -> str | None:
    """Return the digest of the base of a model that is a part of a network."""
    return models.base_of(session, found) if isinstance(found, ModelRow) else None


def _document(
    config: FederationConfig, data: DatasetRow, found: ModelRow | EnsembleRow, base: str | None
) -> PredictionDocument:
    model: Network | None = None
    ensemble: EnsembleDocument | None = None
    if isinstance(found, EnsembleRow):
        ensemble = ensembles.document_of(found)
    else:
        model = Network(architecture=str(found.architecture), options=found.options, digest=found.digest, base=base)
    return PredictionDocument(task=config.task, dataset=data.digest, model=model, ensemble=ensemble)


# ------------------------------------------------------------------------------------------------- how its job ends
def publish(session: Session, federation: FederationRow, job: JobRow, outcome: Outcome) -> None:
    """Name the file and the figures."""
    row = predictions.of_job(session, job.id)
    row.digest, row.size = outcome.files["predictions"]
    row.metrics, row.provenance_id = outcome.metrics, outcome.provenance_id
    predictions.let_go_of_inputs(session, row)


def fail(session: Session, federation: FederationRow, job: JobRow, reason: str) -> None:
    """Let go of what it reads; the federation goes on as if nothing were."""
    predictions.let_go_of_inputs(session, predictions.of_job(session, job.id))


def retry(session: Session, federation: FederationRow, job: JobRow) -> None:
    """Keep once more what it reads.

    Raises:
        DomainError: removed, where retention was quicker.
    """
    predictions.hold_inputs(session, predictions.of_job(session, job.id))


def spent(session: Session, federation: FederationRow, most: int) -> list[PredictionRow]:
    """Return the predictions whose files are still here, but for the newest `most`."""
    made = select(PredictionRow).where(PredictionRow.federation_id == federation.id, PredictionRow.digest.is_not(None))
    here = made.where(PredictionRow.removed_at.is_(None)).order_by(PredictionRow.id.desc())
    return list(session.scalars(here.offset(most)))
