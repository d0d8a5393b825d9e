"""What a document's graphs make of shapes, told on the meta device: nothing is allocated and nothing computed."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from contract.networks.document import Document, Mode
from contract.networks.errors import NetworkError
from contract.nn.graphs.module import GraphNetwork
from contract.nn.graphs.program import Step

SAMPLES = 2
LARGEST, ALL, CALLS = 200_000_000, 20_000_000_000, 500_000
"""Values of one result of `SAMPLES` samples; of all results; how many results there may be."""
_RECURRENT = {"aten.lstm.input": 4, "aten.gru.input": 3, "aten.rnn_tanh.input": 1, "aten.rnn_relu.input": 1}


class _TooMuch(RuntimeError):
    pass


class _Bound(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what would be computed, and ends what is beyond the bounds."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values = self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, list | tuple) else (found,):
            if isinstance(each, Tensor):
                self._count(each.numel())
        return found

    def _count(self, values: int) -> None:
        self.values, self.calls = self.values + values, self.calls + 1
        if values > LARGEST or self.values > ALL or self.calls > CALLS:
            raise _TooMuch(
                f"{SAMPLES} samples make {values:,} values here and {self.values:,} in all so far, in {self.calls:,} "
                f"results; the bounds are {LARGEST:,}, {ALL:,} and {CALLS:,}: take smaller inputs or a smaller network"
            )


def check(document: Document) -> None:
    """Refuse a document whose graphs do not give what it says, or are too large.

    Args:
        document: a checked one (`contract.networks.checks`).

    Raises:
        NetworkError: naming graph, node and operator.
    """
    try:
        with torch.device("meta"):
            network = GraphNetwork(document)
    except ValueError as error:
        raise NetworkError("", str(error)) from None
    for mode in ("train", "eval"):
        _check(document, network.train(mode == "train"), "train" if mode == "train" else "eval")


def _check(document: Document, network: GraphNetwork, mode: Mode) -> None:
    dtype = getattr(torch, document.input.dtype)
    inputs = torch.zeros(SAMPLES, *document.input.shape, dtype=dtype, device="meta")
    try:
        with torch.no_grad(), _Bound(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = network.run(mode, "whole", inputs, _watch)
    except Exception as error:  # noqa: BLE001 - operators refuse their arguments by errors of many kinds
        where = ", ".join(getattr(error, "__notes__", []))
        why = str(error).strip().partition("\n")[0][:300] or type(error).__name__
        raise NetworkError(mode, f"{where}: {why}" if where else why) from None
    wanted = [SAMPLES, *document.output]
    if not isinstance(found, Tensor) or list(found.shape) != wanted or not found.is_floating_point():
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise NetworkError(f"{mode}.output", f"gives {shape} for {SAMPLES} samples, and the document says {wanted}")


def _watch(step: Step, args: Sequence[Any]) -> None:
    """Refuse recurrent layers whose weights do not fit each other: not every kernel looks at all of them."""
    gates = _RECURRENT.get(step.node.op)
    if gates is None:
        return
    inputs, hidden, weights, biases, layers, _, _, both, _ = (*args, *(None,) * 9)[:9]
    states = hidden if isinstance(hidden, list) else [hidden]
    ways = 2 if both else 1
    wanted, width = [], states[0].shape[-1]
    for layer in range(layers):
        read = inputs.shape[-1] if layer == 0 else width * ways
        shapes: list[list[int]] = [[gates * width, read], [gates * width, width]]
        wanted += (shapes + [[gates * width]] * 2 * bool(biases)) * ways
    found = [list(each.shape) for each in weights]
    if found != wanted or len(states) != (2 if gates == 4 else 1):
        differ = next((f"{a} instead of {b}" for a, b in zip(found, wanted, strict=False) if a != b), f"{len(found)}")
        raise ValueError(f"params: the layer's weights do not fit: {differ}; {len(wanted)} are wanted")
    batch = inputs.shape[0 if args[8] else 1] if inputs.ndim == 3 else None
    if any(list(each.shape) != [layers * ways, batch, width] for each in states):
        raise ValueError(f"hx: states are {[list(each.shape) for each in states]}, not {[layers * ways, batch, width]}")
