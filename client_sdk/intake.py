"""What a user passes as data, in any form: what has names becomes pairs here, the rest `client_sdk.data` reads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset

from client_sdk import data, datafiles, forms, sources, streams, workers
from client_sdk.data import Samples
from client_sdk.errors import DatasetError


def take(
    dataset: Any,
    classes: Sequence[str] | None = None,
    *,
    cache: bool = False,
    columns: forms.Columns | None = None,
    num_samples: int | None = None,
    how: sources.Reading = sources.PLAIN,
) -> Samples:
    """Take in what the user passed to `train_and_push`. Needs no network and no task.

    Args:
        dataset: a torch or Hugging Face `Dataset`, an iterable one, a pair of arrays, a dict of them, a frame, a table,
            a path.
        classes: names of the classes in the order of the labels; by default those that the data set knows.
        cache: hold what a `Dataset` gives now, for all epochs and rounds.
        columns: names of inputs and label, where items or columns have names; see `client_sdk.forms.Columns`.
        num_samples: how many samples an iterable gives in an epoch.
        how: how samples are read beyond that.

    Raises:
        DatasetError: it is empty, has another form, a sample cannot be read, or inputs and labels do not belong
            together.
    """
    _check_columns(columns)
    if _is_stream(dataset):
        samples = _stream(dataset, columns, num_samples, cache, how)
    else:
        if num_samples is not None:
            raise DatasetError("num_samples", "the data set has a length, which counts; leave it out")
        samples = replace(data.load(_paired(dataset, columns, how), cache=cache, how=how), how=how)
    if classes is not None:
        samples.classes = [str(name) for name in classes]
    elif samples.classes is None:
        samples.classes = forms.class_names(dataset, columns)
    return samples


def _check_columns(columns: Any) -> None:
    if columns is not None and (not isinstance(columns, (tuple, list)) or len(columns) != 2):
        raise DatasetError(
            "columns",
            f"are {columns!r}; pass a pair: the inputs' name, names, or {{argument: name}}, and the label's name",
        )


def _paired(dataset: Any, columns: forms.Columns | None, how: sources.Reading) -> Any:
    if isinstance(dataset, (str, Path)):
        return datafiles.read_file(Path(dataset), columns)
    if isinstance(dataset, Mapping) and hasattr(dataset, "column_names"):
        kind, parts = type(dataset).__name__, ", ".join(map(repr, list(dataset)[:6]))
        raise DatasetError("dataset", f"a {kind} of {parts} is several data sets; pass one, such as d['train']")
    if forms.is_frame(dataset) or forms.is_table(dataset) or isinstance(dataset, Mapping):
        return forms.arrays_of(dataset, columns)
    items = isinstance(dataset, list) and len(dataset) > 0
    if items and (how.collate is not None or isinstance(dataset[0], Mapping)):
        return forms.Picked(dataset, columns)
    if columns is None:
        return dataset
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or isinstance(dataset, tuple):
        raise DatasetError("columns", f"a {type(dataset).__name__} has no names; leave columns out")
    return forms.Picked(dataset, columns)


def _is_stream(dataset: Any) -> bool:
    if isinstance(dataset, IterableDataset):
        return True
    return hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__") and not isinstance(dataset, type)


def _stream(
    dataset: Any, columns: forms.Columns | None, num_samples: int | None, cache: bool, how: sources.Reading
) -> Samples:
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise DatasetError("dataset", "a DataLoader has cut batches already; pass its data set, loader.dataset")
    if iter(dataset) is dataset:
        raise DatasetError(
            "dataset",
            f"a {type(dataset).__name__} can be gone through once, and each epoch begins anew; pass an "
            "IterableDataset, or what its samples are made from",
        )
    try:
        size = len(dataset) if num_samples is None else num_samples
    except TypeError as error:
        raise DatasetError(
            "num_samples", f"a {type(dataset).__name__} has no length; pass num_samples=, how many an epoch has"
        ) from error
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise DatasetError("num_samples", f"is {size!r}; a whole number of at least 1 is needed")
    if how.workers > 1:
        workers.check_shards(dataset, how.workers, size)
    return streams.stream(dataset, columns, size, cache, how)
