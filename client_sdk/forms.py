"""Data sets whose parts have names: items that are dicts, frames, tables, Hugging Face's; brought to inputs and labels.

Frames and tables are known by what they can do, so that neither pandas nor pyarrow need be installed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from client_sdk.errors import DatasetError

Columns = tuple[str | Sequence[str] | Mapping[str, str], str]
"""Names of the inputs and of the label. Several inputs become one row; of a mapping {argument: column} each goes to an
argument of the module."""

LABELS = ("labels", "label", "y", "target", "targets")


def pick(names: Sequence[Any], columns: Columns | None, what: str) -> Columns:
    """Return which names are the inputs and which is the label: those that were said, or those that are plain.

    Args:
        what: that has the names, for the message.

    Raises:
        DatasetError: a name is not there, or it is not plain.
    """
    if columns is not None:
        inputs, label = columns
        wanted = list(inputs.values()) if isinstance(inputs, Mapping) else names_of(inputs)
        missing = next((name for name in [*wanted, label] if name not in names), None)
        if missing is not None:
            raise DatasetError("columns", f"{what} has no {missing!r}; there are {_listed(names)}")
        return columns
    known = next((name for name in LABELS if name in names), None)
    others = [name for name in names if name != known]
    if known is None or not others:
        raise DatasetError(
            "dataset",
            f"{what} has {_listed(names)}, and it is not plain which are input and label; pass columns=, such as "
            "columns=('image', 'label') or columns=(['height', 'weight'], 'label')",
        )
    return others[0] if len(others) == 1 else {name: name for name in others}, known


def names_of(inputs: str | Sequence[str]) -> list[str]:
    """Return the names of inputs that are one, or one row of several."""
    return [inputs] if isinstance(inputs, str) else list(inputs)


def _listed(names: Sequence[Any]) -> str:
    return (", ".join(map(repr, list(names)[:8])) or "nothing") + (", …" if len(names) > 8 else "")


def pair(item: Mapping[Any, Any], columns: Columns | None, row: int) -> tuple[Any, Any]:
    """Return input, or a dict of several, and label of an item that is a dict.

    Raises:
        DatasetError: as `pick`; several inputs are not numbers of one kind.
    """
    inputs, label = pick(list(item), columns, f"sample {row}")
    if isinstance(inputs, str):
        return item[inputs], item[label]
    if isinstance(inputs, Mapping):
        return {argument: item[name] for argument, name in inputs.items()}, item[label]
    try:
        return np.concatenate([np.atleast_1d(np.asarray(item[name])) for name in inputs]), item[label]
    except (TypeError, ValueError) as error:
        raise DatasetError(
            "columns", f"sample {row}: {_listed(inputs)} do not make one row of numbers: {error}"
        ) from error


class Picked:
    """A data set of dicts, or a list of items, as one of pairs."""

    def __init__(self, source: Any, columns: Columns | None):
        self._source, self._columns = source, columns

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, row: int) -> Any:
        item = self._source[row]
        return item if self._columns is None or not isinstance(item, Mapping) else pair(item, self._columns, row)


def is_frame(dataset: Any) -> bool:
    """Whether it is a frame such as pandas's."""
    return all(hasattr(dataset, name) for name in ("columns", "to_numpy", "iloc"))


def is_table(dataset: Any) -> bool:
    """Whether it is a table such as Arrow's."""
    return all(hasattr(dataset, name) for name in ("column_names", "column", "to_pylist", "num_rows"))


def arrays_of(dataset: Any, columns: Columns | None) -> tuple[Any, Any]:
    """Return inputs [N, ...], or a dict of several, and labels [N, ...] of a frame, a table or a dict of arrays.

    Without `columns` all columns but the label are one row of inputs of a frame or a table; of a dict each is an input.

    Raises:
        DatasetError: as `pick`; columns that do not belong together.
    """
    kind = type(dataset).__name__
    names = list(dataset) if isinstance(dataset, Mapping) else list(_names(dataset))
    if columns is None and not isinstance(dataset, Mapping):
        label = next((name for name in LABELS if name in names), None)
        columns = None if label is None or len(names) < 2 else ([name for name in names if name != label], label)
    inputs, label = pick(names, columns, f"the {kind}")
    if isinstance(inputs, str):
        return _column(dataset, inputs), _column(dataset, label)
    if isinstance(inputs, Mapping):
        return {argument: _column(dataset, name) for argument, name in inputs.items()}, _column(dataset, label)
    return _stacked([(name, _column(dataset, name)) for name in inputs]), _column(dataset, label)


def _names(dataset: Any) -> Sequence[Any]:
    found: Sequence[Any] = dataset.column_names if is_table(dataset) else dataset.columns
    return found


def _column(dataset: Any, name: Any) -> Any:
    if isinstance(dataset, Mapping):
        return dataset[name]
    if not is_table(dataset):
        return _nested(dataset[name].to_numpy())
    column = dataset.column(name)
    if column.type.__class__.__name__ == "FixedSizeListType" and not column.null_count:
        flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), column.type.list_size)
    return _nested(column.to_numpy())


def _nested(values: Any) -> Any:
    """Return a column whose cells are rows of one length as one array; others as they are."""
    if values.dtype != object or not len(values) or not hasattr(values[0], "__len__") or isinstance(values[0], str):
        return values
    return np.stack([np.asarray(cell) for cell in values]) if len({len(cell) for cell in values}) == 1 else values


def _stacked(columns: Sequence[tuple[Any, Any]]) -> Any:
    parts = []
    for name, values in columns:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise DatasetError(
                "columns",
                f"{name!r} holds {array.dtype}, no numbers; turn it into numbers as all devices of the federation do, "
                "or leave it out: columns=([…], 'label')",
            )
        parts.append(array.reshape(len(array), -1))
    if len(columns) == 1:
        return np.asarray(columns[0][1])
    return np.concatenate(parts, axis=1)


def class_names(dataset: Any, columns: Columns | None) -> list[str] | None:
    """Return the names of the classes that a Hugging Face data set knows of its label."""
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping):
        return None
    label = columns[1] if columns is not None else next((name for name in LABELS if name in features), None)
    names = getattr(features.get(label), "names", None)
    return [str(name) for name in names] if isinstance(names, (list, tuple)) and names else None
