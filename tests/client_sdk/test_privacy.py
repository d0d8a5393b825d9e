"""DP-SGD: clipping and noise by hand, the account, what leaves the device."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch import nn

from client_sdk import data, errors, privacy
from client_sdk.training import LocalResult, train_local
from contract.architectures import CATALOGUE
from contract.local import BinaryPrecision, FedGkdObjective, FedProxObjective, LocalPlan, MoonObjective, Privacy, Sgd
from contract.nn import registry
from contract.tensors import parse_header
from contract.wire.federations import Task

pytest.importorskip("opacus", reason="the extra 'privacy' is not installed")

CPU = torch.device("cpu")
TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})
Run = Callable[..., Any]


def samples(x: Any, y: Any) -> data.Samples:
    taken = data.load((x, y))
    taken.check(TASK)
    return taken


def zeros() -> nn.Linear:
    module = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(module.weight)
    return module


def train(
    module: nn.Module, taken: data.Samples, *, noise: float = 1e-6, norm: float = 1.0, **options: Any
) -> LocalResult:
    plan = {"optimizer": Sgd(lr=1.0), "batch_size": 8, "privacy": Privacy(noise_multiplier=noise, max_grad_norm=norm)}
    return train_local(module, taken, LocalPlan.model_validate(plan | options), seed=0, device=CPU)


def test_each_samples_gradient_is_clipped_and_the_mean_of_them_taken() -> None:
    """Logits 0: the gradient of W for (x, label 1) is ((1, -1) / 2) x^T, of norm |x| / sqrt 2.

    x = (3, 4) has norm 5 / sqrt 2 and is scaled by sqrt 2 / 5 to norm 1; x = (0.1, 0) has norm 0.07 and stays.
    """
    module = zeros()
    train(module, samples(np.array([[3.0, 4.0], [0.1, 0.0]]), [1, 1]), batch_size=2)
    rows = np.array([3.0, 4.0]) / 2 * np.sqrt(2) / 5 + np.array([0.1, 0.0]) / 2
    assert module.weight.detach().numpy() == pytest.approx(np.stack([-rows, rows]) / 2, abs=1e-4)


def test_noise_has_the_stated_size_and_comes_from_no_seed() -> None:
    """sigma * C / B = 2 * 0.5 / 1: the deviation of a step of rate 1 with a gradient of (nearly) 0."""
    taken = data.load((np.zeros((1, 2)), [0]))
    taken.check(TASK)
    drawn = []
    for _ in range(60):
        module = zeros()
        train(module, taken, noise=2.0, norm=0.5, batch_size=1)
        drawn.append(module.weight.detach().numpy().ravel())
    assert np.std(drawn) == pytest.approx(1.0, rel=0.25)
    assert len({one.tobytes() for one in drawn}) == 60


def test_batches_are_drawn_sample_by_sample_and_may_be_empty() -> None:
    taken = samples(np.ones((3, 2)), [0, 1, 0])
    result = train(zeros(), taken, batch_size=1, epochs=20)
    assert result.steps == 60 and result.spent == privacy.Spent(noise_multiplier=1e-6, sample_rate=1 / 3, steps=60)
    module = zeros()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    steps = privacy.PrivateSteps(LocalPlan(batch_size=1, privacy=Privacy()), module, optimizer, taken, CPU)
    sizes = [len(labels) for _ in range(40) for _, labels in steps.batches()]
    steps.close()
    assert set(sizes) >= {0, 1, 2} and np.mean(sizes) == pytest.approx(1.0, abs=0.35)


def test_the_proximal_term_is_neither_clipped_nor_lost() -> None:
    """x = (3, 4): every clipped gradient g has norm 1 and one direction. With lr = 0.05 and mu = 10, w_1 = -0.05 g and
    w_2 = w_1 - 0.05 (g + 10 w_1) = -0.075 g; without the term, -0.1 g.
    """
    taken = samples(np.array([[3.0, 4.0], [3.0, 4.0]]), [1, 1])
    norms = []
    for objective in (FedProxObjective(mu=10.0), FedProxObjective(mu=0.0)):
        module = zeros()
        train(module, taken, batch_size=2, epochs=2, objective=objective, optimizer=Sgd(lr=0.05))
        norms.append(float(module.weight.detach().norm()))
    assert norms == pytest.approx([0.075, 0.1], abs=1e-5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.middle, self.head = nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.middle(torch.tanh(self.body(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.features(x))
        return logits


@pytest.mark.parametrize(
    "options", [{}, {"objective": MoonObjective()}, {"objective": FedGkdObjective()}, {"precision": BinaryPrecision()}]
)
def test_other_parts_of_a_plan_go_together_with_it_and_the_module_is_itself_again(options: Any, blobs: Any) -> None:
    module = Net()
    result = train(module, samples(*blobs), noise=0.5, epochs=15, **options)
    assert result.accuracy is not None and result.accuracy > 0.9
    assert not any(hasattr(parameter, "grad_sample") for parameter in module.parameters())
    module(torch.zeros(1, 2)).sum().backward()  # no hook of Opacus is left to complain


def test_devices_in_threads_of_one_process_do_not_disturb_each_other(blobs: Any) -> None:
    done: list[LocalResult] = []

    def device() -> None:
        done.append(train(Net(), samples(*blobs), noise=0.5, epochs=10))

    threads = [threading.Thread(target=device) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.steps for result in done] == [50, 50, 50]


def test_batch_norm_is_refused_with_the_remedy_before_training() -> None:
    module = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    before = module.get_parameter("0.weight").detach().clone()
    with pytest.raises(errors.ModelMismatch, match="layer '1' is BatchNorm.*GroupNorm"):
        train(module, samples(np.ones((3, 2)), [0, 1, 0]))
    assert torch.equal(module.get_parameter("0.weight"), before)
    train(nn.Sequential(nn.Linear(2, 4), nn.GroupNorm(2, 4), nn.Linear(4, 2)), samples(np.ones((3, 2)), [0, 1, 0]))


def test_without_opacus_the_error_names_the_package(
    take_part: Run, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    service.plan["privacy"] = {}
    with pytest.raises(errors.UsageError, match=r"needs Opacus; pip install '.\[client,privacy\]' in the clone"):
        take_part()


def test_epsilon_grows_with_steps_and_falls_with_noise() -> None:
    one = privacy.Spent(noise_multiplier=1.0, sample_rate=0.1, steps=100)
    more = privacy.Spent(noise_multiplier=2.0, sample_rate=0.1, steps=100)
    assert 0 < privacy.epsilon([more], 1e-5) < privacy.epsilon([one], 1e-5) < privacy.epsilon([one, one], 1e-5)
    assert privacy.epsilon([one, one], 1e-5) == pytest.approx(
        privacy.epsilon([one.model_copy(update={"steps": 200})], 1e-5)
    )
    assert privacy.epsilon([one], 1e-3) < privacy.epsilon([one], 1e-5) and privacy.epsilon([], 1e-5) == 0.0


def test_the_report_and_the_update_tell_epsilon_and_the_update_no_loss(take_part: Run, service: Any) -> None:
    service.plan["privacy"] = {"noise_multiplier": 1.5}
    report = take_part()
    first, second = (round_.epsilon for round_ in report.rounds)
    assert 0 < first < second == report.epsilon
    metrics = [json.loads(parse_header(update, len(update)).metadata["metrics"]) for update in service.updates]
    assert metrics == [{"steps": 10, "epsilon": first}, {"steps": 10, "epsilon": second}]


def test_an_update_that_is_sent_again_costs_nothing_and_one_that_is_trained_again_does(
    take_part: Run, service: Any, tmp_path: Path
) -> None:
    def crash(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    service.plan["privacy"] = {}
    service.fault("PUT", ".*/update", crash)
    with pytest.raises(KeyboardInterrupt):
        take_part()
    sent_again = take_part(rounds=1).epsilon
    spent = json.loads((tmp_path / "device" / "privacy.json").read_text())["spent"]
    assert len(spent) == 1 and sent_again == privacy.epsilon([privacy.Spent(**spent[0])], 1e-5)
    service.round, service.updates = 1, []
    service.current = "mdl_0"
    assert take_part(rounds=1).epsilon > sent_again


NETWORKS = [
    (entry.name, {"norm": norm} if norm else {})
    for entry in CATALOGUE.values()
    if entry.role == "classifier" and entry.server_side
    for norm in entry.options.model_json_schema()["properties"].get("norm", {}).get("enum", [""])
]


@pytest.mark.parametrize(("name", "options"), NETWORKS)
def test_the_service_refuses_the_networks_that_a_device_would(name: str, options: dict[str, Any]) -> None:
    """The catalogue, which knows no torch, and Opacus' own look at the network agree."""
    reads = {"tokens": ([8], "int64")}.get(CATALOGUE[name].reads, ([3, 32, 32], "float32"))
    task = Task.model_validate({"num_classes": 2, "input": {"shape": reads[0], "dtype": reads[1]}})
    module = registry.build(name, options, task=task)
    try:
        privacy._check_module(privacy._opacus(), module)
    except errors.ModelMismatch:
        with pytest.raises(ValueError, match="local.privacy"):
            CATALOGUE[name].check_private(options)
    else:
        CATALOGUE[name].check_private(options)
