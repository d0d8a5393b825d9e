"""Samples of several inputs: they go to the arguments of the user's module, wherever that is called."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from client_sdk import LocalOutcome, errors, intake
from client_sdk.named import Inputs, Named
from client_sdk.sources import Reading
from contract.nn import codec
from contract.tensors import write_file
from contract.wire.federations import Task

from .conftest import FakeService

Run = Callable[..., Any]
CPU = torch.device("cpu")
LENGTH, WORDS = 6, 12
TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [LENGTH], "dtype": "int64"}})
FLOATS = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})


def tokens(count: int = 40) -> dict[str, Any]:
    """Return rows of ids whose class is told by the words under the mask; the others say the opposite."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    mask = (np.arange(LENGTH) < rng.integers(2, LENGTH, (count, 1))).astype("int64")
    side = np.where(mask == 1, labels[:, None], 1 - labels[:, None])
    return {"input_ids": rng.integers(0, 6, (count, LENGTH)) + 6 * side, "attention_mask": mask, "labels": labels}


class Reader(nn.Module):
    """An embedding, one layer of attention and the mean over what the mask lets in."""

    def __init__(self, returned: Callable[[Tensor], Any] = lambda out: out) -> None:
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.returned = returned

    def features(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        seen = self.words(input_ids)
        scores = (self.mix(seen) @ seen.transpose(1, 2)).masked_fill(attention_mask[:, None] == 0, -1e9)
        let = attention_mask[..., None].to(seen.dtype)
        read: Tensor = ((seen + scores.softmax(-1) @ seen) * let).sum(1) / let.sum(1)
        return read

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.returned(self.head(self.features(input_ids, attention_mask)))


def serve(service: FakeService, module: nn.Module, task: Task = TASK, **plan: Any) -> None:
    """Make `module` the federation's model."""
    metadata = {"potstill.features": "8"}
    codec.save_state(module, service.folder / "own.safetensors", metadata)
    service.architecture, service.options, service.task = "custom", {}, task
    service.models["mdl_0"] = (service.folder / "own.safetensors").read_bytes()
    service.plan = {"optimizer": {"kind": "adam", "lr": 0.05}, "epochs": 3, "batch_size": 8} | plan


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: value[row] for name, value in columns.items()} for row in range(len(columns["labels"]))]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        own, count = (0, 1) if info is None else (info.id, info.num_workers)
        yield from rows(tokens())[own::count]


def hugging() -> datasets.Dataset:
    return datasets.Dataset.from_dict({name: value.tolist() for name, value in tokens().items()})


def frame() -> pd.DataFrame:
    return pd.DataFrame({"text": "a", **{name: list(value) for name, value in tokens().items()}})


BOTH = ({"input_ids": "input_ids", "attention_mask": "attention_mask"}, "labels")
FORMS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "dict of arrays": (tokens, {}),
    "items": (lambda: rows(tokens()), {}),
    "items by names": (lambda: [{**row, "id": "a"} for row in rows(tokens())], {"columns": BOTH}),
    "pairs": (lambda: ({k: v for k, v in tokens().items() if k != "labels"}, tokens()["labels"]), {}),
    "Hugging Face": (hugging, {}),
    "Hugging Face in torch": (lambda: hugging().with_format("torch"), {}),
    "frame by names": (frame, {"columns": BOTH}),
    "held": (lambda: rows(tokens()), {"cache": True}),
    "stream": (Stream, {"num_samples": 40}),
    "stream of processes": (Stream, {"num_samples": 40, "how": Reading(workers=2)}),
    "processes": (hugging, {"how": Reading(workers=1)}),
    "collated": (
        lambda: rows(tokens()),
        {"how": Reading(collate=lambda items: {name: np.stack([item[name] for item in items]) for name in items[0]})},
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_every_form_gives_the_same_inputs_by_their_names(form: str) -> None:
    make, options = FORMS[form]
    samples = intake.take(make(), **options)
    samples.check(TASK)
    assert len(samples) == 40 and samples.names == ["input_ids", "attention_mask"]
    inputs, labels = next(samples.read([torch.arange(40)], CPU))
    assert isinstance(inputs, Named)
    wanted = tokens()
    found = {name: value.numpy() for name, value in (*inputs.items(), ("labels", labels))}
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


FILES: dict[str, tuple[str, dict[str, Any], Any]] = {
    ".npz": ("data.npz", {}, None),
    ".safetensors": ("data.safetensors", {}, None),
    "with more in it": ("data.npz", {"weight": np.ones(40), "inputs": np.ones(40)}, BOTH),
    "beside an x": ("data.safetensors", {"x": np.ones(40)}, BOTH),
}


@pytest.mark.parametrize("case", FILES)
def test_files_hold_several_inputs_by_their_names(case: str, tmp_path: Path) -> None:
    name, more, columns = FILES[case]
    path, arrays = tmp_path / name, {**tokens(), **more}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        write_file(path, arrays)
    samples = intake.take(str(path), columns=columns)
    samples.check(TASK)
    assert samples.names[0] == ("attention_mask" if case == ".safetensors" else "input_ids")
    inputs, labels = next(samples.read([torch.arange(40)], CPU))
    assert isinstance(inputs, Named) and set(inputs) == {"input_ids", "attention_mask"}
    assert all(np.array_equal(value.numpy(), tokens()[name]) for name, value in (*inputs.items(), ("labels", labels)))


def test_parts_and_first_samples_keep_their_inputs_together() -> None:
    samples = intake.take(tokens())
    samples.check(TASK)
    for few in (samples.part(torch.tensor([3, 1])), intake.take(hugging()).part(torch.tensor([3, 1]))):
        few.task = TASK
        inputs, labels = next(few.some(2).read([torch.arange(2)], CPU))
        assert isinstance(inputs, Named) and labels.tolist() == [1, 1]
        assert np.array_equal(inputs["attention_mask"].numpy(), tokens()["attention_mask"][[3, 1]])


@pytest.mark.parametrize("returned", [lambda out: out, lambda out: (out, [out])], ids=["logits", "tuple"])
def test_two_rounds_train_what_the_mask_lets_in(service: FakeService, take_part: Run, returned: Any) -> None:
    torch.manual_seed(0)
    module = Reader(returned)
    serve(service, module)
    report = take_part(hugging(), model=module, evaluate_on=tokens(20))
    assert report.rounds_trained == 2 and [each.num_samples for each in report.rounds] == [40, 40]
    before, after = report.rounds[0].before, report.rounds[1].after
    assert after["accuracy"] == 1.0 > before["accuracy"] and after["loss"] < before["loss"]


OBJECTIVES = ("fedprox", "moon", "feduv", "fedgkd", "scaffold")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objectives_that_call_the_network_give_it_all_inputs(
    service: FakeService, take_part: Run, objective: str
) -> None:
    torch.manual_seed(0)
    option = {"option": 1} if objective == "scaffold" else {}
    serve(service, Reader(), epochs=1, objective={"kind": objective, **option})
    if objective == "fedgkd":
        service.extras["teacher"] = "mdl_0"
    assert take_part(tokens(), model=Reader(), rounds=1).rounds_trained == 1


def test_differential_privacy_bounds_samples_of_several_inputs(service: FakeService, take_part: Run) -> None:
    pytest.importorskip("opacus", reason="the extra 'privacy' is not installed")
    serve(service, Reader(), epochs=1, privacy={"noise_multiplier": 1.0, "max_grad_norm": 1.0, "delta": 1e-5})
    report = take_part(tokens(), model=Reader(), rounds=1)
    assert report.epsilon is not None and report.epsilon > 0


class TwoFloats(nn.Module):
    """Says whether an image is bright, and adds a number beside it; in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2).double(), nn.Linear(1, 2).double()
        self.kinds: set[torch.dtype] = set()

    def forward(self, image: Tensor, beside: Tensor, *, flag: Tensor | None = None) -> Tensor:
        self.kinds |= {image.dtype, beside.dtype}
        return self.one(image) + self.other(beside)  # type: ignore[no-any-return]


def floats() -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    return {"image": x[:, :2], "beside": x[:, 2:], "y": (x[:, 0] > 0).astype("int64")}


def test_floating_inputs_come_in_the_module_s_type_and_augmented(service: FakeService, take_part: Run) -> None:
    def augment(sample: Inputs) -> Any:
        assert isinstance(sample, Named)
        return {**sample, "beside": sample["beside"] + 1}

    module = TwoFloats()
    serve(service, module, FLOATS)
    assert take_part(rows_of(floats()), model=module, rounds=1, augment=augment).rounds_trained == 1
    assert module.kinds == {torch.float64}
    samples = intake.take(rows_of(floats()), how=Reading(augment=augment))
    samples.check(FLOATS)
    (inputs, _) = next(samples.read([torch.arange(20)], CPU, trained=True))
    assert isinstance(inputs, Named) and np.allclose(inputs["beside"].numpy(), floats()["beside"] + 1)


def rows_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: value[row] for name, value in columns.items()} for row in range(len(columns["y"]))]


def test_a_normalised_task_is_about_the_first_input() -> None:
    task = FLOATS.model_copy(update={"input": FLOATS.input.model_copy(update={"mean": [1.0], "scale": [2.0]})})
    samples = intake.take(floats())
    samples.check(task)
    (inputs, _) = next(samples.given_as(torch.float64).read([torch.arange(20)], CPU))
    assert isinstance(inputs, Named) and inputs["image"].dtype == inputs["beside"].dtype == torch.float64
    assert np.allclose(inputs["image"].numpy(), (floats()["image"] - 1) / 2)
    assert np.allclose(inputs["beside"].numpy(), floats()["beside"])


def changed(**other: Any) -> dict[str, Any]:
    return {**tokens(), **other}


def ragged() -> list[dict[str, Any]]:
    return [
        {**row, "attention_mask": row["attention_mask"][: 6 - number]} for number, row in enumerate(rows(tokens(2)))
    ]


HOLE = np.where(np.arange(40) == 7, np.nan, 0.0)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "words": (
        lambda: rows({**tokens(), "text": ["a good film"] * 40}),
        r"inputs 'text': sample 0 holds words, such as 'a good film'.*or leave it out: columns=\(\{'argument'",
    ),
    "first": (
        lambda: {name: tokens()[name] for name in ("labels", "attention_mask", "input_ids")} | {"attention_mask": HOLE},
        r"inputs 'attention_mask': one sample has shape \[\], wanted is \[6\].*The first of several inputs is the one",
    ),
    "not finite": (lambda: changed(weight=HOLE), "inputs: sample 7 has a value that is NaN"),
    "not finite, read": (lambda: rows(changed(weight=HOLE)), "inputs: sample 7 has a value that is NaN"),
    "numbers of samples": (lambda: changed(attention_mask=np.ones((39, 6))), "'input_ids' 40, 'attention_mask' 39"),
    "ragged": (ragged, r"inputs 'attention_mask': sample 1 has shape \[5\], sample 0 has \[6\]"),
    "names": (
        lambda: [*rows(tokens(2)), {**rows(tokens(1))[0], "more": 1}],
        "sample 2 has inputs 'input_ids', inputs 'attention_mask', inputs 'more', sample 0 has",
    ),
    "nothing": (lambda: ({}, [1]), "inputs: are a dict without anything in it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_several_inputs_that_do_not_fit_are_told_by_their_names(case: str) -> None:
    make, words = REFUSED[case]
    with pytest.raises(errors.DatasetError, match=words):
        intake.take(make()).check(TASK)


def join_refused(service: FakeService, take_part: Run, words: str, kind: type[Exception], **options: Any) -> None:
    with pytest.raises(kind, match=words):
        take_part(tokens(), **options)
    assert service.sent("POST", ".*/clients") == []


@pytest.mark.parametrize("name", ["net:sha256-" + "0" * 64, "mlp"])
def test_networks_by_name_take_one_input(service: FakeService, take_part: Run, name: str) -> None:
    serve(service, Reader())
    service.architecture = name
    words = rf"inputs: are 'input_ids', 'attention_mask', and .*\({name}\) takes one. Pass columns="
    join_refused(service, take_part, words, errors.DatasetError)


@pytest.mark.parametrize("objective", ["ds_fl", "dafkd"])
def test_objectives_that_bring_data_of_their_own_take_one_input(
    service: FakeService, take_part: Run, objective: str
) -> None:
    own = {"architecture": "gen-mlp", "input_range": [0, 1]} if objective == "dafkd" else {}
    serve(service, Reader(), objective={"kind": objective, **own})
    words = f"objective '{objective}' takes one"
    join_refused(service, take_part, words, errors.DatasetError, model=Reader())


def test_an_argument_that_forward_does_not_take_is_told(service: FakeService, take_part: Run) -> None:
    serve(service, Reader())
    words = r"forward takes \(input_ids: .*a sample's inputs are ids, attention_mask: .*Pass columns="
    columns = ({"ids": "input_ids", "attention_mask": "attention_mask"}, "labels")
    join_refused(service, take_part, words, errors.ModelMismatch, model=Reader(), columns=columns)


def test_a_discriminator_judges_one_input(service: FakeService, take_part: Run) -> None:
    serve(service, TwoFloats(), FLOATS)
    service.want_discriminator = True
    with pytest.raises(errors.DatasetError, match="a discriminator takes one"):
        take_part(rows_of(floats()), model=TwoFloats())


def test_a_function_of_ones_own_gets_columns_counted_by_their_rows(service: FakeService, take_part: Run) -> None:
    serve(service, Reader(), objective={"kind": "fedgkd"})
    service.extras["teacher"] = "mdl_0"

    def train(task: Any) -> Any:
        inputs = {name: torch.from_numpy(task.dataset[name]) for name in ("input_ids", "attention_mask")}
        labels, optimizer = torch.from_numpy(task.dataset["labels"]), task.optimizer()
        (task.loss(inputs, labels, task.module(**inputs)) + task.penalty()).backward()
        optimizer.step()
        return LocalOutcome(num_samples=len(labels), loss=0.5)

    report = take_part(tokens(), model=Reader(), rounds=1, train=train)
    [enrolment] = service.sent("POST", ".*/clients")
    assert report.rounds_trained == 1 and json.loads(enrolment.content)["num_samples"] == 40


def test_one_input_in_a_dict_goes_in_by_its_place() -> None:
    samples = intake.take(rows_of({"image": floats()["image"], "y": floats()["y"]}))
    assert samples.names == []
