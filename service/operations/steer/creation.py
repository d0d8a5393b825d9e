"""A federation is created: its parts are resolved, and refused where they do not fit together."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract import vocabulary
from contract.federation import FederationConfig
from contract.ids import new_id
from contract.recipes.parts import GeneratorImported
from contract.recipes.recipe import Recipe
from contract.wire.federations import DatasetRefs, FederationCreate
from service.domain import federation as rules
from service.domain.errors import DomainError, invalid_field
from service.domain.mixture import check_mixture, check_retention
from service.domain.parting import check_imported
from service.domain.states import LIVE
from service.infra import tokens
from service.operations.access import joining
from service.operations.ledger import audit
from service.operations.ledger.clock import now
from service.operations.ledger.limits import check_room
from service.operations.steer import own_networks
from service.operations.store import datasets, models
from service.operations.store.networks import HeaderOf
from service.persistence.tables import (
    DatasetRow,
    FederationRow,
)

MAX_FEDERATIONS = 1000
"""Federations that are not over."""


def create(session: Session, key: bytes, request: FederationCreate, header_of: HeaderOf | None = None) -> FederationRow:
    """Add a federation after checking that its parts fit together.

    Args:
        session: open to write.
        key: what tokens are made with.
        request: what is asked for.
        header_of: a blob's digest -> its header, to hold first models and patterns of tensor names against networks
            that come from outside; None leaves first models to the first job.

    Raises:
        DomainError: as `drafted`.
    """
    config = drafted(session, request, header_of)
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
    joining.limit(row, request.join)
    session.add(row)
    session.flush()
    audit.record(session, "federation.create", id_, federation=id_, name=row.name, recipe=config.recipe.name)
    return row


def drafted(session: Session, request: FederationCreate, header_of: HeaderOf | None = None) -> FederationConfig:
    """Return what a federation would be; nothing is added. Arguments as `create`'s.

    Raises:
        DomainError: invalid-field, naming the part and the reason; name-taken; limit-reached.
    """
    check_room(
        session,
        select(FederationRow.id).where(FederationRow.state.in_(LIVE)),
        MAX_FEDERATIONS,
        "federations that are not over",
        "finish or cancel one",
    )
    if session.scalars(select(FederationRow.id).where(FederationRow.name == request.name)).first():
        raise DomainError("name-taken", f"a federation {request.name!r} exists; choose another name", field="name")
    refs = _resolve_datasets(session, request)
    request = own_networks.resolve(session, request, header_of)
    with own_networks.called_by_name(session):
        return _resolved(session, request, refs, header_of)


def _resolved(
    session: Session, request: FederationCreate, refs: DatasetRefs, header_of: HeaderOf | None
) -> FederationConfig:
    """Return a federation's configuration, whose parts fit together; arguments and errors as `create`'s."""
    sets = {role for role, id_ in refs if id_ is not None}
    config = own_networks.noted(rules.resolve(request, refs, sets))
    check_mixture(config, sets)
    if config.recipe.needs_labels and refs.unlabeled is not None:
        _check_dataset("datasets.unlabeled", datasets.get(session, refs.unlabeled), request, labeled=True)
    known = vocabulary.smallest(
        (f"prototype {each.name!r}", each.architecture, each.options) for each in config.published
    )
    for role, id_ in refs:
        why = None if id_ is None else datasets.unknown_ids(datasets.get(session, id_), known)
        if why is not None:
            raise invalid_field(f"datasets.{role}", why)
    check_retention(config.rounds, request.retention)
    for model_id in _imported(request, config.recipe):
        models.still_there(models.get(session, model_id))
    if header_of is not None:
        check_imported(config, lambda model_id: header_of(models.get(session, model_id).digest))
    return config


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
    why = datasets.why_not(row, request.task, labeled)
    if why is not None:
        raise invalid_field(field, why)
