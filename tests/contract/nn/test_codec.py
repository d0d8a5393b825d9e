"""Modules through files and back, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from contract.nn import codec, registry
from contract.nn.scaling import to_signed_unit
from contract.tensors import TensorError, TensorFile
from contract.wire.federations import Task

TASK = Task.model_validate({"num_classes": 5, "input": {"shape": [1, 8, 8]}})
NAMES = ["mlp", "cnn-digits", "resnet-8", "disc-mlp", "gen-mlp"]  # every name: test_catalogue.py


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return list(left) == list(right) and all(
        left[key].dtype == right[key].dtype and torch.equal(left[key], right[key]) for key in left
    )


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str, tmp_path: Path) -> None:
    module = registry.initialise(name, {}, TASK, 1)
    codec.save_state(module, tmp_path / "a", {"note": "hello"})
    other = registry.initialise(name, {}, TASK, 2)
    codec.load_state(other, tmp_path / "a")
    assert same(module.state_dict(), other.state_dict())
    codec.save_state(other, tmp_path / "b", {"note": "hello"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert same(
        dict(sorted(module.state_dict().items())), dict(sorted(safetensors.torch.load_file(tmp_path / "a").items()))
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_round_trip(dtype: torch.dtype, tmp_path: Path) -> None:
    module = registry.initialise("cnn-digits", {}, TASK, 1).to(dtype)
    codec.save_state(module, tmp_path / "a")
    other = registry.initialise("cnn-digits", {}, TASK, 2).to(dtype)
    codec.load_state(other, tmp_path / "a")
    assert same(module.state_dict(), other.state_dict())


def test_buffers_are_told_from_parameters(tmp_path: Path) -> None:
    codec.save_state(registry.build("cnn-digits", {}, task=TASK), tmp_path / "a")
    with TensorFile(tmp_path / "a") as file:
        expected = {f"{i}.{n}" for i in (1, 4) for n in ("running_mean", "running_var", "num_batches_tracked")}
        assert file.header.buffers == expected


def test_layouts_and_ties_are_written_out(tmp_path: Path) -> None:
    """Transposed, channels-last and shared tensors all become plain C order, each with its own bytes."""
    weight = torch.arange(6.0).reshape(2, 3)
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    state = {"t": weight.T, "tied": weight, "again": weight, "images": images, "scalar": torch.tensor(3)}
    codec.save_state(state, tmp_path / "a")
    loaded = safetensors.torch.load_file(tmp_path / "a")
    assert all(torch.equal(loaded[key], value) for key, value in state.items())


def test_tied_parameters_load(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3, bias=False)
            self.second = nn.Linear(3, 3, bias=False)
            self.second.weight = self.first.weight

    one, two = Tied(), Tied()
    codec.save_state(one, tmp_path / "a")
    codec.load_state(two, tmp_path / "a")
    assert torch.equal(two.second.weight, one.first.weight)


def test_wrappers_are_taken_off(tmp_path: Path) -> None:
    module = registry.build("mlp", {}, task=TASK)
    compiled: Any = torch.compile(module, backend="eager")  # torch says it is a function
    wrapped = nn.DataParallel(compiled)
    assert codec.unwrap(wrapped) is module
    codec.save_state(wrapped, tmp_path / "a")
    with TensorFile(tmp_path / "a") as file:
        assert file.names == list(module.state_dict())


def test_saved_arrays_are_copies() -> None:
    module = registry.build("mlp", {}, task=TASK)
    arrays = codec.state_arrays(module.state_dict())
    before = arrays["1.bias"].copy()
    with torch.no_grad():
        module.get_parameter("1.bias").fill_(9.0)
    assert (arrays["1.bias"] == before).all()


@pytest.mark.parametrize("change", ["shape", "dtype", "missing", "extra"])
def test_another_network_is_refused_and_nothing_changes(change: str, tmp_path: Path) -> None:
    state = registry.initialise("mlp", {}, TASK, 1).state_dict()
    if change == "shape":
        state["1.bias"] = state["1.bias"][:3]
    elif change == "dtype":
        state["1.bias"] = state["1.bias"].double()
    elif change == "missing":
        del state["1.bias"]
    else:
        state["surplus"] = torch.zeros(1)
    codec.save_state(state, tmp_path / "a")
    module = registry.initialise("mlp", {}, TASK, 2)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    with pytest.raises(TensorError, match="surplus" if change == "extra" else r"1\.bias") as caught:
        codec.load_state(module, tmp_path / "a")
    assert caught.value.code == "tensors"
    assert same(module.state_dict(), before)


def test_a_dtype_that_cannot_travel_is_named() -> None:
    with pytest.raises(TensorError, match="'z'.*complex64"):
        codec.state_arrays({"z": torch.zeros(2, dtype=torch.complex64)})


def test_scaling_maps_the_range_to_plus_minus_one() -> None:
    got = to_signed_unit(torch.tensor([0.0, 8.0, 16.0]), (0.0, 16.0))
    assert got.tolist() == [-1.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="input_range"):
        to_signed_unit(torch.zeros(1), (2.0, 2.0))
