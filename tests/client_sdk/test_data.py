"""Data sets: what is taken, what is refused and in which words."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from client_sdk import data, named, sources
from client_sdk.errors import DatasetError
from contract.wire.federations import Task

CPU = torch.device("cpu")
IMAGES = Task.model_validate({"num_classes": 3, "input": {"shape": [1, 2, 2], "dtype": "float32"}})
MASKS = Task.model_validate({"kind": "dense", "num_classes": 2, "input": {"shape": [1, 2, 2], "dtype": "float32"}})
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


class Column:
    """What a frame gives for one of its columns: its array cannot be written to."""

    def __init__(self, values: Any):
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return locked(self.values)


def locked(values: Any) -> Any:
    values = np.array(values)
    values.flags.writeable = False
    return values


def tensors(rows: slice) -> TensorDataset:
    return TensorDataset(torch.from_numpy(X[rows]), torch.from_numpy(Y[rows]))


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
    "subset": lambda folder: Subset(
        TensorDataset(torch.from_numpy(X[::-1].copy()), torch.from_numpy(Y[::-1].copy())), range(6, -1, -1)
    ),
    "two sets": lambda folder: ConcatDataset([tensors(slice(0, 4)), tensors(slice(4, None))]),
    "list of tensors": lambda folder: ([torch.from_numpy(x) for x in X], [torch.tensor(y) for y in Y]),
    "frame's column": lambda folder: (X, Column(Y)),
    "read-only": lambda folder: (locked(X), locked(Y)),
    "npz": lambda folder: save_npz(folder, x=X, y=Y),
    "safetensors": lambda folder: str(save_safetensors(folder, inputs=X, labels=Y)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("error")
def test_every_form_gives_the_same_samples(form: str, tmp_path: Path) -> None:
    samples = data.load(FORMS[form](tmp_path))
    samples.check(IMAGES)
    assert isinstance(samples.inputs, torch.Tensor) and samples.labels is not None
    assert (samples.inputs.dtype, samples.labels.dtype) == (torch.float32, torch.int64)
    assert samples.inputs.numpy().tolist() == X.tolist() and samples.labels.tolist() == Y.tolist()


def test_token_ids_of_any_width_become_int64() -> None:
    samples = data.load((np.ones((2, 4), "uint16"), [0, 1]))
    samples.check(TEXT)
    assert isinstance(samples.inputs, torch.Tensor) and samples.inputs.dtype == torch.int64


@pytest.mark.parametrize("kind", ["float16", "float64", "uint8", "int16", "bool"])
@pytest.mark.parametrize("task", [IMAGES, MASKS], ids=["classes", "masks"])
def test_whole_labels_of_any_dtype_are_taken(kind: str, task: Task) -> None:
    ones = torch.ones((7, *task.label_shape), dtype=getattr(torch, kind))
    samples = data.load((X, ones))
    samples.check(task)
    assert samples.labels is not None and samples.labels.eq(1).all() and not samples.labels.is_floating_point()


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
    "one-hot": ((X, np.eye(3, dtype=int)[Y]), IMAGES, "labels", r"have shape \[7, 3\].*argmax\(1\)"),
    "column": ((X, Y[:, None]), IMAGES, "labels", r"have shape \[7, 1\]; one whole number.*take y\[:, 0\]"),
    "a fraction": ((X, Y + 0.5), IMAGES, "labels", "sample 0 has label 0.5; labels with fractions"),
    "no label": ((X, np.where(Y == 2, np.nan, Y)), IMAGES, "labels", "sample 2 has label nan; every sample needs a"),
    "a mask of nothing": ((X, np.full((7, 2, 2), 255)), MASKS, "labels", "are all 255, which counts nowhere; label"),
    "label too large": ((X, Y + 1), IMAGES, "labels", "sample 2 has label 3; the federation's 3 classes are 0 to 2"),
    "bfloat16": ((X, torch.ones(7, dtype=torch.bfloat16)), IMAGES, "labels", "are bfloat16, .*send them as int64"),
    "label below 0": ((X, Y - 1), IMAGES, "labels", "sample 0 has label -1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_the_task_is_named_with_its_remedy(case: str) -> None:
    dataset, task, field, words = REFUSED[case]
    samples = data.load(dataset)
    with pytest.raises(DatasetError, match=words) as caught:
        samples.check(task)
    assert caught.value.field == field and samples.task is None


@pytest.mark.parametrize("form", ["arrays", "a data set"])
def test_masks_of_0_and_255_are_taken_with_a_word_about_it(form: str, caplog: pytest.LogCaptureFixture) -> None:
    masks = np.tile(np.array([[0, 255], [0, 0]], np.uint8), (7, 1, 1))
    data.load((X, masks) if form == "arrays" else Listed(list(zip(X, masks, strict=True)))).check(MASKS)
    assert [each.message.partition(";")[0] for each in caplog.records] == [
        "labels are 0 or 255 alone, and 255 counts nowhere"
    ]
    caplog.clear()
    data.load((X, np.minimum(masks, 1))).check(MASKS)
    assert not caplog.records


class Long(Listed):
    """Says that it is longer than it is."""

    def __len__(self) -> int:
        return 5


class Torn(Listed):
    def __getitem__(self, index: int) -> Any:
        if index == 41:
            raise OSError("cannot read the picture")
        return super().__getitem__(index)


class Endless(Listed):
    def __len__(self) -> int:
        raise TypeError("I have none")


MALFORMED: dict[str, tuple[Any, str]] = {
    "unequal": ((X, Y[:6]), "there are 6 labels for 7 inputs"),
    "three arrays": ((X, Y, Y), "a tuple of 3 is no pair"),
    "text": ((X, ["cat"] * 7), "labels: hold words, such as 'cat'; number your classes"),
    "objects": ((X, np.array([object()] * 7)), "labels: hold Python objects"),
    "nothing for a label": ((X, [None] * 7), r"labels: hold Python objects \(NoneType\)"),
    "dates": ((np.array(["2026-01-01"] * 7, "datetime64[D]"), Y), "inputs: hold dates"),
    "records": ((np.zeros(7, [("a", "f4")]), Y), "inputs: hold records with named fields"),
    "complex": ((X.astype("complex64"), Y), "inputs: hold complex numbers.*view_as_real"),
    "sparse": ((torch.eye(7).to_sparse(), Y), r"inputs: hold a sparse tensor; pass x.to_dense\(\)"),
    "meta": ((torch.empty(7, 1, device="meta"), Y), "inputs: hold a tensor on the meta device"),
    "tensors of two sizes": (([torch.zeros(1), torch.zeros(2)], [0, 1]), r"number 1 is float32 \[2\], number 0"),
    "one array": (X, r"one ndarray is no pair; pass \(x, y\)"),
    "one tensor": (torch.from_numpy(X), "one Tensor is no pair"),
    "loader": (DataLoader(TensorDataset(torch.zeros(2), torch.zeros(2))), "pass its data set, loader.dataset"),
    "class": (Listed, r"Listed is a class; pass one of its objects, Listed\(...\)"),
    "bytes": (b"data", "cannot read a bytes"),
    "None": (None, "cannot read a NoneType"),
    "ragged": (([[1.0], [1.0, 2.0]], [0, 1]), "inputs: cannot be turned into one array"),
    "number": (3, "cannot read a int"),
    "no pairs": (Listed([X[0], X[1]]), "not a pair"),
    "triple": (Listed([(X[0], 0, "a.png")]), "sample 0 has 3 parts, not a pair"),
    "no item": (Listed([(X[0], 0), None]), "sample 1 is a NoneType, not a pair"),
    "sizes differ": (
        Listed([(X[0], 0), (X[1, :, :1], 0)]),
        r"sample 1 has shape \[1, 1, 2\], sample 0 has \[1, 2, 2\]",
    ),
    "types differ": (Listed([(X[0], 0), (X[1].astype(float), 0)]), "sample 1 has type torch.float64, sample 0"),
    "two labels": (Listed([(X[0], 0), (X[0], [0, 1])]), r"sample 1 has labels of shape \[2\], sample 0 of \[\]"),
    "a word for a label": (Listed([(X[0], "cat")]), "labels: sample 0 holds words, such as 'cat'; number your classes"),
    "words for an input": (Listed([("a b", 0)]), "inputs: sample 0 holds words, such as 'a b'; turn them into numbers"),
    "labels of two types": (Listed([(X[0], 0)] * 64 + [(X[0], 1.0)]), "labels: are of several types: float"),
    "shorter than it says": (Long([(X[0], 0)] * 3), r"sample 3 is not there: .*IndexError.* len\(dataset\) says 5"),
    "unreadable": (Torn([(X[0], 0)] * 99), "sample 41 cannot be read: OSError: cannot read the picture"),
    "unreadable in a subset": (Subset(Torn([(X[0], 0)] * 99), [3, 41]), "sample 1 cannot be read: OSError"),
    "no length": (Endless([]), "its length cannot be told: TypeError: I have none; pass a map-style Dataset"),
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
    return [named.one(x, "a test").flatten().tolist() + y.tolist() for x, y in samples.batches(3, order, CPU)]


class Rolled(Listed):
    """Draws from the generators of Python, numpy and torch at each read, as augmentations do."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return torch.from_numpy(x) + random.random() + torch.rand(1) + float(np.random.random()), y


PAIRS = [(x, int(y)) for x, y in zip(X, Y, strict=True)]


def test_the_order_is_the_seeds_and_the_same_from_memory_and_from_a_data_set() -> None:
    held, read = data.load((X, Y)), data.load(Listed(PAIRS))
    for samples in (held, read):
        samples.check(IMAGES)
    assert read.inputs is None
    assert epoch(held, 1) == epoch(held, 1) == epoch(read, 1)
    assert epoch(held, 1) != epoch(held, 2)


@pytest.mark.parametrize("seed", range(4))
def test_a_data_set_is_read_anew_each_epoch_whatever_it_gave_when_it_was_looked_at(seed: int) -> None:
    torch.manual_seed(seed)
    source = Rolled(PAIRS)
    samples = data.load(source)
    samples.check(IMAGES)
    order = torch.Generator().manual_seed(1)
    two = [[x.flatten().tolist() for x in named.alone(samples.batches(3, order, CPU), "a test")] for _ in range(2)]
    assert sorted(source.reads) == sorted([*range(7)] * 3 + [0]) and two[0] != two[1]


def test_what_a_data_set_draws_follows_from_the_seed_and_leaves_the_process_alone() -> None:
    samples = data.load(Rolled(PAIRS))
    samples.check(IMAGES)
    drawn = []
    for seed, own in ((1, 5), (1, 6), (2, 5)):
        random.seed(own)
        np.random.seed(own)
        torch.manual_seed(own)
        before = (
            random.getstate(),
            np.random.get_state(legacy=False)["state"]["key"].tolist(),
            torch.get_rng_state().tolist(),
        )
        drawn.append(epoch(samples, seed))
        assert before == (
            random.getstate(),
            np.random.get_state(legacy=False)["state"]["key"].tolist(),
            torch.get_rng_state().tolist(),
        )
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_is_cached_is_read_once() -> None:
    source = Rolled(PAIRS)
    samples = data.load(source, cache=True)
    samples.check(IMAGES)
    assert epoch(samples, 1) == epoch(samples, 1)
    assert source.reads == [*range(7)]


def test_a_set_of_tensors_with_a_getitem_of_its_own_is_read_anew() -> None:
    class Flipped(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            x, y = super().__getitem__(index)
            return x + torch.rand(1), y

    assert data.load(Flipped(torch.from_numpy(X), torch.from_numpy(Y))).inputs is None


DEEP: dict[str, tuple[Any, str]] = {
    "label": ((X[1], 5), "sample 9 has label 5"),
    "negative": ((X[1], -1), "sample 9 has label -1"),
    "NaN": ((X[1] * np.nan, 0), "sample 9 has a value that is NaN"),
}


@pytest.mark.parametrize("case", DEEP)
def test_what_is_wrong_deep_in_a_data_set_is_found_before_anything_is_trained(case: str) -> None:
    samples = data.load(Listed([(X[0], 0)] * 9 + [DEEP[case][0]]))
    with pytest.raises(DatasetError, match=DEEP[case][1]):
        samples.check(IMAGES)


@pytest.mark.parametrize("case", DEEP)
def test_of_a_large_set_some_are_looked_at_and_the_others_are_found_when_they_are_read(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LOOK_BYTES", 10)
    monkeypatch.setattr(sources, "_LOOK_AT", 2)
    source = Listed([(X[0], 0)] * 9 + [DEEP[case][0], (X[2], 2)])
    samples = data.load(source)
    assert set(source.reads) == {0, 10}
    samples.check(IMAGES)
    with pytest.raises(DatasetError, match=DEEP[case][1]):
        epoch(samples, 0)


def test_a_large_array_that_cannot_be_written_to_is_read_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LOOK_BYTES", 10)
    held, mapped = data.load((X, Y)), data.load((locked(X), Y))
    for samples in (held, mapped):
        samples.check(IMAGES)
    assert mapped.inputs is None and epoch(held, 1) == epoch(mapped, 1)


def test_a_cut_file_is_no_traceback(tmp_path: Path) -> None:
    path = save_npz(tmp_path, x=X, y=Y)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DatasetError, match="cannot be read"):
        data.load(path)
