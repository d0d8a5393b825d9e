"""Devices that measure the model that they were sent on samples that they hold back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk import data, evaluation, named
from client_sdk.measuring import measure
from contract.evaluation import Evaluation, held_back
from contract.nn import codec, registry
from contract.seeds import derive_seed
from contract.wire.federations import Task
from potstill.simulate.engine import Simulation

from .small import NAMES, SHAPE, body, config, samples

TASK = Task.model_validate({"num_classes": 3, "input": {"shape": SHAPE}})
ROUNDS = {"total": 3, "clients_per_round": 4, "min_updates": 4, "evaluate": {"share": 0.25, "every": 2}}


def run(folder: Path, **more: Any) -> Any:
    return Simulation(config(folder, body_=body(rounds=ROUNDS, **more), keep_models=True)).run()


def test_figures_are_of_the_model_as_it_was_sent_on_samples_nobody_trains_on(tmp_path: Path) -> None:
    history = run(tmp_path)
    first, second, third = history.rounds
    assert "evaluation" not in second.metrics and {"evaluation"} <= first.metrics.keys() & third.metrics.keys()
    module = registry.build("mlp", {"hidden": [5]}, task=TASK)
    codec.load_state(module, second.models["main"])
    for number, name in enumerate(NAMES):
        whole = data.load(samples(number, 12 + number))
        whole.check(TASK)
        kept, held = evaluation.split(whole, 0.25, derive_seed(5, "client", name))
        assert held is not None
        part = next(part for part in third.participants if part.client == name)
        assert part.num_samples == len(kept) == len(whole) - held_back(len(whole), 0.25)
        told = measure(module, held, torch.device("cpu"), batch_size=8)
        assert part.evaluation == Evaluation(num_samples=len(held), loss=told.pop("loss"), metrics=told)
        assert isinstance(held.inputs, torch.Tensor) and isinstance(kept.inputs, torch.Tensor)
        rows = {tuple(row) for row in kept.inputs.tolist()}
        assert not rows & {tuple(row) for row in held.inputs.tolist()}


def test_measured_by_hand() -> None:
    """Of a network that gives its input back, with labels of which the last is wrong; the loss is the mean of four."""
    inputs = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]
    whole = data.load((inputs, np.array([0, 1, 2, 1])))
    whole.check(Task.model_validate({"num_classes": 3, "input": {"shape": [3]}}))
    network = torch.nn.Identity().train()
    found = measure(network, whole, torch.device("cpu"), batch_size=3)
    assert network.training
    right, wrong = np.log(np.e + 2) - 1, np.log(np.e + 2)
    assert found["loss"] == pytest.approx((3 * right + wrong) / 4)
    assert found["accuracy"] == 0.75


def test_a_device_with_one_sample_trains_on_it_and_tells_nothing() -> None:
    whole = data.load(samples(1, 1))
    kept, held = evaluation.split(whole, 0.5, 3)
    assert held is None and kept is whole


def test_samples_that_are_read_one_by_one_are_split_alike() -> None:
    x, y = samples(1, 20)

    class Items:
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, row: int) -> Any:
            return x[row], y[row]

    found = []
    for given in ((x, y), Items()):
        _, held = evaluation.split(data.load(given), 0.3, 7)
        assert held is not None
        held.check(TASK)
        found.append(next(held.read([torch.arange(len(held))], torch.device("cpu"))))
    a, b = found
    assert torch.equal(named.one(a[0], "a test"), named.one(b[0], "a test")) and torch.equal(a[1], b[1])


def test_it_repeats_itself(tmp_path: Path) -> None:
    one, two = run(tmp_path / "a"), run(tmp_path / "b")
    assert one.rounds[-1].digests == two.rounds[-1].digests
    assert one.rounds[-1].metrics["evaluation"] == two.rounds[-1].metrics["evaluation"]
