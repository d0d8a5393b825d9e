"""What a device trains: the user's own module, few samples, the discriminator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from torch import nn

from client_sdk import errors
from contract.nn import codec, registry
from contract.tensors import check_file, parse_header

Run = Callable[..., Any]


def own(hidden: int = 8) -> nn.Sequential:
    """Return a module of a user's own."""
    return nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 2))


def serve_own(service: Any, module: nn.Module) -> None:
    """Make `module` the federation's model."""
    codec.save_state(module, service.folder / "own.safetensors")
    service.architecture, service.options = "custom", {}
    service.models["mdl_0"] = (service.folder / "own.safetensors").read_bytes()


# The user's own module


def test_the_users_own_module_is_trained_and_ends_with_the_final_weights(service: Any, take_part: Run) -> None:
    module = own()
    serve_own(service, own())
    report = take_part(model=module)
    arrays = codec.state_arrays(module.state_dict())
    other = own()
    codec.load_state(other, report.model_path)
    assert all(np.array_equal(value, arrays[name]) for name, value in codec.state_arrays(other.state_dict()).items())


def test_a_custom_architecture_needs_the_users_module(service: Any, take_part: Run) -> None:
    serve_own(service, own())
    with pytest.raises(errors.ModelMismatch, match="pass your module as model="):
        take_part()


@pytest.mark.parametrize(
    "other",
    [lambda: own(9), lambda: nn.Linear(2, 2), lambda: own().double(), lambda: nn.Sequential(*own(), nn.Linear(2, 2))],
)
def test_a_module_with_other_tensors_is_refused_before_training(
    service: Any, take_part: Run, monkeypatch: pytest.MonkeyPatch, other: Any
) -> None:
    serve_own(service, own())
    monkeypatch.setattr("client_sdk.rounds.train_local", None)
    with pytest.raises(errors.ModelMismatch) as caught:
        take_part(model=other)
    assert caught.value.tensors and caught.value.tensors[0] in str(caught.value)


class Tied(nn.Module):
    """Two names for one tensor, a transposed parameter, and a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.turned = nn.Parameter(torch.arange(4.0).reshape(2, 2).t())
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(self.norm(self.first(x) @ self.turned))
        return out


def test_tied_transposed_and_wrapped_modules_travel(service: Any, take_part: Run) -> None:
    serve_own(service, Tied())
    wrapped = torch.nn.DataParallel(Tied())
    report = take_part(model=wrapped)
    names = check_file(report.model_path).tensors
    assert {"first.weight", "second.weight", "turned", "norm.running_mean", "norm.num_batches_tracked"} <= set(names)
    assert not any(name.startswith("module.") for name in names)


def test_a_module_that_returns_no_logits_is_told_so(service: Any, take_part: Run) -> None:
    module = nn.Sequential(nn.Linear(2, 3))
    serve_own(service, module)
    with pytest.raises(errors.ModelMismatch, match=r"returned shape \[8, 3\].*\[8, 2\] are needed"):
        take_part(model=module)


# Small data


@pytest.mark.parametrize("size", [1, 2, 9])
def test_few_samples_and_one_class_work_even_with_batch_norm(
    service: Any, take_part: Run, blobs: Any, size: int
) -> None:
    module = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    serve_own(service, module)
    report = take_part((blobs[0][:size], np.zeros(size, int)), model=module)
    assert report.rounds_trained == 2
    metadata = parse_header(service.updates[0], len(service.updates[0])).metadata
    assert metadata["num_samples"] == str(size)


def test_threads_come_from_the_environment_only(take_part: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        take_part(rounds=1)
        assert torch.get_num_threads() == 2
        monkeypatch.setenv("POTSTILL_TORCH_THREADS", "many")
        with pytest.raises(errors.UsageError, match="POTSTILL_TORCH_THREADS"):
            take_part()
        monkeypatch.setenv("POTSTILL_TORCH_THREADS", "1")
        take_part()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


# The discriminator


def test_a_discriminator_is_trained_once_and_pushed_before_the_rounds(
    service: Any, take_part: Run, tmp_path: Path
) -> None:
    service.want_discriminator = True
    report = take_part()
    assert report.rounds_trained == 2
    header = parse_header(service.discriminator, len(service.discriminator))
    assert header.metadata["num_samples"] == "40" and "base_model" not in header.metadata
    (tmp_path / "d.safetensors").write_bytes(service.discriminator)
    codec.load_state(registry.build("disc-mlp", {"hidden": [8]}, task=service.task), tmp_path / "d.safetensors")


def test_a_discriminator_that_was_trained_before_a_crash_is_sent_as_it_was(
    service: Any, take_part: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    service.want_discriminator = True
    service.fault("PUT", ".*/discriminator", crash)
    with pytest.raises(KeyboardInterrupt):
        take_part()
    kept = (tmp_path / "device" / "pending.safetensors").read_bytes()
    monkeypatch.setattr("client_sdk.stages.train_discriminator", None)
    take_part()
    assert service.discriminator == kept
