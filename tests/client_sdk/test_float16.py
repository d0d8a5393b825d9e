"""float16 with dynamic loss scaling, in our own loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import nn
from torch.nn import functional

from client_sdk import errors
from client_sdk.precision import Scaling, has

from .conftest import FakeService

Run = Callable[..., Any]
CPU = torch.device("cpu")


def trained(service: FakeService, take_part: Run, folder: Path, **options: Any) -> tuple[bytes, Any]:
    service.round, service.current = 1, "mdl_0"
    report = take_part(rounds=1, state_dir=folder / str(len(list(folder.iterdir()))), **options)
    return service.updates.pop(), report.rounds[0]


def test_it_computes_in_float16_repeats_itself_and_keeps_float32_weights(
    service: FakeService, take_part: Run, tmp_path: Path
) -> None:
    service.plan |= {"objective": {"kind": "fedprox", "mu": 1.0}, "clip_norm": 0.5}  # neither is of the scaled loss
    plain, full = trained(service, take_part, tmp_path)
    seen: set[torch.dtype] = set()
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: seen.add(output.dtype) if isinstance(module, nn.Linear) else None
    )
    try:
        halves = [trained(service, take_part, tmp_path, mixed_precision="float16") for _ in range(2)]
    finally:
        hook.remove()
    (one, report), (again, _) = halves
    assert torch.float16 in seen and one == again != plain
    before, after = load(plain), load(one)
    assert all(value.dtype == torch.float32 for value in after.values())
    assert all(torch.allclose(before[name], after[name], atol=0.01) for name in before)
    assert report.steps + report.metrics["skipped_steps"] >= full.steps and full.metrics == {}


def test_steps_beyond_float16_are_left_out_and_counted_and_the_first_scale_is_sought(
    service: FakeService, take_part: Run, tmp_path: Path
) -> None:
    def large(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(outputs, labels) * 1000

    service.plan |= {"optimizer": {"kind": "sgd", "lr": 1e-4}}
    _, full = trained(service, take_part, tmp_path, loss=large)
    _, half = trained(service, take_part, tmp_path, loss=large, mixed_precision="float16")
    assert half.metrics["skipped_steps"] > 0
    assert half.steps == full.steps, "until the first step is taken the same batch is tried again"
    assert half.loss == pytest.approx(full.loss, rel=0.05)


def test_what_is_finite_at_no_scale_ends_the_round_and_nothing_is_sent(service: FakeService, take_part: Run) -> None:
    with pytest.raises(errors.TrainingError, match="mixed_precision: 20 steps in a row.*'bfloat16'"):
        take_part(loss=lambda outputs, labels: outputs.sum() * float("inf"), mixed_precision="float16")
    assert service.updates == []


def test_a_step_is_that_of_the_loss_as_it_is_and_one_that_is_not_finite_changes_nothing() -> None:
    # w = 1, loss 3 w: gradient 3 whatever the scale, w <- 1 - 0.5 * 3 = -0.5
    weight = nn.Parameter(torch.ones(1))
    optimizer, scaling = torch.optim.SGD([weight], lr=0.5), Scaling(CPU)
    for factor in (3.0, float("inf")):
        optimizer.zero_grad()
        scaling.backward((weight * factor).sum())
        scaling.unscale(optimizer)
        taken = scaling.step(optimizer)
        assert taken == (factor == 3.0) and weight.item() == -0.5
    assert (scaling.taken, scaling.skipped) == (1, 1)


def test_another_name_is_refused_and_a_device_without_it_trains_in_full_precision(take_part: Run) -> None:
    with pytest.raises(errors.UsageError, match="mixed_precision: 'fp16' is unknown"):
        take_part(mixed_precision="fp16")
    assert has(torch.float16, CPU) and not has(torch.float16, torch.device("meta"))


def test_scaffold_s_gradient_of_all_data_is_not_scaled_and_so_in_full_precision(
    service: FakeService, take_part: Run, tmp_path: Path
) -> None:
    service.plan |= {"objective": {"kind": "scaffold", "option": 1}}
    plain, half = (load(trained(service, take_part, tmp_path, mixed_precision=kind)[0]) for kind in (False, "float16"))
    controls = [name for name in plain if name.startswith("control.")]
    assert controls and all(torch.equal(plain[name], half[name]) for name in controls)
