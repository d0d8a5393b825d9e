"""Data whose parts have names, and data that can only be gone through."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from client_sdk import data, errors, intake, sources, workers
from contract.wire.federations import Task

from .conftest import TASK, FakeService

Run = Callable[..., Any]
X = np.arange(80, dtype="float32").reshape(40, 2) / 80
Y = (np.arange(40) % 2).astype("int64")
TOY = Task.model_validate(TASK)
CPU = torch.device("cpu")


def frame() -> pd.DataFrame:
    return pd.DataFrame({"height": X[:, 0], "weight": X[:, 1], "label": Y})


def both() -> list[dict[str, Any]]:
    return [{"x": x, "label": int(y)} for x, y in zip(X, Y, strict=True)]


def table() -> pa.Table:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 2)
    return pa.table({"features": rows, "label": Y})


def hugging(**features: Any) -> datasets.Dataset:
    made = datasets.Dataset.from_dict({"x": X.tolist(), "label": Y.tolist()})
    return made.cast_column("label", datasets.ClassLabel(names=["cat", "dog"]))


TAKEN: dict[str, tuple[Callable[[], Any], Any]] = {
    "dict of arrays": (lambda: {"x": X, "y": Y}, None),
    "dict of more arrays": (lambda: {"x": X, "y": Y, "id": Y}, ("x", "y")),
    "frame": (frame, None),
    "frame by names": (lambda: frame().assign(id="a"), (["height", "weight"], "label")),
    "nested frame": (lambda: pd.DataFrame({"x": list(X), "y": Y}), None),
    "table": (table, None),
    "table of columns": (lambda: pa.Table.from_pandas(frame()), (["height", "weight"], "label")),
    "table of lists": (lambda: pa.table({"x": X.tolist(), "y": Y}), None),
    "items": (both, None),
    "items by names": (
        lambda: [{"a": x[:1], "b": x[1], "y": y} for x, y in zip(X, Y, strict=True)],
        (["a", "b"], "y"),
    ),
    "Hugging Face": (hugging, None),
    "Hugging Face by names": (lambda: hugging().add_column("id", list(range(40))), ("x", "label")),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_has_names_is_taken_by_them(case: str) -> None:
    make, columns = TAKEN[case]
    samples = intake.take(make(), columns=columns)
    samples.check(TOY)
    inputs, labels = next(samples.read([torch.arange(40)], CPU))
    assert isinstance(inputs, torch.Tensor) and inputs.dtype == torch.float32 and np.allclose(inputs.numpy(), X)
    assert labels.tolist() == Y.tolist()


def test_hugging_face_knows_its_classes(service: FakeService, take_part: Run) -> None:
    assert intake.take(hugging()).classes == ["cat", "dog"]
    service.classes = ["dog", "cat"]
    with pytest.raises(errors.DatasetError, match="classes: yours are cat, dog, the federation's are dog, cat"):
        take_part(hugging())
    service.classes = ["cat", "dog"]
    assert take_part(hugging(), rounds=1).rounds_trained == 1


REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "no plain label": (lambda: {"a": X, "b": Y}, None, "the dict has 'a', 'b', and it is not plain which"),
    "no such column": (frame, ("size", "label"), "columns: the DataFrame has no 'size'; there are 'height'"),
    "words": (lambda: frame().assign(name="a"), None, "columns: 'name' holds (object|str), no numbers"),
    "splits": (
        lambda: datasets.DatasetDict(train=hugging()),
        None,
        r"several data sets; pass one, such as d\['train'\]",
    ),
    "columns of arrays": (lambda: (X, Y), ("x", "y"), "columns: a tuple has no names"),
    "columns as one": (frame, "label", "columns: are 'label'; pass a pair"),
    "ragged": (
        lambda: pa.table({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}),
        None,
        "columns: 'x' holds object, no numbers",
    ),
    "generator": (lambda: ((x, y) for x, y in zip(X, Y, strict=True)), None, "a generator can be gone through once"),
    "loader": (lambda: DataLoader(TensorDataset(torch.zeros(2), torch.zeros(2))), None, "its data set, loader.dataset"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_plain_is_refused_with_what_to_pass(case: str) -> None:
    make, columns, words = REFUSED[case]
    with pytest.raises(errors.DatasetError, match=words):
        intake.take(make(), columns=columns)


# Streams


class Stream(IterableDataset[Any]):
    """Gives `count` samples, of which `noise` is drawn anew each time."""

    def __init__(self, count: int = 40, noise: float = 0.0):
        self.count, self.noise = count, noise

    def __iter__(self) -> Iterator[Any]:
        for row in range(self.count):
            yield X[row] + self.noise * random.random(), Y[row]


def epoch(samples: data.Samples, seed: int = 0) -> list[Any]:
    order = torch.Generator().manual_seed(seed)
    return [(x, y) for _ in range(2) for x, y in samples.batches(8, order, CPU)]


def test_a_stream_with_a_declared_length_is_gone_through_each_epoch() -> None:
    samples = intake.take(Stream(noise=0.1), num_samples=33)
    samples.check(TOY)
    one, other = epoch(samples), epoch(samples)
    assert [len(y) for _, y in one] == [8, 8, 8, 9] * 2 and len(samples) == 33
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one, other, strict=True))
    assert not torch.equal(one[0][0], one[4][0]), "the next epoch draws anew"
    assert np.allclose(torch.cat([x for x, _ in one[:4]]), X[:33], atol=0.11)


def test_a_collate_makes_a_stream_s_batches_as_it_does_a_data_set_s() -> None:
    def collate(items: list[Any]) -> Any:
        return torch.stack([torch.as_tensor(x) * 2 for x, _ in items]), torch.tensor([int(y) for _, y in items])

    how = sources.Reading(collate=collate, augment=lambda x: x + torch.rand(()))
    samples = intake.take(Stream(noise=0.1), num_samples=33, how=how)
    samples.check(TOY)
    one, other = epoch(samples), epoch(samples)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one, other, strict=True))
    read = torch.cat([x for x, _ in one[:4]])
    assert np.all(read.numpy() >= 2 * X[:33]) and np.all(read.numpy() <= 2 * X[:33] + 1.2)
    assert np.array_equal(torch.cat([y for _, y in one[:4]]), Y[:33])
    with pytest.raises(errors.DatasetError, match="collate: failed on 33 items from sample 0 on: TypeError"):
        intake.take(Stream(), num_samples=33, how=sources.Reading(collate=lambda items: items[0]["x"]))


class Shares(Stream):
    """Gives each process its share."""

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for row in range(first, self.count, step):
            yield X[row] + self.noise * random.random(), Y[row]


def test_processes_share_a_stream_and_no_sample_is_read_twice() -> None:
    samples = intake.take(Shares(), num_samples=40, how=sources.Reading(workers=2))
    samples.check(TOY)
    read = torch.cat([x for x, _ in epoch(samples)[:5]])
    assert np.array_equal(read, X[:40]), "one of each in turn"
    noisy = intake.take(Shares(noise=0.1), num_samples=40, how=sources.Reading(workers=2))
    noisy.check(TOY)
    one, other = epoch(noisy), epoch(noisy)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one, other, strict=True))
    assert not torch.equal(one[0][0], one[5][0]), "the next epoch draws anew"
    collated = sources.Reading(workers=2, collate=lambda items: ([x * 2 for x, _ in items], [y for _, y in items]))
    twice = intake.take(Shares(), num_samples=40, how=collated)
    twice.check(TOY)
    assert np.array_equal(torch.cat([x for x, _ in epoch(twice)[:5]]), X[:40] * 2)


def test_an_error_in_a_process_of_a_stream_is_told_like_one_here() -> None:
    class Torn(Shares):
        def __iter__(self) -> Iterator[Any]:
            info = torch.utils.data.get_worker_info()
            for row, item in enumerate(super().__iter__()):
                if row == 12 and info is not None and info.id == 1:
                    raise OSError("the disk is gone")
                yield item

    samples = intake.take(Torn(), num_samples=40, how=sources.Reading(workers=2))
    samples.check(TOY)
    with pytest.raises(errors.DatasetError, match="dataset: process 1 cannot read it: OSError: the disk is gone"):
        epoch(samples)


def test_a_stream_that_gives_all_processes_the_same_is_refused() -> None:
    with pytest.raises(errors.DatasetError, match="num_workers: .* gives its 2 processes the same samples"):
        intake.take(Stream(noise=0.1), num_samples=40, how=sources.Reading(workers=2))


class Alike(Shares):
    """Gives the same sample again and again, each process its share, and another one at its end."""

    def __init__(self, others: int):
        super().__init__()
        self.others = others

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        number, of = (0, 1) if info is None else (info.id, info.num_workers)
        last = self.count - self.others
        yield from ((X[0] if row < last else X[row], Y[0]) for row in range(number, self.count, of))


class Whole(Stream):
    """Gives every process all samples, which are alike but for the last."""

    def __iter__(self) -> Iterator[Any]:
        yield from ((X[0] if row < 39 else X[row], Y[0]) for row in range(40))


@pytest.mark.parametrize("others", [0, 4])
def test_shares_that_begin_alike_are_no_sign_of_samples_read_twice(others: int) -> None:
    samples = intake.take(Alike(others), num_samples=40, how=sources.Reading(workers=2))
    samples.check(TOY)
    assert sum(len(labels) for _, labels in samples.batches(8, torch.Generator(), CPU)) == 40
    with pytest.raises(errors.DatasetError, match="num_workers: .* gives its 2 processes the same samples"):
        intake.take(Whole(), num_samples=40, how=sources.Reading(workers=2))


@pytest.mark.parametrize(
    "make",
    [
        lambda number: (torch.full((3,), number, dtype=torch.bfloat16), torch.tensor(number)),
        lambda number: {"x": np.full(3, number), "text": f"sample {number}"},
        lambda number: [number, ["a", b"b", None]],
    ],
    ids=["tensors", "mapping", "nested"],
)
def test_equal_samples_are_known_wherever_they_lie(make: Any) -> None:
    assert workers._digest(make(1), 0) == workers._digest(make(1), 5)
    assert workers._digest(make(1), 0) != workers._digest(make(2), 0)


def test_a_stream_trains(service: FakeService, take_part: Run, tmp_path: Any) -> None:
    with pytest.raises(errors.DatasetError, match="num_samples: a Stream has no length; pass num_samples="):
        take_part(Stream())
    with pytest.raises(errors.DatasetError, match="dataset: ended after 40 of the 50 samples that were declared"):
        take_part(Stream(), num_samples=50)
    assert service.requests == [] or service.sent("POST", ".*/clients") == []
    sent = []
    for folder in ("one", "two"):
        service.round, service.current = 1, "mdl_0"
        report = take_part(Stream(noise=0.1), num_samples=40, state_dir=tmp_path / folder, rounds=1)
        assert (report.num_samples, report.rounds[0].steps) == (40, 10)
        sent.append(service.updates.pop())
    assert sent[0] == sent[1]


def test_a_stream_that_ends_early_in_a_round_is_told_and_the_next_start_goes_on(
    service: FakeService, take_part: Run
) -> None:
    stream = Stream(400)

    def shrink(request: Any) -> Any:
        stream.count = 30
        return service._assignment(request)

    stream.count = 40
    service.fault("GET", "/v1/assignment", shrink)
    with pytest.raises(errors.DatasetError, match="ended after 30 of the 40 samples"):
        take_part(stream, num_samples=40)
    stream.count = 40
    assert take_part(stream, num_samples=40).state == "finished"
    assert len(service.sent("POST", ".*/clients")) == 1


def test_a_data_set_that_shrinks_or_changes_its_shapes_half_way_is_told(service: FakeService, take_part: Run) -> None:
    class Changing(torch.utils.data.Dataset[Any]):
        """Another one once the device has joined."""

        def __len__(self) -> int:
            return 40

        def __getitem__(self, row: int) -> Any:
            return rows[row]

    rows, items = list(zip(X, Y, strict=True)), Changing()
    changes: dict[str, Callable[[], Any]] = {
        "sample 39 is not there: .*IndexError": rows.pop,
        "sample [0-9]+ has shape": lambda: rows.__setitem__(39, (X[0, :1], 0)),
    }
    for words, change in changes.items():

        def changed(request: Any, change: Callable[[], Any] = change) -> Any:
            change()
            return service._assignment(request)

        rows[39:] = [(X[39], Y[39])]
        service.fault("GET", "/v1/assignment", changed)
        with pytest.raises(errors.DatasetError, match=words):
            take_part(items)
    rows[39:] = [(X[39], Y[39])]
    assert take_part(items, rounds=1).rounds_trained == 1


def test_a_stream_cannot_be_drawn_from_at_random(service: FakeService, take_part: Run) -> None:
    service.plan |= {"privacy": {"noise_multiplier": 1.0}}
    with pytest.raises(errors.DatasetError, match="an iterable data set has an order of its own"):
        take_part(Stream(), num_samples=40, rounds=1)
    held = intake.take(Stream(), num_samples=40, cache=True)
    assert held.inputs is not None and held.how == sources.PLAIN
