"""The small wishes of our own loop: what is read otherwise, what is minimised otherwise, what is measured beside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from client_sdk import errors, intake, measuring, precision, wishes
from client_sdk.sources import Reading
from client_sdk.training import train_local
from contract.local import FedProxObjective, LocalPlan, Sgd
from contract.tensors import parse_header
from contract.wire.federations import Task

from .conftest import TASK, FakeService

Run = Callable[..., Any]
TOY = Task.model_validate(TASK)
CPU = torch.device("cpu")


class Noisy(Dataset[Any]):
    """Draws from numpy and torch whenever it is read."""

    def __init__(self, x: Any, y: Any):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row: int) -> Any:
        return torch.from_numpy(self.x[row]) + float(np.random.rand()) + torch.rand(2), int(self.y[row])


def updates(service: FakeService, take_part: Run, folder: Path, *args: Any, **options: Any) -> bytes:
    service.round, service.current = 1, "mdl_0"
    take_part(*args, rounds=1, state_dir=folder / str(len(list(folder.iterdir()))), **options)
    return service.updates.pop()


# Reading


def test_workers_read_the_same_bit_for_bit(service: FakeService, take_part: Run, blobs: Any, tmp_path: Path) -> None:
    sent = [updates(service, take_part, tmp_path, Noisy(*blobs), num_workers=count) for count in (0, 2)]
    assert sent[0] == sent[1]


def test_an_error_in_a_worker_is_told_like_one_here(take_part: Run, service: FakeService, blobs: Any) -> None:
    class Torn(Noisy):
        def __getitem__(self, row: int) -> Any:
            if row == 17 and torch.utils.data.get_worker_info() is not None:
                raise OSError("cannot read the picture")
            return super().__getitem__(row)

    with pytest.raises(errors.DatasetError, match="^dataset: sample 17 cannot be read: OSError: cannot read the pic"):
        take_part(Torn(*blobs), num_workers=1)
    for wrong in (-1, True, "two"):
        with pytest.raises(errors.UsageError, match="num_workers: a whole number of at least 0"):
            take_part(num_workers=wrong)


def test_augmentation_is_drawn_anew_each_epoch_and_again_for_the_same_round(
    service: FakeService, take_part: Run, tmp_path: Path, blobs: Any
) -> None:
    seen: list[float] = []

    def augment(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(2)
        seen.append(float(noise[0]))
        return x + noise

    plain = updates(service, take_part, tmp_path)
    one = updates(service, take_part, tmp_path, augment=augment)
    count = len(seen)
    assert count == 8 + 2 * 40, "the step that is tried, then two epochs"
    assert len(set(seen[8:])) == 80
    assert updates(service, take_part, tmp_path, augment=augment) == one != plain
    assert seen[:count] == seen[count:]
    assert updates(service, take_part, tmp_path, Noisy(*blobs), augment=augment, num_workers=2) == updates(
        service, take_part, tmp_path, Noisy(*blobs), augment=augment
    )


@pytest.mark.parametrize(
    "augment, said",
    [
        (lambda x: x[:1], r"augment: made shape \[1\] of sample \d+'s \[2\]"),
        (lambda x: x @ x @ x, r"augment: failed on sample \d+: RuntimeError"),
        (lambda x: x / 0, r"sample \d+ has a value that is NaN or infinite"),
        (3, "augment: a int cannot be called"),
    ],
    ids=["shape", "raises", "infinite", "no function"],
)
def test_augmentation_that_breaks_is_told_before_the_device_joins(
    service: FakeService, take_part: Run, augment: Any, said: str
) -> None:
    with pytest.raises((errors.DatasetError, errors.UsageError), match=said):
        take_part(augment=augment)
    assert service.sent("POST", ".*/clients") == []


def test_collate_makes_a_batch_of_items_of_any_kind(service: FakeService, take_part: Run) -> None:
    items = [("a" * length, length % 2) for length in range(1, 41)]

    def collate(batch: list[Any]) -> Any:
        lengths = torch.tensor([[len(text) / 40, 1.0] for text, _ in batch])
        return {"inputs": lengths, "labels": [label for _, label in batch]}

    report = take_part(items, collate=collate, num_workers=1, evaluate_on=items[:5])
    assert (report.state, report.num_samples, report.rounds[0].steps) == ("finished", 40, 10)
    for wrong, said in (
        (lambda batch: batch, "collate: returned a list; return"),
        (lambda batch: (torch.zeros(3, 2), [0]), r"collate: returned inputs of shape \[3, 2\] for 1 items"),
        (lambda batch: batch[0] + 1, "collate: failed on 1 items from sample 0 on: TypeError"),
    ):
        with pytest.raises(errors.DatasetError, match=said):
            intake.take(items, how=Reading(collate=wrong))


# The loss


def one_step(wanted: wishes.Wishes = wishes.PLAIN, plan: LocalPlan | None = None) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    module = nn.Linear(2, 2)
    samples = intake.take((np.eye(3, 2, dtype="float32"), np.array([0, 0, 1])))
    samples.check(TOY)
    plan = plan or LocalPlan(optimizer=Sgd(lr=1.0), batch_size=3)
    return module, train_local(module, samples, plan, seed=0, device=CPU, wishes=wanted)


def test_a_loss_of_one_s_own_takes_the_place_of_the_task_s_and_the_objective_adds_to_it() -> None:
    def squares(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (outputs - functional.one_hot(labels, 2)).square().mean()

    torch.manual_seed(0)
    expected = nn.Linear(2, 2)
    squares(expected(torch.eye(3, 2)), torch.tensor([0, 0, 1])).backward()
    moved = {name: value.detach() - value.grad for name, value in expected.named_parameters() if value.grad is not None}
    for plan in (None, LocalPlan(objective=FedProxObjective(), optimizer=Sgd(lr=1.0), batch_size=3)):
        module, _ = one_step(wishes.Wishes(loss=squares), plan)
        assert all(torch.allclose(value, moved[name]) for name, value in module.named_parameters())


def test_weights_of_classes_are_torch_s_and_balanced_ones_count_the_labels() -> None:
    outputs, labels = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    weights = torch.tensor([0.5, 2.0, 0.0])
    expected = functional.cross_entropy(outputs, labels, weight=weights)
    assert torch.allclose(wishes.weighted(outputs, labels, weights), expected)
    assert wishes.weighted(outputs[1:2], labels[1:2], weights) == 0, "no weight at all is no NaN"
    balanced, (by_hand, _) = (
        one_step(wishes.Wishes(class_weights="balanced"))[0],
        one_step(wishes.Wishes(class_weights=[3 / 4, 3 / 2])),
    )
    assert all(map(torch.equal, balanced.state_dict().values(), by_hand.state_dict().values()))


@pytest.mark.parametrize(
    "options, said",
    [
        ({"loss": "mse"}, "loss: a str cannot be called"),
        ({"loss": lambda o, y: (o - 1).square()}, r"loss: returned a tensor \[8, 2\]; return the mean"),
        ({"loss": lambda o, y: 0.5}, "loss: returned a float"),
        ({"loss": lambda o, y: o.detach().mean()}, "loss: what it returned has no gradient"),
        ({"loss": lambda o, y: o @ y}, "loss: failed on 8 samples: RuntimeError"),
        ({"loss": lambda o, y: o.mean(), "class_weights": [1, 1]}, "class_weights: are of the task's loss"),
        ({"class_weights": [1.0]}, "class_weights: 2 numbers of at least 0"),
        ({"class_weights": [0, 0]}, "class_weights: 2 numbers of at least 0"),
        ({"class_weights": "even"}, "class_weights: 'even' is unknown"),
        ({"class_weights": ["a", "b"]}, "class_weights: are no numbers"),
    ],
    ids=lambda value: None,
)
def test_a_loss_that_cannot_be_is_told_before_the_device_joins(
    service: FakeService, take_part: Run, options: Any, said: str
) -> None:
    with pytest.raises(errors.UsageError, match=said):
        take_part(**options)
    assert service.sent("POST", ".*/clients") == []


@pytest.mark.parametrize("name", ["loss", "class_weights", "mixed_precision"])
def test_with_privacy_the_loss_is_the_task_s_in_full_precision(service: FakeService, take_part: Run, name: str) -> None:
    service.plan |= {"privacy": {"noise_multiplier": 1.0}}
    value = {"loss": lambda outputs, labels: outputs.mean(), "class_weights": [1, 1], "mixed_precision": True}[name]
    with pytest.raises(errors.UsageError, match=f"{name}: this federation trains with local.privacy"):
        take_part(**{name: value})


def test_what_is_of_our_loop_is_refused_beside_a_function(service: FakeService, take_part: Run) -> None:
    for name, value in (("loss", max), ("augment", max), ("num_workers", 2), ("mixed_precision", True)):
        with pytest.raises(errors.UsageError, match=f"{name}: is of our own loop, and train= takes its place"):
            take_part(train=lambda task: None, **{name: value})


# Mixed precision


def test_mixed_precision_computes_in_bfloat16_and_keeps_float32_weights(
    service: FakeService, take_part: Run, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[torch.dtype] = set()
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: seen.add(output.dtype) if isinstance(module, nn.Linear) else None
    )
    try:
        plain = updates(service, take_part, tmp_path)
        assert seen == {torch.float32}
        mixed = updates(service, take_part, tmp_path, mixed_precision=True)
        assert torch.bfloat16 in seen
    finally:
        hook.remove()
    one, other = load(plain), load(mixed)
    assert {value.dtype for value in other.values()} == {torch.float32}
    assert plain != mixed and all(torch.allclose(one[name], other[name], atol=0.05) for name in one)
    assert precision.has_bfloat16(CPU) and not precision.has_bfloat16(torch.device("meta"))
    monkeypatch.setattr("client_sdk.precision.has_bfloat16", lambda device: False)
    assert updates(service, take_part, tmp_path, mixed_precision=True, progress="bar") == plain
    assert "cpu does not compute in bfloat16; it trains in full precision" in capsys.readouterr().err


# What is measured


def test_data_that_are_held_out_are_measured_before_and_after_and_stay_here(
    service: FakeService, take_part: Run, blobs: Any
) -> None:
    x, y = blobs
    report = take_part((x[:30], y[:30]), evaluate_on=(x[30:], y[30:]))
    first, second = report.rounds
    assert set(first.before) == {"accuracy", "macro_f1", "loss"}
    assert second.before == first.after, "this device alone makes the next model"
    assert first.before["loss"] > first.after["loss"] > second.after["loss"]
    assert json.loads(parse_header(service.updates[0], len(service.updates[0])).metadata["metrics"]).keys() == {
        "loss",
        "accuracy",
        "steps",
    }


def test_measuring_changes_no_update(service: FakeService, take_part: Run, blobs: Any, tmp_path: Path) -> None:
    assert updates(service, take_part, tmp_path, evaluate_on=blobs) == updates(service, take_part, tmp_path)


def test_held_out_data_that_do_not_fit_are_refused_by_name(service: FakeService, take_part: Run, blobs: Any) -> None:
    x, y = blobs
    for wrong in ((x[:, :1], y), (x, y + 1), (x[:0], y[:0])):
        with pytest.raises(errors.DatasetError, match="^evaluate_on: "):
            take_part(evaluate_on=wrong)
    assert service.sent("POST", ".*/clients") == []


def test_measuring_by_hand() -> None:
    module = nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.copy_(torch.eye(2))
        module.bias.zero_()
    samples = intake.take((np.array([[2, 0], [0, 2], [2, 0]], "float32"), np.array([0, 1, 1])))
    samples.check(TOY)
    module.train()
    found = measuring.measure(module, samples, CPU, batch_size=2)
    wrong = functional.cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([1])).item()
    right = functional.cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).item()
    assert found["accuracy"] == pytest.approx(2 / 3) and found["loss"] == pytest.approx((2 * right + wrong) / 3)
    assert module.training
