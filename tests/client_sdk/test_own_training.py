"""Training that its user has written: what a function gets, what becomes of what it gives, and of what it does not."""

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from client_sdk import LocalOutcome, LocalTask, errors, own_training, watched
from contract.tensors import parse_header

from .conftest import FakeService, problem

Run = Callable[..., Any]


def by_hand(task: LocalTask) -> LocalOutcome:
    """Train as the plan says, in the order of the samples."""
    x, y = (torch.as_tensor(part) for part in task.dataset)
    optimizer, loss, right = task.optimizer(), torch.zeros(()), 0
    of = task.plan.epochs * -(-len(y) // task.plan.batch_size)
    for _ in range(task.plan.epochs):
        right = 0
        for rows in torch.arange(len(y)).split(task.plan.batch_size):
            inputs, labels = x[rows].to(task.device), y[rows].to(task.device)
            logits = task.module(inputs)
            loss = task.loss(inputs, labels, logits)
            optimizer.zero_grad()
            (loss + task.penalty()).backward()
            optimizer.step()
            right += int((logits.argmax(1) == labels).sum())
            task.report(step=task.steps, of=of, loss=float(loss.detach()))
    return LocalOutcome(len(y), float(loss.detach()), {"accuracy": right / len(y), "seen": len(y)})


def metadata(update: bytes) -> dict[str, str]:
    return parse_header(update, len(update)).metadata


def metrics(update: bytes) -> set[str]:
    return set(json.loads(metadata(update)["metrics"]))


def test_a_function_trains_the_rounds_and_the_rest_stays_ours(service: FakeService, take_part: Run) -> None:
    tasks: list[LocalTask] = []

    def train(task: LocalTask) -> LocalOutcome:
        tasks.append(task)
        kept = task.folder / "rounds"
        kept.write_text((kept.read_text() if kept.exists() else "") + f"{task.round}\n")
        assert task.module.training and not task.should_stop
        assert (task.plan.batch_size, task.task.num_classes, task.device.type) == (8, 2, "cpu")
        return by_hand(task)

    report = take_part(train=train)
    assert (report.state, report.rounds_trained, report.num_samples) == ("finished", 2, 40)
    assert report.losses[1] < report.losses[0]
    assert [each.steps for each in report.rounds] == [10, 10]
    assert report.rounds[0].metrics == {"seen": 40.0} and report.rounds[1].accuracy == 1.0
    assert metrics(service.updates[0]) == {"loss", "accuracy", "steps"}
    assert (tasks[0].folder / "rounds").read_text() == "1\n2\n"
    assert tasks[0].seed != tasks[1].seed


def test_the_same_seed_gives_the_same_bytes_and_generators_are_given_back(
    service: FakeService, take_part: Run, tmp_path: Path
) -> None:
    def noisy(task: LocalTask) -> LocalOutcome:
        with torch.no_grad():
            for parameter in task.module.parameters():
                parameter.add_(torch.randn_like(parameter) * random.random() * float(np.random.rand()))
        return LocalOutcome(40, 1.0)

    drawn: list[bytes] = []
    for folder in ("one", "two"):
        service.round, service.current = 1, "mdl_0"
        torch.manual_seed(len(folder) + len(drawn))
        before = torch.get_rng_state()
        assert take_part(rounds=1, train=noisy, state_dir=tmp_path / folder).rounds[0].accuracy is None
        assert torch.equal(torch.get_rng_state(), before)
        drawn.append(service.updates.pop())
    assert drawn[0] == drawn[1]
    assert metrics(drawn[0]) == {"loss", "steps"}


def test_a_data_set_is_handed_on_as_it_is_and_counted_or_declared(service: FakeService, take_part: Run) -> None:
    class Streamed:
        """No length, no items: nothing that our loop could read."""

    got: list[Any] = []

    def train(task: LocalTask) -> LocalOutcome:
        got.append(task.dataset)
        return LocalOutcome(17, 0.5)

    given = Streamed()
    with pytest.raises(errors.UsageError, match="num_samples: a Streamed has no length; pass num_samples="):
        take_part(given, train=train)
    with pytest.raises(errors.DatasetError, match="has 0 samples"):
        take_part([], train=train)
    with pytest.raises(errors.DatasetError, match="num_samples: the data set has a length, which counts"):
        take_part(num_samples=3)
    assert service.requests == []
    report = take_part(given, train=train, num_samples=20, rounds=1)
    assert got == [given]
    assert (report.num_samples, report.rounds[0].num_samples) == (20, 17)
    assert metadata(service.updates[0])["num_samples"] == "17"


# What the server's method needs


@pytest.mark.parametrize(
    "objective, calls, missing",
    [
        ({"kind": "fedprox"}, {"penalty"}, "'fedprox' was left out: add task.penalty"),
        ({"kind": "scaffold"}, {"penalty", "optimizer"}, "'scaffold' was left out: .*task.optimizer.*task.penalty"),
        ({"kind": "fedgkd"}, {"loss"}, "'fedgkd' was left out: take task.loss"),
    ],
    ids=["fedprox", "scaffold", "fedgkd"],
)
def test_what_an_objective_adds_to_every_step_is_asked_for(
    service: FakeService, take_part: Run, objective: dict[str, Any], calls: set[str], missing: str
) -> None:
    service.plan |= {"objective": objective}

    def without(task: LocalTask) -> LocalOutcome:
        return LocalOutcome(40, 1.0)

    with pytest.raises(errors.TrainingError, match=missing):
        take_part(train=without, rounds=1)
    assert service.updates == []
    asked: list[set[str]] = []

    def train(task: LocalTask) -> LocalOutcome:
        outcome = by_hand(task)
        asked.append(task.asked)
        return outcome

    assert take_part(train=train, rounds=1).rounds_trained == 1
    assert calls <= asked[0]


def test_a_function_that_does_what_our_loop_does_sends_what_it_sends(
    service: FakeService, take_part: Run, tmp_path: Path, blobs: Any
) -> None:
    """SCAFFOLD over two rounds, with one batch an epoch, where an order of samples changes nothing but rounding."""
    service.plan |= {"objective": {"kind": "scaffold"}, "batch_size": 40}
    sent = {}
    for name, train in (("ours", None), ("theirs", by_hand)):
        service.round, service.current = 1, "mdl_0"
        take_part(state_dir=tmp_path / name, train=train)
        sent[name] = [service.updates.pop() for _ in range(2)]
    from safetensors.torch import load

    for ours, theirs in zip(sent["ours"], sent["theirs"], strict=True):
        one, two = load(ours), load(theirs)
        assert one.keys() == two.keys() and any(name.startswith("control.") for name in one)
        assert all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)


@pytest.mark.parametrize(
    "plan, said",
    [
        ({"privacy": {"noise_multiplier": 1.0}}, "asks for local.privacy: DP-SGD"),
        ({"precision": {"kind": "binary"}}, "asks for local.precision"),
        ({"objective": {"kind": "moon"}}, "objective 'moon' has the device read the data set itself"),
        (
            {"objective": {"kind": "scaffold", "option": 1}},
            "objective 'scaffold' has the device read the data set itself",
        ),
    ],
    ids=["privacy", "precision", "moon", "scaffold"],
)
def test_what_a_function_cannot_keep_is_refused_by_name_before_the_device_joins(
    service: FakeService, take_part: Run, plan: dict[str, Any], said: str
) -> None:
    service.plan |= plan
    with pytest.raises(errors.UsageError, match=said):
        take_part(["words"], train=by_hand)
    assert service.sent("POST", ".*/clients") == []


def test_what_has_arguments_of_another_kind_is_refused(service: FakeService, take_part: Run) -> None:
    with pytest.raises(errors.UsageError, match="train: a str cannot be called"):
        take_part(train="fit")


# What a function gives that cannot be used


def doubled(task: LocalTask) -> LocalOutcome:
    task.module.double()
    return LocalOutcome(1, 0.0)


def grown(task: LocalTask) -> LocalOutcome:
    task.module.extra = nn.Linear(1, 1)
    return LocalOutcome(1, 0.0)


def blown(task: LocalTask) -> LocalOutcome:
    with torch.no_grad():
        next(task.module.parameters()).fill_(float("nan"))
    return LocalOutcome(1, 0.0)


def broken(task: LocalTask) -> LocalOutcome:
    raise RuntimeError("CUDA error: device-side assert")


@pytest.mark.parametrize(
    "train, said",
    [
        (broken, "broken failed in round 1: RuntimeError: CUDA error"),
        (lambda task: None, "returned None; return LocalOutcome"),
        (lambda task: {"loss": 1}, "returned a dict; return LocalOutcome"),
        (lambda task: LocalOutcome(0, 1.0), "num_samples is 0"),
        (lambda task: LocalOutcome(1.5, 1.0), "num_samples is 1.5"),  # type: ignore[arg-type]
        (lambda task: LocalOutcome(1, float("nan")), "loss is nan"),
        (lambda task: LocalOutcome(1, "low"), "loss is 'low'"),  # type: ignore[arg-type]
        (lambda task: LocalOutcome(1, 0.0, {"f1": float("inf")}), "f1 is inf"),
        (lambda task: LocalOutcome(1, 0.0, {"accuracy": 88.0}), "accuracy.* is 88"),
        (lambda task: LocalOutcome(1, 0.0, ["f1"]), "metrics is a list"),  # type: ignore[arg-type]
        (lambda task: LocalOutcome(1, 0.0, steps=-1), "steps is -1"),
        (doubled, "module has other tensors than before: .*is F64"),
        (grown, "module has other tensors than before: .*extra"),
        (blown, "tensor '.*weight' has a value that is NaN"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_what_cannot_be_used_is_refused_and_the_next_start_goes_on(
    service: FakeService, take_part: Run, train: Any, said: str
) -> None:
    with pytest.raises(errors.TrainingError, match=said):
        take_part(train=train)
    assert service.updates == []
    assert take_part(train=by_hand, rounds=1).rounds_trained == 1
    assert len(service.sent("POST", ".*/clients")) == 1


def test_what_is_frozen_stays_as_it_was_sent(service: FakeService, take_part: Run) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    module[1].requires_grad_(False)

    def thaw(task: LocalTask) -> LocalOutcome:
        with torch.no_grad():
            task.module.get_parameter("1.bias").add_(1)
        return LocalOutcome(1, 0.0)

    with pytest.raises(errors.TrainingError, match="parameter '1.bias' is frozen in this round and was changed"):
        take_part(train=thaw, model=module)
    assert take_part(train=by_hand, model=module, rounds=1).rounds_trained == 1


# A round that ends, a run that is stopped


def closing(service: FakeService) -> None:
    """Let the round close at the second heartbeat."""
    service.heartbeat_seconds = 0

    def close(request: httpx.Request) -> httpx.Response:
        service.round = 2
        return problem("round-closed", "round 1 has its updates")

    service.fault("POST", ".*/heartbeat", close)


def test_a_round_that_closes_tells_the_function_and_the_device_goes_on(service: FakeService, take_part: Run) -> None:
    closing(service)

    def train(task: LocalTask) -> LocalOutcome:
        while task.round == 1 and not task.should_stop:
            time.sleep(0.02)
        return by_hand(task)

    report = take_part(train=train)
    assert [(each.index, each.uploaded) for each in report.rounds] == [(1, False), (2, True)]
    assert report.state == "finished"


def test_a_function_that_does_not_come_back_ends_the_run_and_no_other_begins_beside_it(
    service: FakeService, take_part: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_training, "GRACE", 0.1)
    closing(service)
    free = threading.Event()

    def train(task: LocalTask) -> LocalOutcome:
        free.wait(60)
        return LocalOutcome(1, 0.0)

    try:
        with pytest.raises(
            errors.TrainingError, match=r"not come back 0.1 s .*round 1 has its updates.*'potstill-train-1'"
        ):
            take_part(train=train)
        with pytest.raises(errors.UsageError, match="earlier run still computes .*'potstill-train-1'"):
            take_part()
    finally:
        free.set()
    for thread in watched._left:
        thread.join(10)
    assert take_part().state == "finished"


def test_a_deadline_that_passes_while_the_service_is_away_counts_by_its_clock(
    service: FakeService, take_part: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.heartbeat_seconds = None
    stopped: list[bool] = []
    answer = service._assignment

    def late(request: httpx.Request) -> httpx.Response:
        found = answer(request)
        found.headers["Date"] = "Thu, 01 Jan 2026 00:02:00 GMT"  # two minutes after the round's deadline
        return found

    monkeypatch.setattr(service, "_assignment", late)

    def train(task: LocalTask) -> LocalOutcome:
        ends = time.monotonic() + 10
        while not task.should_stop and time.monotonic() < ends:
            time.sleep(0.02)
        stopped.append(task.should_stop)
        return by_hand(task)

    take_part(train=train, rounds=1)
    assert stopped == [True]


@pytest.mark.parametrize("own", [True, False], ids=["function", "our loop"])
def test_a_stop_ends_the_run_at_once_and_the_next_start_trains_the_round(
    service: FakeService, take_part: Run, own: bool
) -> None:
    stop = threading.Event()
    service.plan |= {"epochs": 10_000}
    threading.Timer(0.3, stop.set).start()

    def train(task: LocalTask) -> LocalOutcome:
        while not task.should_stop:
            time.sleep(0.02)
        return LocalOutcome(40, 0.0)

    report = take_part(stop=stop, train=train if own else None)
    assert (report.state, report.rounds, service.updates) == ("running", [], [])
    service.plan |= {"epochs": 1}
    assert take_part(rounds=1).rounds_trained == 1


def test_ctrl_c_reaches_the_function_before_it_ends_the_run(
    service: FakeService, take_part: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    def train(task: LocalTask) -> LocalOutcome:
        while not task.should_stop:
            time.sleep(0.02)
        ended.append("saved")
        return LocalOutcome(40, 0.0)

    def pressed(self: Any) -> None:
        self._done.wait(0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(watched.Watched, "_wait", pressed)
    with pytest.raises(KeyboardInterrupt):
        take_part(train=train)
    assert ended == ["saved"] and service.updates == []


def test_heartbeats_tell_what_the_function_reports(service: FakeService, take_part: Run) -> None:
    service.heartbeat_seconds = 0

    def train(task: LocalTask) -> LocalOutcome:
        task.report(loss=1.0)
        task.report(step=3, of=2, loss=1.0)
        ends = time.monotonic() + 10
        while time.monotonic() < ends and not any(beat.get("of") for beat in service.beats):
            time.sleep(0.02)
        return LocalOutcome(40, functional.cross_entropy(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long)).item())

    take_part(train=train, rounds=1)
    beat = next(beat for beat in service.beats if beat.get("of"))
    assert (beat["step"], beat["of"], beat["passes"]) == (2, 2, 2) and beat["pass_seconds"] >= 0
