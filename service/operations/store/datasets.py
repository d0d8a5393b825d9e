"""Server data: safetensors files with `inputs` and optional `labels`."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.labels import class_numbers
from contract.tensors import Header, TensorError, TensorFile
from contract.wire import rounds as wire
from service.domain.errors import DomainError, not_found
from service.domain.states import LIVE
from service.operations.ledger import after_commit, audit, locks
from service.operations.ledger.clock import now
from service.operations.ledger.limits import check_room
from service.operations.ledger.paging import page
from service.persistence.tables import DatasetRow, FederationRow

MAX_DATASETS = 1000
_DTYPES = {"F32": "float32", "I64": "int64"}


def check_header(header: Header) -> None:
    """Refuse a file that is no data set.

    Raises:
        TensorError: code 'tensors', naming the tensor.
    """
    unknown = set(header.tensors) - {"inputs", "labels"}
    if unknown or "inputs" not in header.tensors:
        wrong = sorted(unknown)[0] if unknown else "inputs"
        raise TensorError(
            "tensors", "a data set has a tensor 'inputs' and may have 'labels', nothing else", tensor=wrong
        )
    inputs, labels = header.tensors["inputs"], header.tensors.get("labels")
    if inputs.dtype not in _DTYPES:
        wanted = "F32 (images, features) or I64 (token ids)"
        raise TensorError("tensors", f"inputs is {inputs.dtype}; send {wanted}", tensor="inputs", actual=inputs.dtype)
    if len(inputs.shape) < 2 or inputs.shape[0] < 1:
        raise TensorError("tensors", f"inputs has shape {list(inputs.shape)}; send [N, ...], N > 0", tensor="inputs")
    if labels is not None and (labels.dtype != "I64" or labels.shape != inputs.shape[:1]):
        raise TensorError(
            "tensors",
            f"labels is {labels.dtype} {list(labels.shape)}; send I64 [{inputs.shape[0]}], one label a sample",
            tensor="labels",
        )


def num_classes(file: TensorFile) -> int | None:
    """Return the largest label + 1, or None without labels.

    Raises:
        TensorError: code 'values', for a label that is no class number.
    """
    if "labels" not in file.header.tensors:
        return None
    try:
        labels = class_numbers(file.read("labels"), file.info("inputs").shape[0])
    except ValueError as error:
        raise TensorError("values", str(error), tensor="labels") from None
    return int(labels.max()) + 1


def register(session: Session, name: str, digest: str, size: int, header: Header, classes: int | None) -> DatasetRow:
    """Add a data set, or return the one of that name if it has the same bytes.

    Raises:
        DomainError: name-taken, by other bytes; limit-reached, when there are `MAX_DATASETS`.
    """
    locks.hold_blobs(session)
    existing = session.scalars(select(DatasetRow).where(DatasetRow.name == name)).first()
    if existing is not None:
        if existing.digest == digest:
            return existing
        raise DomainError("name-taken", f"a data set {name!r} with other content exists", field="name")
    check_room(session, select(DatasetRow.id), MAX_DATASETS, "data sets", "delete one")
    inputs = header.tensors["inputs"]
    row = DatasetRow(
        id=new_id("dataset"),
        name=name,
        digest=digest,
        size=size,
        num_samples=inputs.shape[0],
        shape=list(inputs.shape[1:]),
        dtype=_DTYPES[inputs.dtype],
        labeled="labels" in header.tensors,
        num_classes=classes,
        created_at=now(),
    )
    session.add(row)
    session.flush()
    audit.record(session, "dataset.create", row.id, name=name, digest=digest)
    return row


def find(session: Session, name_or_id: str) -> DatasetRow | None:
    """Return a data set by its id or its name."""
    if "\0" in name_or_id:  # PostgreSQL refuses to look for one
        return None
    return (
        session.get(DatasetRow, name_or_id)
        or session.scalars(select(DatasetRow).where(DatasetRow.name == name_or_id)).first()
    )


def of_digest(session: Session, digest: str) -> DatasetRow | None:
    """Return the first data set of these bytes."""
    if "\0" in digest:
        return None
    return session.scalars(select(DatasetRow).where(DatasetRow.digest == digest).order_by(DatasetRow.id)).first()


def get(session: Session, dataset_id: str) -> DatasetRow:
    """Return a data set, or refuse with not-found."""
    row = find(session, dataset_id)
    if row is None:
        raise not_found("data set", dataset_id)
    return row


def _uses(config: dict[str, Any], dataset_id: str) -> bool:
    return dataset_id in config["datasets"].values()


def delete(session: Session, dataset_id: str) -> None:
    """Remove a data set that no live federation uses."""
    row = get(session, dataset_id)
    live = session.scalars(select(FederationRow).where(FederationRow.state.in_(LIVE)))
    users = [federation.name for federation in live if _uses(federation.config, row.id)]
    if users:
        raise DomainError("in-use", f"the data set is used by {', '.join(users[:5])}; cancel or finish them first")
    audit.record(session, "dataset.delete", row.id, name=row.name)
    session.delete(row)
    after_commit.release_blobs(session, {row.digest})


def listing(session: Session, limit: int, after: str | None) -> tuple[list[wire.Dataset], str | None]:
    """Return a page of data sets."""
    rows, following = page(session, select(DatasetRow), DatasetRow.id, limit, after)
    return [describe(row) for row in rows], following


def describe(row: DatasetRow) -> wire.Dataset:
    """Return what is shown of a data set."""
    return wire.Dataset.model_validate(row, from_attributes=True)
