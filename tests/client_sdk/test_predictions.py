"""DS-FL on the device: its own model goes on, targets are imitated, predictions are sent instead of weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from client_sdk import data
from client_sdk.errors import UnexpectedAnswer
from client_sdk.methods.predictions import OWN
from client_sdk.training import LocalResult, train_local
from contract import updates
from contract.local import DsFlObjective, LocalPlan, Privacy, Sgd, SgdObjective
from contract.nn import codec
from contract.tensors import TensorFile, parse_header
from contract.wire.federations import Task

TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})
LR, EPOCHS, IMITATIONS = 0.3, 2, 3
RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(6, 2)).astype("float32"), np.array([0, 1, 1, 0, 1, 0])
PUBLIC = torch.from_numpy(RNG.normal(size=(5, 2)).astype("float32"))
TARGETS = torch.softmax(torch.from_numpy(RNG.normal(size=(5, 2)).astype("float32")) / 0.1, dim=1)
PLAN = LocalPlan(
    objective=DsFlObjective(imitation_epochs=IMITATIONS),
    optimizer=Sgd(lr=LR),
    epochs=EPOCHS,
    batch_size=8,
)


def network(seed: int = 1) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))


def descend(module: nn.Module, steps: int, loss: Callable[[], Tensor]) -> None:
    for _ in range(steps):
        gradients = torch.autograd.grad(loss(), list(module.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                parameter.sub_(LR * gradient)


def imitate(module: nn.Module) -> None:
    descend(module, IMITATIONS, lambda: -(TARGETS * torch.log_softmax(module(PUBLIC), 1)).sum(1).mean())


def learn(module: nn.Module) -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    descend(module, EPOCHS, lambda: functional.cross_entropy(module(x), y))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    for name, content in {"public": {"inputs": PUBLIC}, "targets": {"targets": TARGETS}}.items():
        codec.save_state(content, tmp_path / f"{name}.safetensors")
    return {name: tmp_path / f"{name}.safetensors" for name in ("public", "targets")}


def train(extras: dict[str, Path], plan: LocalPlan = PLAN, **options: Any) -> LocalResult:
    samples = data.load((X, Y))
    samples.check(TASK)
    return train_local(network(), samples, plan, seed=0, device=torch.device("cpu"), extras=extras, **options)


def own(module: nn.Module) -> dict[str, Tensor]:
    return {OWN + name: value.clone() for name, value in module.state_dict().items()}


def check(result: LocalResult, module: nn.Module) -> None:
    """Full batches, so orders do not matter: the result is that of the steps written out above."""
    assert list(result.tensors) == ["predictions"]
    with torch.no_grad():
        expected = torch.softmax(module(PUBLIC), 1).numpy()
    assert result.tensors["predictions"].dtype == torch.float32
    assert result.tensors["predictions"].numpy() == pytest.approx(expected, abs=1e-5)
    assert {name: value.shape for name, value in result.memory.items()} == {
        name: value.shape for name, value in own(module).items()
    }
    for name, value in own(module).items():
        assert result.memory[name].numpy() == pytest.approx(value.numpy(), abs=1e-5)


def test_the_first_round_trains_the_model_as_sent_and_predicts(files: dict[str, Path]) -> None:
    expected = network()
    learn(expected)
    result = train({"public": files["public"]})
    check(result, expected)
    assert result.loss == train({}, PLAN.model_copy(update={"objective": SgdObjective()})).loss


def test_a_later_round_imitates_from_its_own_model_then_learns_then_predicts(files: dict[str, Path]) -> None:
    expected = network(2)
    memory = own(expected)
    imitate(expected)
    learn(expected)
    check(train(files, memory=memory, first=False), expected)


@pytest.mark.parametrize("memory", [{}, {OWN + "0.weight": torch.zeros(9, 9)}], ids=["lost", "of another network"])
def test_a_device_without_its_model_starts_from_the_one_sent(files: dict[str, Path], memory: Any) -> None:
    expected = network()
    imitate(expected)
    learn(expected)
    check(train(files, memory=memory, first=False), expected)


def test_running_statistics_and_the_last_small_batch_go_well(files: dict[str, Path]) -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    samples = data.load((X, Y))
    samples.check(TASK)
    plan = PLAN.model_copy(update={"batch_size": 4, "clip_norm": 0.5})
    result = train_local(module, samples, plan, seed=0, device=torch.device("cpu"), extras=files)
    assert result.tensors["predictions"].sum(1).numpy() == pytest.approx(np.ones(5))
    assert int(result.memory[OWN + "1.num_batches_tracked"]) == IMITATIONS * 1 + EPOCHS * 2


def test_predictions_go_with_differential_privacy(files: dict[str, Path]) -> None:
    pytest.importorskip("opacus", reason="the extra 'privacy' is not installed")
    result = train(files, PLAN.model_copy(update={"privacy": Privacy()}))
    assert result.spent is not None
    assert list(result.tensors) == ["predictions"]
    assert set(result.memory) == set(own(network()))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("public", {"inputs": torch.zeros(5, 3)}, r"extras\.public.*\[5, 3\].*\[P, 2\]"),
        ("targets", {"targets": torch.zeros(5, 3)}, r"extras\.targets.*\[5, 3\].*\[P, 2\]"),
        ("targets", {"targets": torch.zeros(4, 2)}, r"extras\.targets: 4 targets for 5 public samples"),
    ],
)
def test_extras_that_do_not_fit_are_refused(files: dict[str, Path], name: str, content: Any, said: str) -> None:
    codec.save_state(content, files[name])
    with pytest.raises(UnexpectedAnswer, match=said):
        train(files)


def test_without_a_public_set_nothing_is_trained(files: dict[str, Path]) -> None:
    with pytest.raises(UnexpectedAnswer, match=r"extras\.public.*did not come"):
        train({"targets": files["targets"]})


# ------------------------------------------------------------------------------------------------------- whole device
@pytest.fixture
def ds_fl(service: Any, files: dict[str, Path]) -> Any:
    service.plan |= {"objective": {"kind": "ds_fl", "imitation_epochs": 2}}
    service.models |= {f"mdl_{name}": path.read_bytes() for name, path in files.items()}
    service.extras = {"public": "mdl_public"}
    return service


def test_weights_travel_once_and_the_public_set_too(ds_fl: Any, take_part: Any, tmp_path: Path) -> None:
    take_part(rounds=1)
    ds_fl.add_model("mdl_next", "mlp", {"hidden": [5]})  # of another shape: nobody may read it
    ds_fl.current = "mdl_next"
    ds_fl.extras = {"public": "mdl_public", "targets": "mdl_targets"}
    take_part(rounds=1)
    fetched = [request.url.path.split("/")[3] for request in ds_fl.sent("GET", ".*/weights")]
    assert sorted(fetched) == ["mdl_0", "mdl_public", "mdl_targets"]
    for body in ds_fl.updates:
        header = parse_header(body, len(body))
        assert {name: info.shape for name, info in header.tensors.items()} == {"predictions": (5, 2)}
        assert header.metadata["potstill.buffers"] == "[]"
        (tmp_path / "sent").write_bytes(body)
        with TensorFile(tmp_path / "sent") as file:
            updates.check_predictions(file)
    assert ds_fl.updates[0] != ds_fl.updates[1]
    assert parse_header(ds_fl.updates[1], len(ds_fl.updates[1])).metadata["base_model"] == "mdl_next"


def test_the_same_device_sends_the_same_bytes(ds_fl: Any, take_part: Any, tmp_path: Path) -> None:
    ds_fl.extras |= {"targets": "mdl_targets"}
    take_part()
    first, ds_fl.updates, ds_fl.round = ds_fl.updates, [], 1
    torch.manual_seed(99)
    take_part(state_dir=tmp_path / "other")
    assert ds_fl.updates == first and len(first) == 2
