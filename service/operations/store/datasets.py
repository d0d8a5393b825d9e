"""Server data: safetensors files with `inputs` and optional `labels`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.labels import BFLOAT16, MOST_CLASSES, class_numbers, not_whole
from contract.targets import reshaping
from contract.tasks import TASKS
from contract.tensors import DTYPES, FLOATS, Header, TensorError, TensorFile, TensorInfo
from contract.vocabulary import Known
from contract.wire import rounds as wire
from contract.wire.federations import Task
from service.domain.errors import DomainError, not_found
from service.domain.states import LIVE
from service.operations.ledger import after_commit, audit, locks
from service.operations.ledger.clock import now
from service.operations.ledger.limits import check_room
from service.operations.ledger.paging import page
from service.persistence.tables import DatasetRow, FederationRow

MAX_DATASETS = 1000
_DTYPES = {"F32": "float32", "I64": "int64", "F16": "float16", "U8": "uint8"}
_LABELS = {name: str(dtype) for name, dtype in DTYPES.items() if name != "BF16"}
_BLOCK = 1 << 20
"""Labels that are in memory at once, where a sample has several."""
IGNORED_TOKEN = TASKS["tokens"].ignored


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
        wanted = "F32 (images, features), I64 (token ids), or U8 and F16 (images, which the task scales)"
        raise TensorError("tensors", f"inputs is {inputs.dtype}; send {wanted}", tensor="inputs", actual=inputs.dtype)
    if len(inputs.shape) < 2 or inputs.shape[0] < 1:
        raise TensorError("tensors", f"inputs has shape {list(inputs.shape)}; send [N, ...], N > 0", tensor="inputs")
    if labels is not None:
        _check_labels(labels, inputs.shape[0])


def _check_labels(labels: TensorInfo, samples: int) -> None:
    found = f"labels is {labels.dtype} {list(labels.shape)}"
    several = len(labels.shape) > 1
    if labels.dtype == "BF16":
        raise TensorError("tensors", f"labels {BFLOAT16}", tensor="labels", actual=labels.dtype)
    if labels.shape[:1] != (samples,) or labels.dtype not in _LABELS:
        wanted = f"[{samples}], one label a sample, or [{samples}, ...], several, such as I64, U8 or F32"
        raise TensorError("tensors", f"{found}; send {wanted}", tensor="labels")
    if several and not labels.numel:
        raise TensorError("tensors", f"{found}; a sample has no label", tensor="labels")


def num_classes(file: TensorFile) -> int | None:
    """Return the largest label + 1, or None without labels and where some are values with fractions.

    Raises:
        TensorError: code 'values', for a label that is no class number, or a value that is not finite.
    """
    info = file.header.tensors.get("labels")
    if info is None:
        return None
    try:
        if len(info.shape) > 1:
            return _largest(file, info)
        labels = class_numbers(file.read("labels"), file.info("inputs").shape[0])
    except ValueError as error:
        raise TensorError("values", str(error), tensor="labels") from None
    return int(labels.max()) + 1


def _largest(file: TensorFile, info: TensorInfo) -> int | None:
    """Return the largest of several labels a sample + 1; of images', [N, H, W] or [N, D, H, W], without 255.

    Floats that are no labels, such as 0.5 or -3.0, make all of them values, which have none: the answer is None.

    Raises:
        ValueError: naming the sample.
    """
    largest, a_sample = -1, info.numel // info.shape[0]
    floats, values = info.dtype in FLOATS, False
    for start in range(0, info.numel, _BLOCK):
        block = file.read_block("labels", start, min(_BLOCK, info.numel - start))
        if floats:
            _refuse(~np.isfinite(block), "a value that is NaN or infinite", a_sample, start)
            values = values or any(broken.any() for broken, _ in not_whole(block))
        known = block[block != 255] if len(info.shape) > 2 else block
        wrong = (block < 0) & (block != IGNORED_TOKEN) | (block >= MOST_CLASSES)
        if floats:
            values = values or bool(wrong.any())
        else:
            _refuse(wrong, "a label that is no class, nor -100, which is ignored", a_sample, start)
        if values:
            continue
        largest = max(largest, int(known.max()) if len(known) else -1)
    return None if values else largest + 1


def _refuse(wrong: NDArray[np.bool_], what: str, a_sample: int, start: int) -> None:
    if wrong.any():
        sample = (start + int(np.argmax(wrong))) // a_sample
        raise ValueError(f"sample {sample} has {what}; repair it or leave the sample out")


def token_ids(file: TensorFile) -> tuple[int, int] | None:
    """Return the smallest and the largest token id of the inputs; None of other inputs."""
    info = file.info("inputs")
    if info.dtype != "I64":
        return None
    blocks = (file.read_block("inputs", at, min(_BLOCK, info.numel - at)) for at in range(0, info.numel, _BLOCK))
    ends = [(int(block.min()), int(block.max())) for block in blocks]
    return min(low for low, _ in ends), max(high for _, high in ends)


def register(
    session: Session,
    name: str,
    digest: str,
    size: int,
    header: Header,
    classes: int | None,
    ids: tuple[int, int] | None = None,
) -> DatasetRow:
    """Add a data set, or return the one of that name if it has the same bytes.

    Args:
        classes, ids: what `num_classes` and `token_ids` say of it.

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
    inputs, labels = header.tensors["inputs"], header.tensors.get("labels")
    row = DatasetRow(
        id=new_id("dataset"),
        name=name,
        digest=digest,
        size=size,
        num_samples=inputs.shape[0],
        shape=list(inputs.shape[1:]),
        dtype=_DTYPES[inputs.dtype],
        labeled=labels is not None,
        num_classes=classes,
        label_shape=None if labels is None else list(labels.shape[1:]),
        label_dtype=None if labels is None else _LABELS[labels.dtype],
        token_ids=None if ids is None else list(ids),
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


def why_not(row: DatasetRow, task: Task, labeled: bool) -> str | None:
    """Return why a data set is none of a task; None where it is one, as far as was seen when it came.

    Args:
        row: the data set.
        task: the federation's.
        labeled: its labels are read.
    """
    spec = task.input
    if row.shape != spec.shape or row.dtype != spec.dtype:
        return f"{row.name!r} has samples {row.dtype} {row.shape}, the task wants {spec.dtype} {spec.shape}"
    if not labeled:
        return None
    if not row.labeled:
        return f"{row.name!r} has no labels; upload it with a tensor 'labels'"
    if row.label_dtype == "bool" and task.kind == "regression":
        return f"{row.name!r} has labels that are truth values; a task of kind 'regression' wants numbers"
    if row.num_classes is None and task.kind != "regression":
        return (
            f"{row.name!r} has labels that are {row.label_dtype} values; a task of kind {task.kind!r} wants whole "
            f"numbers ({TASKS[task.kind].labels})"
        )
    shape, wanted = row.label_shape or [], list(task.label_shape)
    if shape != wanted and (shape or wanted != [1]):
        what = f"a task of kind {task.kind!r} wants {wanted} ({TASKS[task.kind].labels})"
        return f"{row.name!r} has labels of shape {shape} a sample, {what}{reshaping(shape, task)}"
    classes = {"multilabel": 2, "regression": None}.get(task.kind, task.num_classes)
    if classes is not None and (row.num_classes or 0) > classes:
        known = "a label is there, 1, or not, 0" if task.kind == "multilabel" else f"the task's are 0 to {classes - 1}"
        return f"{row.name!r} has label {(row.num_classes or 0) - 1}; {known}"
    return None


def unknown_ids(row: DatasetRow, known: Known | None) -> str | None:
    """Return why a network cannot read a data set's token ids; None where it can, as far as was seen when it came.

    Args:
        known: what the network knows; None: nobody says.
    """
    least, largest = row.token_ids or (0, 0)
    if known is None or (least >= 0 and largest < known.size):
        return None
    return f"{row.name!r} has the token id {least if least < 0 else largest}; {known.wanted}"


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
