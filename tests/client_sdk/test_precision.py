"""One bit a weight: the straight-through step, what is sent, what is carried on."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from client_sdk import data
from client_sdk.precision import Binary, binarised
from client_sdk.training import LocalResult, train_local
from contract import lowbit
from contract.local import BinaryPrecision, FedProxObjective, LocalPlan, Objective, Sgd, SgdObjective
from contract.nn import codec
from contract.wire.federations import Task

CPU = torch.device("cpu")
TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}})
RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(8, 2)).astype("float32"), np.arange(8) % 2
MIDDLE = "2.weight"  # neither the first nor the last weight


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 2))


def train(
    module: nn.Module, *, feedback: bool = False, objective: Objective | None = None, **options: object
) -> LocalResult:
    taken = data.load((X, Y))
    taken.check(TASK)
    plan = LocalPlan(
        objective=objective or SgdObjective(),
        optimizer=Sgd(lr=0.5),
        batch_size=8,
        precision=BinaryPrecision(error_feedback=feedback),
    )
    return train_local(module, taken, plan, seed=0, device=CPU, **options)  # type: ignore[arg-type]


def sent(result: LocalResult) -> np.ndarray:
    """Return the middle weight as the server reads it."""
    arrays = codec.state_arrays(result.tensors)
    return lowbit.unpack(arrays[f"bits.{MIDDLE}"], arrays[f"scale.{MIDDLE}"], (3, 5))


def test_the_torch_form_is_the_contracts_for_any_shape_and_sign() -> None:
    for shape in ((3, 5), (1, 4), (2, 3, 2, 2)):
        weight = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        weight.view(-1)[0] = 0.0
        assert binarised(weight).numpy() == pytest.approx(lowbit.binarize(weight.numpy()).binary, rel=1e-6)


def test_the_gradient_of_the_rounded_weight_moves_the_float_weight() -> None:
    module, reference = net(), net()
    with torch.no_grad():
        reference.get_parameter("2.weight").copy_(
            torch.from_numpy(lowbit.binarize(reference.get_parameter("2.weight").numpy()).binary)
        )
    functional.cross_entropy(reference(torch.from_numpy(X)), torch.from_numpy(Y)).backward()
    start = net()
    result = train(module)
    slopes = {name: each.grad for name, each in reference.named_parameters() if each.grad is not None}
    for name, parameter in module.named_parameters():
        expected = start.get_parameter(name) - 0.5 * slopes[name]
        assert parameter.detach().numpy() == pytest.approx(expected.detach().numpy(), abs=1e-6), name
    assert sent(result) == pytest.approx(
        lowbit.binarize(module.get_parameter("2.weight").detach().numpy()).binary, abs=0
    )
    assert MIDDLE not in result.tensors and "0.weight" in result.tensors and result.memory == {}


def test_the_float_weights_are_back_after_a_pass_that_fails() -> None:
    module = net()
    before = module.get_parameter("2.weight").detach().clone()
    binary = Binary(module, codec.manifest(module))
    with pytest.raises(KeyError), binary.applied():
        assert not torch.equal(module.get_parameter("2.weight"), before)
        raise KeyError
    assert torch.equal(module.get_parameter("2.weight"), before)


def test_the_proximal_term_is_about_the_float_weights() -> None:
    """In the first step w = w_sent and the term has no gradient, though the rounded weights are elsewhere."""
    plain, near = train(net()), train(net(), objective=FedProxObjective(mu=10.0))
    for name in plain.tensors:
        assert torch.equal(plain.tensors[name], near.tensors[name])


def test_what_rounding_loses_is_not_carried_on() -> None:
    """Plans of before may ask for it: the next round starts from another model, so it would be of no use there."""
    one, two = train(net(), feedback=True), train(net())
    assert one.memory == {} and all(torch.equal(one.tensors[name], two.tensors[name]) for name in two.tensors)


def test_a_residual_that_a_device_still_has_is_not_used() -> None:
    other = train(net(), feedback=True, memory={f"feedback.{MIDDLE}": torch.ones(3, 5)})
    assert np.array_equal(sent(train(net())), sent(other)) and other.memory == {}
