"""A graph as a list of calls: what a document says, resolved once, run as often as need be.

No code is made of a document, so none of it is ever evaluated: each step is an operator of the list and its arguments.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from contract.bounds import COUNT
from contract.networks import arguments
from contract.networks.document import Node
from contract.networks.operators import OPERATORS

Watch = Callable[["Step", Sequence[Any]], None]
BATCH_NORM = "aten.batch_norm.default"


def bounded(function: Callable[..., int]) -> Callable[..., int]:
    """Return a function of whole numbers that refuses results which no edge can have."""

    def call(*values: int) -> int:
        found = function(*values)
        if abs(found) > COUNT:
            raise ValueError(f"{found.bit_length()} bits are no size of anything")
        return found

    return call


_OWN: Mapping[str, Callable[..., Any]] = {
    "int.add": bounded(operator.add),
    "int.sub": bounded(operator.sub),
    "int.mul": bounded(operator.mul),
    "int.floordiv": bounded(operator.floordiv),
    "int.mod": bounded(operator.mod),
    "int.neg": bounded(operator.neg),
    "getitem": operator.getitem,
}


def function_of(name: str) -> Callable[..., Any]:
    """Return the function that an operator of the list is.

    Raises:
        KeyError: it is not on the list.
        ValueError: this version of torch has no such operator.
    """
    OPERATORS[name]
    if name in _OWN:
        return _OWN[name]
    _, packet, overload = name.split(".")
    try:
        found: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload)
    except AttributeError:
        raise ValueError(f"torch {torch.__version__} has no {name}; update it") from None
    return found


@dataclass(frozen=True)
class Slot:
    """A place of a value while a program runs."""

    index: int


@dataclass
class Step:
    """One call.

    Attributes:
        node: what it is called in the document, and its operator.
        call: the operator.
        args: with `Slot` where a value goes.
        kwargs: likewise.
        target: where its result goes.
        makes: whether it is told the device of what it makes.
        norm: the layer of a BatchNorm with running statistics, by its path.
        done: values that nobody reads after it.
    """

    node: Node
    call: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    target: int
    makes: bool
    norm: str | None = None
    done: list[int] = field(default_factory=list)


class Program:
    """Calls in their order.

    Attributes:
        steps: the calls.
        tensors: slot -> the network's tensor that stands there.
        output: the slot of the result.
    """

    def __init__(self, nodes: Iterable[Node], given: Iterable[str], output: str, norms: Mapping[str, str]):
        """Resolve nodes.

        Args:
            nodes: in their order.
            given: names of what is passed, all of them the same value.
            output: name of the node whose value is the result.
            norms: name of a node -> path of the BatchNorm layer that it is.
        """
        self._norms = norms
        self._slots: dict[str, int] = dict.fromkeys(given, 0)
        self.tensors: dict[str, int] = {}
        self._count = 1
        self.steps = [self._step(node) for node in nodes]
        self.output = self._slots[output]
        self._let_go()

    def __deepcopy__(self, memo: Any) -> "Program":
        """Return itself: it never changes."""
        return self

    @property
    def size(self) -> int:
        """How many slots it needs."""
        return self._count

    def run(
        self,
        value: Tensor,
        tensors: Mapping[str, Tensor],
        norms: Mapping[str, nn.Module],
        watch: Watch | None = None,
    ) -> Tensor:
        """Return the output for what is given; an error has the node in its notes.

        Args:
            value: what is passed.
            tensors: the network's, by name.
            norms: the layers of BatchNorm, by path.
            watch: called before each call.
        """
        slots: list[Any] = [None] * self._count
        slots[0] = value
        for name, index in self.tensors.items():
            slots[index] = tensors[name]
        for step in self.steps:
            args = [_filled(each, slots) for each in step.args]
            kwargs = {name: _filled(each, slots) for name, each in step.kwargs.items()} if step.kwargs else {}
            if step.makes:
                kwargs["device"] = value.device
            try:
                if watch is not None:
                    watch(step, args)
                if step.norm is None:
                    slots[step.target] = step.call(*args, **kwargs)
                else:
                    slots[step.target] = _normalised(step, args, norms[step.norm])
            except Exception as error:
                error.add_note(f"in node {step.node.name!r} ({step.node.op})")
                raise
            for index in step.done:
                slots[index] = None
        found: Tensor = slots[self.output]
        return found

    def _step(self, node: Node) -> Step:
        args = [self._resolved(each) for each in node.args]
        kwargs = {name: self._resolved(each) for name, each in node.kwargs.items()}
        self._slots[node.name] = target = self._take()
        return Step(
            node, function_of(node.op), args, kwargs, target, OPERATORS[node.op].makes, self._norms.get(node.name)
        )

    def _take(self) -> int:
        self._count += 1
        return self._count - 1

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._resolved(each) for each in value]
        if not isinstance(value, dict):
            return getattr(torch, value) if isinstance(value, str) and value in _FORMATS else value
        (key, name), *_ = value.items()
        if key == "node":
            return Slot(self._slots[name])
        if key == "tensor":
            if name not in self.tensors:
                self.tensors[name] = self._take()
            return Slot(self.tensors[name])
        return getattr(torch, name) if key == "dtype" else float(name)

    def _let_go(self) -> None:
        """Note with each step which values nobody reads after it: activations are as large as all else."""
        kept = {self.output, *self.tensors.values()}
        for step in reversed(self.steps):
            read = {slot.index for slot in _slots_in([*step.args, *step.kwargs.values()])} | {step.target}
            step.done = sorted(read - kept)
            kept |= read


_FORMATS = frozenset({"contiguous_format", "channels_last", "preserve_format"})


def _filled(value: Any, slots: list[Any]) -> Any:
    if type(value) is Slot:
        return slots[value.index]
    return [_filled(each, slots) for each in value] if type(value) is list else value


def _slots_in(values: list[Any]) -> list[Slot]:
    found = []
    for value in values:
        if isinstance(value, Slot):
            found.append(value)
        elif isinstance(value, list):
            found += _slots_in(value)
    return found


# ---------------------------------------------------------------------------------------------------------- BatchNorm
def norm_of(node: Node, training: bool) -> str | None:
    """Return the path of the BatchNorm layer whose running statistics a node updates or, in evaluation, reads.

    None for any other node, and for one that its author has put into the other mode for good.
    """
    if node.op != BATCH_NORM or len(node.args) != 9 or node.args[5] is not training:
        return None
    names = [next(arguments.named(each, "tensor"), "") for each in node.args[3:5]]
    (path, _, mean), (other, _, variance) = (name.rpartition(".") for name in names)
    is_layer = path == other and (mean, variance) == ("running_mean", "running_var")
    return path if is_layer and path and isinstance(node.args[6], float) else None


def _normalised(step: Step, args: list[Any], layer: nn.Module) -> Tensor:
    """Run a BatchNorm in the mode of its own layer, which may be another than the network's.

    So its owner can leave it in evaluation mode while the rest trains (a batch of one has no variance), and compute its
    statistics anew while the rest is in evaluation mode.
    """
    training = layer.training
    momentum = layer.momentum
    tracked = layer._buffers.get("num_batches_tracked")
    if training and tracked is not None:
        tracked.add_(1)
        momentum = 1.0 / float(tracked) if momentum is None else momentum
    found: Tensor = step.call(*args[:5], training, 0.0 if momentum is None else momentum, *args[7:])
    return found
