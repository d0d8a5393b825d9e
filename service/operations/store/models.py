"""Stored models: where they came from, who may read them."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.partition import SENT_BASE
from contract.tensors import FLOATS, Header, TensorError
from contract.wire import federations as wire_federations
from contract.wire import rounds as wire
from service.domain.errors import DomainError, not_found
from service.domain.principal import Principal
from service.operations.ledger import audit, locks
from service.operations.ledger.clock import now
from service.operations.ledger.limits import check_room
from service.operations.ledger.paging import page
from service.persistence.tables import CurrentModelRow, FederationRow, ModelRow

MAX_MODELS = 1000
"""Imported ones."""


def get(session: Session, model_id: str) -> ModelRow:
    """Return a model, or refuse with not-found."""
    row = session.get(ModelRow, model_id)
    if row is None:
        raise not_found("model", model_id)
    return row


def readable(session: Session, model_id: str, principal: Principal) -> ModelRow:
    """Return a model that the caller may read: a device those of its own federation only."""
    row = get(session, model_id)
    if principal.role == "device":
        principal.need_federation(row.federation_id or "")  # an imported model reaches devices as a federation's own
    return row


def with_weights(session: Session, model_id: str, principal: Principal) -> ModelRow:
    """Return a model whose weights are there, and which the caller may read.

    Raises:
        DomainError: not-found, forbidden; removed.
    """
    row = readable(session, model_id, principal)
    still_there(row)
    return row


def still_there(row: ModelRow) -> None:
    """Refuse a model whose weights retention has removed.

    Raises:
        DomainError: removed.
    """
    if row.removed_at is not None:
        raise DomainError("removed", f"the weights of {row.id} were removed by the federation's retention")


def url(model_id: str, parted: bool = False) -> str:
    """Return where a model's own file is served; of a parted network that is not all of it."""
    return f"/v1/models/{model_id}/weights" + ("?part=trained" if parted else "")


def reference(row: ModelRow, parted: bool = False) -> wire_federations.ModelRef:
    """Return where a model is; `parted`: it is the tensors that rounds move of a network."""
    return wire_federations.ModelRef(id=row.id, digest=row.digest, size=row.size, url=url(row.id, parted))


def base_of(session: Session, row: ModelRow) -> str | None:
    """Return the digest of the other tensors of a network, where a model is those that rounds move; else None."""
    return _bases(session, [row]).get((row.federation_id, row.prototype))


def _bases(session: Session, rows: Sequence[ModelRow]) -> dict[tuple[str | None, str | None], str]:
    """Return (federation, prototype) -> digest of the base, of parted networks."""
    federations = {row.federation_id for row in rows if row.federation_id is not None and row.prototype is not None}
    stem = SENT_BASE.named("")
    query = select(ModelRow.federation_id, ModelRow.name, ModelRow.digest).where(
        ModelRow.federation_id.in_(federations), ModelRow.role == "state"
    )
    found = session.execute(query.where(ModelRow.name.startswith(stem, autoescape=True))) if federations else ()
    return {(row.federation_id, str(row.name).removeprefix(stem)): row.digest for row in found}


def _describe(row: ModelRow, current: set[str], base: str | None) -> wire.Model:
    return wire.Model(
        id=row.id,
        federation_id=row.federation_id,
        round_id=row.round_id,
        round=row.round_index,
        prototype=row.prototype,
        role=row.role,
        digest=row.digest,
        size=row.size,
        base=base,
        architecture=row.architecture,
        options=row.options,
        parents=row.parents,
        recipe=row.recipe,
        metrics=row.metrics,
        current=row.id in current,
        created_at=row.created_at,
        removed_at=row.removed_at,
        url=url(row.id, base is not None),
    )


def _described(session: Session, rows: Sequence[ModelRow]) -> list[wire.Model]:
    current, bases = _current(session, [row.id for row in rows]), _bases(session, rows)
    return [_describe(row, current, bases.get((row.federation_id, row.prototype))) for row in rows]


def describe(session: Session, row: ModelRow) -> wire.Model:
    """Return what is shown of a model."""
    return _described(session, [row])[0]


def _current(session: Session, ids: list[str]) -> set[str]:
    return set(session.scalars(select(CurrentModelRow.model_id).where(CurrentModelRow.model_id.in_(ids))))


def listing(
    session: Session,
    limit: int,
    after: str | None,
    federation: str | None,
    prototype: str | None,
    newest_first: bool = False,
) -> tuple[list[wire.Model], str | None]:
    """Return a page of models."""
    query = select(ModelRow)
    if federation is not None:
        if session.get(FederationRow, federation) is None:
            raise not_found("federation", federation)
        query = query.where(ModelRow.federation_id == federation)
    if prototype is not None:
        query = query.where(ModelRow.prototype == prototype)
    rows, following = page(session, query, ModelRow.id, limit, after, newest_first)
    return _described(session, rows), following


def check_header(header: Header) -> None:
    """Refuse a file without a tensor that could be trained.

    Raises:
        TensorError: code 'tensors'.
    """
    if not any(info.dtype in FLOATS and info.numel for info in header.tensors.values()):
        wanted = sorted(FLOATS)
        raise TensorError(
            "tensors",
            f"there is nothing to train: the file's {len(header.tensors)} tensors hold no values in "
            f"{', '.join(wanted)}; send the network's state dict",
            expected=wanted,
            actual=sorted({info.dtype for info in header.tensors.values()}),
        )


def import_file(session: Session, digest: str, size: int, architecture: str | None) -> ModelRow:
    """Add an uploaded file as a model to start federations from.

    Raises:
        DomainError: limit-reached, when there are `MAX_MODELS`.
    """
    locks.hold_blobs(session)
    imported = select(ModelRow.id).where(ModelRow.role == "imported")
    check_room(session, imported, MAX_MODELS, "imported models", "use one that is there")
    row = ModelRow(
        id=new_id("model"),
        role="imported",
        digest=digest,
        size=size,
        architecture=architecture,
        options={},
        parents=[],
        metrics={},
        created_at=now(),
    )
    session.add(row)
    session.flush()
    audit.record(session, "model.import", row.id, digest=digest, architecture=architecture)
    return row
