"""A module and its document side by side: one training step and one evaluation, from the same numbers."""

import copy
import warnings

import torch
from torch import Tensor, nn

from contract.networks.document import Document, Input
from contract.networks.errors import NetworkError
from contract.nn.graphs.module import GraphNetwork
from contract.nn.outputs import meant
from contract.nn.seeding import global_seed

_BATCHES = (5, 3)
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6


def samples(read: Input, batch: int, words: int | None) -> Tensor:
    """Return random inputs [batch, *shape]; token ids are below `words`."""
    shape = (batch, *read.shape)
    source = torch.Generator().manual_seed(batch)
    if read.dtype == "int64":
        return torch.randint(0, words or 2, shape, generator=source)
    return torch.randn(shape, generator=source)


def check(module: nn.Module, document: Document) -> None:
    """Refuse a document that does not do what its module does.

    Args:
        module: stays as it is.
        document: of this module.

    Raises:
        NetworkError: naming the output, gradient or buffer that differs.
    """
    module, network = copy.deepcopy(module), GraphNetwork(document)
    network.load_state_dict(module.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for training in (True, False):
            for each in (module, network):
                each.train(training).zero_grad()
            for batch in _BATCHES:
                inputs = samples(document.input, batch, network.words)
                _compare("the output", *(_pass(each, inputs, training) for each in (module, network)))
            if training:
                _compare_gradients(module, network)
            _compare_buffers(module, network)
        if document.train.features is not None:
            inputs = samples(document.input, _BATCHES[0], network.words)
            again = network.run(network.mode, "head", network.run(network.mode, "features", inputs))
            _compare("head(features(x))", _pass(module, inputs, False), again)


def _pass(module: nn.Module, inputs: Tensor, backward: bool) -> Tensor:
    with global_seed(len(inputs)):
        output = meant(module(inputs))
        assert output is not None  # it was traced
        if backward:
            weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0), dtype=output.dtype)
            (output * weights).sum().backward()  # type: ignore[no-untyped-call]
    return output.detach()


def _compare_gradients(module: nn.Module, network: nn.Module) -> None:
    own = dict(network.named_parameters())
    for name, parameter in module.named_parameters():
        _compare(f"the gradient of parameter {name!r}", _given(parameter.grad), _given(own[name].grad))


def _given(gradient: Tensor | None) -> Tensor:
    return torch.zeros(()) if gradient is None else gradient


def _compare_buffers(module: nn.Module, network: nn.Module) -> None:
    own = network.state_dict()
    for name, value in module.state_dict().items():
        _compare(f"tensor {name!r}", value, own[name])


def _compare(what: str, wanted: Tensor, found: Tensor) -> None:
    if wanted.shape == found.shape:
        wide, other = wanted.double(), found.double()
        least = _ABSOLUTE * max(1.0, float(wide.abs().max()) if wide.numel() else 1.0)
        if torch.allclose(wide, other, rtol=_RELATIVE, atol=least, equal_nan=True):
            return
    raise NetworkError(
        "forward",
        f"{what} differs between the module and its graph: a gradient of the module's own (torch.autograd.Function), "
        "or state that changes outside its tensors, is lost when it is traced. Write it with torch's operators, or "
        "install the module as an architecture (docs/architectures.md)",
    )
