"""Data sets: what is taken, what is refused and in which words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from client_sdk import data
from client_sdk.errors import DatasetError
from contract.wire.federations import Task

CPU = torch.device("cpu")
IMAGES = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 2, 2], "dtype": "float32"}})
TEXT = Task.model_validate({"num_classes": 3, "input": {"shape": [4], "dtype": "int64"}})
X = np.arange(28, dtype="float32").reshape(7, 1, 2, 2)
Y = np.array([0, 1, 2, 0, 1, 2, 0])


class Listed(Dataset[Any]):
    """A map-style data set over any pairs; notes what is read."""

    def __init__(self, pairs: list[Any]):
        self.pairs, self.reads = pairs, list[int]()

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        self.reads.append(index)
        return self.pairs[index]


class Augmented(Listed):
    """Adds noise at each read."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return torch.from_numpy(x) + torch.rand(1), y


def save_npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "d.npz", **arrays)
    return folder / "d.npz"


def save_safetensors(folder: Path, **arrays: Any) -> Path:
    save_file(arrays, folder / "d.safetensors")
    return folder / "d.safetensors"


FORMS = {
    "arrays": lambda folder: (X, Y),
    "tensors": lambda folder: [torch.from_numpy(X), torch.from_numpy(Y)],
    "lists": lambda folder: (X.tolist(), Y.tolist()),
    "doubles": lambda folder: (X.astype("float64"), Y.astype("uint8")),
    "big-endian": lambda folder: (X.astype(">f4"), Y.astype(">i8")),
    "reversed": lambda folder: (X[::-1][::-1], Y[::-1][::-1]),
    "tensor data set": lambda folder: TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "plain ints": lambda folder: Listed([(x, int(y)) for x, y in zip(X, Y, strict=True)]),
    "npz": lambda folder: save_npz(folder, x=X, y=Y),
    "safetensors": lambda folder: str(save_safetensors(folder, inputs=X, labels=Y)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_samples(form: str, tmp_path: Path) -> None:
    samples = data.load(FORMS[form](tmp_path))
    samples.check(IMAGES)
    assert samples.inputs is not None and samples.labels is not None
    assert (samples.inputs.dtype, samples.labels.dtype) == (torch.float32, torch.int64)
    assert samples.inputs.numpy().tolist() == X.tolist() and samples.labels.tolist() == Y.tolist()


def test_token_ids_of_any_width_become_int64() -> None:
    samples = data.load((np.ones((2, 4), "uint16"), [0, 1]))
    samples.check(TEXT)
    assert samples.inputs is not None and samples.inputs.dtype == torch.int64


REFUSED: dict[str, tuple[Any, Task, str, str]] = {
    "bytes are not rescaled": (
        (X.astype("uint8"), Y),
        IMAGES,
        "inputs",
        r"uint8, wanted is float32.*astype\('float32'\) / 255",
    ),
    "no channel": ((X[:, 0], Y), IMAGES, "inputs", r"shape \[2, 2\], wanted is \[1, 2, 2\]; reshape.*\(-1, 1, 2, 2\)"),
    "channels last": ((X.transpose(0, 2, 3, 1), Y), IMAGES, "inputs", r"permute\(0, 3, 1, 2\)"),
    "another size": ((np.zeros((7, 1, 3, 3), "float32"), Y), IMAGES, "inputs", "resize or crop"),
    "NaN": ((np.where(X == 9, np.nan, X), Y), IMAGES, "inputs", "sample 2 has a value that is NaN"),
    "floats for tokens": ((np.ones((7, 4)), Y), TEXT, "inputs", "float64, wanted are whole numbers"),
    "float labels": ((X, Y.astype("float32")), IMAGES, "labels", r"float32.*astype\('int64'\)"),
    "label too large": ((X, Y + 1), IMAGES, "labels", "sample 2 has label 3; the federation's 3 classes are 0 to 2"),
    "label below 0": ((X, Y - 1), IMAGES, "labels", "sample 0 has label -1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_the_task_is_named_with_its_remedy(case: str) -> None:
    dataset, task, field, words = REFUSED[case]
    samples = data.load(dataset)
    with pytest.raises(DatasetError, match=words) as caught:
        samples.check(task)
    assert caught.value.field == field and samples.task is None


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


MALFORMED: dict[str, tuple[Any, str]] = {
    "one-hot": ((X, np.eye(3)[Y]), r"labels: have shape \[7, 3\].*argmax\(1\)"),
    "column": ((X, Y[:, None]), r"labels: have shape \[7, 1\]; one whole number"),
    "unequal": ((X, Y[:6]), "there are 6 labels for 7 inputs"),
    "three arrays": ((X, Y, Y), "a tuple of 3 is no pair"),
    "text": ((X, ["a"] * 7), "labels: cannot be turned into one array"),
    "ragged": (([[1.0], [1.0, 2.0]], [0, 1]), "inputs: cannot be turned into one array"),
    "stream": (Stream(), "IterableDataset has no length"),
    "number": (3, "cannot read a int"),
    "no pairs": (Listed([X[0], X[1]]), "not a pair"),
    "sizes differ": (Listed([(X[0], 0), (X[1, :, :1], 0)]), "differ in shape or type"),
    "two labels": (Listed([(X[0], [0, 1])]), "a label has several values"),
    "empty": (Listed([]), "is empty"),
    "nothing": (([], []), "is empty"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_data_set_is_refused(case: str) -> None:
    dataset, words = MALFORMED[case]
    with pytest.raises(DatasetError, match=words):
        data.load(dataset)


def test_files_are_refused_by_what_is_wrong_with_them(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="end in .npz"):
        data.load(tmp_path / "d.pt")
    with pytest.raises(DatasetError, match="cannot be read"):
        data.load(tmp_path / "missing.npz")
    with pytest.raises(DatasetError, match="has x; it needs 'inputs' and 'labels'"):
        data.load(save_npz(tmp_path, x=X))
    with pytest.raises(DatasetError, match="has inputs; it needs 'inputs' and 'labels'"):
        data.load(save_safetensors(tmp_path, inputs=X))
    (tmp_path / "d.safetensors").write_bytes(b"<html>")
    with pytest.raises(DatasetError, match="cannot be read"):
        data.load(tmp_path / "d.safetensors")


def test_a_pickle_in_an_npz_is_never_loaded(tmp_path: Path) -> None:
    path = save_npz(tmp_path, x=np.array([{"a": 1}], dtype=object), y=Y[:1])
    with pytest.raises(DatasetError, match="allow_pickle=False"):
        data.load(path)


# Batches


@pytest.mark.parametrize(
    ("count", "size", "lengths"),
    [(7, 3, [3, 4]), (7, 4, [4, 3]), (6, 3, [3, 3]), (1, 3, [1]), (3, 100, [3]), (3, 1, [1, 1, 1]), (4, 3, [4])],
)
def test_batches_hold_every_sample_once_and_a_rest_of_one_joins(count: int, size: int, lengths: list[int]) -> None:
    rows = data.cut(torch.arange(count), size)
    assert [len(row) for row in rows] == lengths
    assert torch.cat(rows).tolist() == list(range(count))


def epoch(samples: data.Samples, seed: int) -> list[list[float]]:
    order = torch.Generator().manual_seed(seed)
    return [x.flatten().tolist() + y.tolist() for x, y in samples.batches(3, order, CPU)]


def test_the_order_is_the_seeds_and_the_same_from_memory_and_from_a_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    held = data.load((X, Y))
    held.check(IMAGES)
    monkeypatch.setattr(data, "MATERIALISE_BYTES", 10)
    source = Listed([(x, y) for x, y in zip(X, Y, strict=True)])
    read = data.load(source)
    assert read.inputs is None and set(source.reads) == {0}
    read.check(IMAGES)
    assert epoch(held, 1) == epoch(held, 1) == epoch(read, 1)
    assert epoch(held, 1) != epoch(held, 2)


def test_random_augmentation_is_not_frozen() -> None:
    samples = data.load(Augmented([(x, y) for x, y in zip(X, Y, strict=True)]))
    samples.check(IMAGES)
    assert samples.inputs is None
    assert epoch(samples, 1) != epoch(samples, 1)


def test_a_wrong_label_deep_in_a_large_set_is_found_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MATERIALISE_BYTES", 10)
    samples = data.load(Listed([(X[0], 0)] * 9 + [(X[1], 5)]))
    samples.check(IMAGES)
    with pytest.raises(DatasetError, match="has label 5"):
        epoch(samples, 0)
