"""B: conventions of state dicts. Prefixes, partial matches, counters, buffers, variances."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contract.nn.codec import save_state, unwrap
from contract.tensors import TensorFile
from tests.cases.conftest import NETWORK, Invite, Party
from tests.cases.test_a_container import send
from tools.deployment import ROOT, wait_for


@pytest.fixture
def fed(party: Invite) -> Party:
    return party("a", "b")


def published(fed: Party, index: int) -> None:
    wait_for(lambda: fed.round(index).state == "published", why=f"round {index} is not published")


def test_b01_wrappers_prefixes(fed: Party, tmp_path: Path) -> None:
    """A prefix is named with its remedy; the SDK takes wrappers off before it writes."""
    for name, prefix in (("prefix_of_data_parallel", "module."), ("prefix_of_compile", "_orig_mod.")):
        answer = send(fed, name)
        assert answer.status == 422
        assert prefix in answer.problem["detail"] and "strip" in answer.problem["detail"]
    module = torch.nn.Linear(2, 3)
    compiled: Any = torch.compile(module, backend="eager")  # torch says it is a function
    for wrapped in (torch.nn.DataParallel(module), compiled):
        save_state(unwrap(wrapped), tmp_path / "unwrapped.safetensors")
        with TensorFile(tmp_path / "unwrapped.safetensors") as file:
            assert sorted(file.names) == ["bias", "weight"]


def test_b03_partial_matches(fed: Party) -> None:
    """Missing, unknown and mis-shaped tensors are listed with counts, and nothing in the product loads loosely."""
    missing = {name: array for name, array in NETWORK.items() if name not in ("fc.bias", "bn.running_mean")}
    answer = fed.push("a", missing | {"head.extra": np.zeros(4, np.float32), "fc.weight": np.zeros(80, np.float32)})
    assert answer.status == 422
    assert sorted(answer.problem["missing"]) == ["bn.running_mean", "fc.bias"]
    assert (answer.problem["unknown"], answer.problem["mismatched"]) == (["head.extra"], ["fc.weight"])
    assert answer.problem["counts"] == {"missing": 2, "unknown": 1, "mismatched": 1}
    many = {f"layer{number}.weight": np.zeros(1, np.float32) for number in range(60)}
    answer = fed.push("a", NETWORK | many)
    assert (len(answer.problem["unknown"]), answer.problem["counts"]["unknown"]) == (20, 60)
    found = subprocess.run(
        [*r"grep -rnE strict\s*=\s*False --include=*.py contract service worker client_sdk potstill".split()],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    loose = [line for line in found.stdout.splitlines() if "load" in line]
    assert not loose, loose


@pytest.mark.parametrize("count", [1, 2, 50])
def test_b05_counters_stay_counters(party: Invite, count: int) -> None:
    """After a round num_batches_tracked is still int64 of shape [], and the model loads strictly."""
    names = [f"d{number:02}" for number in range(count)]
    fed = party(*names)
    counter = NETWORK | {"bn.num_batches_tracked": np.array(7, np.int64)}
    wrong: dict[str, np.ndarray] = {
        "shape [0]": np.zeros(0, np.int64),
        "shape [1]": np.zeros(1, np.int64),
        "float": np.array(7.5, np.float32),
    }
    for what, array in wrong.items():
        answer = fed.push(names[0], NETWORK | {"bn.num_batches_tracked": array})
        assert (answer.status, answer.problem["tensor"]) == (422, "bn.num_batches_tracked"), what
    empty = fed.push(names[0], NETWORK | {"fc.weight": np.zeros((0, 8), np.float32)})
    assert (empty.status, empty.problem["actual"]["shape"]) == (422, [0, 8])
    for name in names:
        assert fed.push(name, counter).status == 201
    published(fed, 1)
    model = fed.model()
    assert (model["bn.num_batches_tracked"].dtype, model["bn.num_batches_tracked"].shape) == (np.dtype(np.int64), ())
    assert model["bn.num_batches_tracked"] == 7
    norm = torch.nn.BatchNorm2d(8)
    state = {
        name.removeprefix("bn."): torch.from_numpy(np.array(model[name])) for name in model if name.startswith("bn.")
    }
    norm.load_state_dict(state | {"bias": torch.zeros(8)}, strict=True)


RECIPES: list[dict[str, Any]] = [{"name": "fedavg"}, {"name": "fedavgm"}, {"name": "fedadam"}, {"name": "fedyogi"}]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["name"])
def test_b06_buffers_are_averaged(party: Invite, recipe: dict[str, Any]) -> None:
    """Samples 1:3, means 0 and 4, variances 1 and 5: 3.0 and 4.0 exactly, in either order of arrival."""
    made = []
    for order in (("a", "b"), ("b", "a")):
        fed = party("a", "b", recipe=recipe)
        samples = {"a": 1, "b": 3}
        arrays = {
            "a": NETWORK | {"bn.running_mean": np.zeros(8, np.float32), "bn.running_var": np.ones(8, np.float32)},
            "b": NETWORK | {"bn.running_mean": np.full(8, 4, np.float32), "bn.running_var": np.full(8, 5, np.float32)},
        }
        for name in order:
            answer = fed.push(name, arrays[name], num_samples=samples[name])
            assert answer.status == 201, answer
        published(fed, 1)
        made.append(fed.model())
    assert (made[0]["bn.running_mean"] == 3).all() and (made[0]["bn.running_var"] == 4).all()
    assert all(made[0][name].tobytes() == made[1][name].tobytes() for name in made[0])


def test_b08_variances_stay_positive(party: Invite) -> None:
    """Server momentum steps parameters, never variances: four rounds of 0.05 stay above zero, and NaN is nowhere."""
    recipe = {"name": "fedavgm", "options": {"fuse": {"beta": 0.9, "lr": 1.0}}}
    fed = party("a", recipe=recipe, total=4)
    for index in range(1, 5):
        fed.reach(index)
        variances = NETWORK | {"bn.running_var": np.full(8, 0.05, np.float32)}
        assert fed.push("a", variances).status == 201
        published(fed, index)
        assert (fed.model()["bn.running_var"] == np.float32(0.05)).all()
    negative = party("a", "b")
    answer = negative.push("a", NETWORK | {"bn.running_var": np.full(8, -0.01, np.float32)})
    assert (answer.status, answer.problem["tensor"]) == (422, "bn.running_var")
