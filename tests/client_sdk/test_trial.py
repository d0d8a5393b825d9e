"""A step is tried before a device joins: what cannot be trained is refused with a sentence, and nobody waits for it."""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from client_sdk import errors, trial
from client_sdk.training import choose_device, train_local
from contract.local import LocalPlan
from contract.nn import codec

Run = Callable[..., Any]
Named = namedtuple("Named", "logits aux")
PRIVATE = {"noise_multiplier": 1.0, "max_grad_norm": 10.0, "delta": 1e-5}


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))


class Returns(nn.Module):
    """Returns something made of its logits."""

    def __init__(self, make: Callable[[Tensor], Any]):
        super().__init__()
        self.body, self.make = nn.Linear(2, 2), make

    def forward(self, x: Tensor) -> Any:
        return self.make(self.body(x))


class Output:
    """What models of a well-known library return."""

    def __init__(self, logits: Tensor):
        self.logits, self.loss = logits, None


class Extra(nn.Sequential):
    def get_extra_state(self) -> Any:
        return {"version": 2}

    def set_extra_state(self, state: Any) -> None: ...


class Broken(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("no such layer")


def serve(service: Any, module: nn.Module) -> None:
    """Make `module` the federation's first model."""
    codec.save_state(module, service.folder / "own.safetensors")
    service.architecture, service.options = "custom", {}
    service.models["mdl_0"] = (service.folder / "own.safetensors").read_bytes()


def refused(service: Any, take_part: Run, words: str, **options: Any) -> errors.ModelMismatch:
    """Return the refusal, after which nobody is enrolled."""
    with pytest.raises(errors.ModelMismatch, match=words) as caught:
        take_part(**options)
    assert service.sent("POST", ".*/clients") == [] and service.token is None
    return caught.value


RETURNED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "loss first": (lambda out: (out.mean(), out), r"returned a tuple of 2 \(a tensor of float32 \[\], .*; one tensor"),
    "classes first": (lambda out: [out.argmax(1), out], r"forward returned a list of 2 \(a tensor of int64 \[8\]"),
    "one sample first": (lambda out: (out[:1], out), r"a tuple of 2 \(a tensor of float32 \[1, 2\]"),
    "features first": (lambda out: (out.repeat(1, 2), out), r"returned shape \[8, 4\].*\[8, 2\] are needed"),
    "dict": (lambda out: {"out": out}, "forward returned a dict with 'out'; one tensor of logits"),
    "None": (lambda out: None, "forward returned None"),
    "float": (lambda out: 1.5, "forward returned a float"),
    "classes": (lambda out: out.argmax(1), r"returned shape \[8\] for 8 samples"),
    "whole numbers": (lambda out: out.long(), r"a tensor of int64 \[8, 2\]; logits are floating-point"),
    "too many": (lambda out: out.repeat(1, 2), r"returned shape \[8, 4\].*\[8, 2\] are needed"),
    "detached": (lambda out: out.detach(), "a step with 8 samples of float32 .* failed: RuntimeError: .*grad"),
}


@pytest.mark.parametrize("what", RETURNED)
def test_what_is_no_logits_is_told_before_the_device_joins(service: Any, take_part: Run, what: str) -> None:
    module = Returns(RETURNED[what][0])
    serve(service, module)
    refused(service, take_part, RETURNED[what][1], model=module)


NAMED: dict[str, Callable[[Tensor], Any]] = {
    "object": Output,
    "named tuple": lambda out: Named(out, out),
    "dict": lambda out: {"loss": None, "logits": out},
    "tuple of one": lambda out: (out,),
    "tuple": lambda out: (out, {"state": None}, out + 1),
}


@pytest.mark.parametrize("what", NAMED)
def test_what_names_its_logits_is_trained_as_they_are(service: Any, take_part: Run, what: str) -> None:
    module = Returns(lambda out: out)
    serve(service, module)
    take_part(model=Returns(NAMED[what]), rounds=1)
    named = service.updates.pop()
    service.round, service.current = 1, "mdl_0"
    take_part(model=module, rounds=1, state_dir=service.folder / "again")
    assert service.updates.pop() == named


def with_kind(dtype: torch.dtype) -> nn.Module:
    module = plain()
    module.register_buffer("odd", torch.zeros(1, dtype=dtype))
    return module


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(2)), "'0.weight' is lazy .*; call the module once with a batch"),
    "meta": (lambda: plain().to("meta"), "'0.weight' is on the meta device .*to_empty"),
    "extra state": (lambda: Extra(*plain()), "'_extra_state' is extra state"),
    "state dict": (lambda: plain().state_dict(), "a OrderedDict has weights and no network; pass a torch.nn.Module"),
    "path": (lambda: "model.pt", "'model.pt' is no network, and files are not loaded here"),
    "number": (lambda: 3, "a int is no network"),
    "modules": (lambda: [plain()], "a list is no network"),
    "class with arguments": (lambda: nn.Linear, r"Linear\(\) failed: TypeError: .*required positional"),
    "function of something else": (lambda: dict, r"dict\(\) gave a dict, not a torch.nn.Module"),
    "half": (lambda: plain().half(), r"'0.weight' is float16, .*module.float\(\)"),
    "complex": (lambda: with_kind(torch.complex64), "'odd' is complex64, which cannot be sent"),
    "quantised": (lambda: with_kind(torch.float8_e4m3fn), "'odd' is float8_e4m3fn, which cannot be sent"),
    "two dtypes": (
        lambda: nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2).double()),
        r"failed: RuntimeError: .*dtype.* \(its parameters are float32, float64\)",
    ),
    "raises": (lambda: Broken(*plain()), "failed: KeyError: 'no such layer'"),
    "nothing to train": (lambda: plain().requires_grad_(False), "no parameter has requires_grad"),
    "other tensors": (lambda: nn.Linear(2, 2), "tensors.*differ|missing"),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_model_is_refused_before_the_device_joins(service: Any, take_part: Run, what: str) -> None:
    make, words = ODD[what]
    served = make() if what in ("two dtypes", "raises", "nothing to train") else plain()
    serve(service, served)
    error = refused(service, take_part, words, model=make())
    assert str(error).startswith("model: ")


def test_a_module_in_place_of_an_architecture_has_its_tensors(service: Any, take_part: Run) -> None:
    error = refused(service, take_part, "First tensors that differ", model=plain())
    assert "0.weight" in error.tensors


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_network_gets_its_inputs_in_its_own_dtype(service: Any, take_part: Run, dtype: torch.dtype) -> None:
    serve(service, plain().to(dtype))
    module = plain().to(dtype)
    report = take_part(model=module)
    assert report.state == "finished" and report.losses[1] < report.losses[0]
    assert {value.dtype for value in module.state_dict().values()} == {dtype}


def test_a_device_that_is_not_there_is_refused_with_those_that_are(service: Any, take_part: Run) -> None:
    for name in ("gpu", "cuda:7", "meta", "tpu:x"):
        with pytest.raises(errors.UsageError, match=rf"device: '{name}' is .*; here are cpu.*auto"):
            take_part(device=name)
    assert service.requests == []
    assert choose_device("cpu") == torch.device("cpu")


def test_an_objective_that_reads_features_asks_for_them_before_the_device_joins(service: Any, take_part: Run) -> None:
    serve(service, plain())
    for kind in ("moon", "feduv", "fedtgp"):
        service.plan = {"objective": {"kind": kind}}
        refused(service, take_part, f"objective '{kind}' reads features", model=plain())


def test_a_trial_leaves_the_module_and_the_process_as_they_were() -> None:
    module = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    modes, state = [part.training for part in module.modules()], torch.get_rng_state()
    trial.attempt(module, small(), LocalPlan(), torch.device("cpu"))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert modes == [part.training for part in module.modules()] and torch.equal(state, torch.get_rng_state())


def test_a_module_that_cannot_be_copied_is_tried_all_the_same() -> None:
    class Held(nn.Linear):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol")

    module = nn.Sequential(Held(2, 2), nn.BatchNorm1d(2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert trial.attempt(module, small(), LocalPlan(), torch.device("cpu")) > 0
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module[0].weight.grad is None


def small(count: int = 8) -> Any:
    from client_sdk import data
    from contract.wire.federations import Task

    rng = np.random.default_rng(0)
    taken = data.load((rng.normal(size=(count, 2)).astype("float32"), np.arange(count) % 2))
    taken.check(Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}}))
    return taken


# Parts that rest


def backbone(frozen: bool, resting: bool) -> nn.Sequential:
    part = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    part.requires_grad_(not frozen)
    return part.eval() if resting else part


@pytest.mark.parametrize(
    ("frozen", "resting", "moves"),
    [(True, True, False), (True, False, False), (False, True, False), (False, False, True)],
)
def test_statistics_of_a_part_that_rests_stay(
    service: Any, take_part: Run, frozen: bool, resting: bool, moves: bool
) -> None:
    module: Any = nn.Sequential(backbone(frozen, resting), nn.Linear(4, 2))
    serve(service, module)
    before, modes = module[0][1].running_var.clone(), [part.training for part in module.modules()]
    take_part(model=module)
    assert torch.equal(module[0][1].running_var, before) is not moves
    assert modes == [part.training for part in module.modules()], "each part is in the mode that its owner gave it"


def test_a_network_that_is_in_evaluation_mode_as_a_whole_trains() -> None:
    module: Any = nn.Sequential(backbone(frozen=False, resting=False), nn.Linear(4, 2))
    before = module[0][1].running_var.clone()
    train_local(module.eval(), small(), LocalPlan(), seed=0, device=torch.device("cpu"))
    assert not torch.equal(module[0][1].running_var, before) and not module[0].training


def test_a_train_of_ones_own_is_heeded() -> None:
    class Kept(nn.Sequential):
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            self[1].eval()
            return self

    module: Any = Kept(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    before = module[1].running_var.clone()
    train_local(module, small(), LocalPlan(), seed=0, device=torch.device("cpu"))
    assert torch.equal(module[1].running_var, before)


# Differential privacy


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.body(x)))
        return out


class ByFunction(Layers):
    """The same function of the same tensors."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(torch.relu(self.body(x)), self.head.weight, self.head.bias)


class Both(Layers):
    """Uses a weight by its layer and by a function, as tied weights are."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = functional.linear(torch.relu(self.body(x)), self.head.weight) + self.head(x)
        return out


class Alone(Layers):
    """Has a parameter of its own beside its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x) * self.scale
        return out


@pytest.mark.parametrize("make", [ByFunction, Both])
def test_a_parameter_whose_shares_dp_sgd_does_not_see_is_named(service: Any, take_part: Run, make: Any) -> None:
    pytest.importorskip("opacus")
    serve(service, make())
    service.plan |= {"privacy": PRIVATE}
    refused(service, take_part, "parameter 'head.weight': .* seen by DP-SGD", model=make())


@pytest.mark.parametrize("make", [Layers, Alone])
def test_parameters_that_dp_sgd_sees_are_trained(service: Any, take_part: Run, make: Any) -> None:
    pytest.importorskip("opacus")
    serve(service, make())
    service.plan |= {"privacy": PRIVATE}
    assert take_part(model=make()).rounds_trained == 2


def test_a_device_that_lacks_the_objective_s_package_does_not_enrol(service: Any, take_part: Run) -> None:
    service.plan["objective"] = {"kind": "acme-smooth", "share": 0.2, "package": "acme-rules 1.0"}
    with pytest.raises(errors.MissingPackage, match="package acme-rules 1.0, which is not installed here; pip install"):
        take_part()
    assert service.sent("POST", ".*/clients") == [] and service.token is None
