"""What `torch.export` wrote down of a forward pass, as a document's graph."""

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from contract.networks.document import INPUT, MAX_VALUES, Constant, Graph, Node
from contract.networks.errors import NetworkError
from contract.networks.operators import OPERATORS

_OWN: Mapping[Any, str] = {
    operator.add: "int.add",
    operator.sub: "int.sub",
    operator.mul: "int.mul",
    operator.floordiv: "int.floordiv",
    operator.mod: "int.mod",
    operator.neg: "int.neg",
    operator.getitem: "getitem",
}
_SAME = {
    "aten.lift_fresh_copy.default": "aten.clone.default",
    "aten.detach_.default": "aten.detach.default",
    "aten.__and__.Tensor": "aten.bitwise_and.Tensor",
    "aten.__or__.Tensor": "aten.bitwise_or.Tensor",
}
_PLACES = ("device", "layout", "pin_memory")
_ASSERTS = ("aten._assert", "aten.sym_constrain_range")
_REMEDY = "write that step with others (docs/architectures.md has the list)"


class Encoder:
    """Writes graphs of one module.

    Attributes:
        constants: values that graphs read and that are no state, by name.
    """

    def __init__(self, state: Mapping[str, Any], prefix: str = ""):
        """Take the names of the module's state; `prefix` is what an outer module adds to them."""
        self._state, self._prefix = state, prefix
        self.constants: dict[str, Constant] = {}

    def graph(self, exported: fx.GraphModule) -> Graph:
        """Return a graph.

        Raises:
            NetworkError: a call that is not on the list, or values that are too large for a document.
        """
        names: dict[fx.Node, Any] = {}
        nodes: list[Node] = []
        for node in exported.graph.nodes:
            if node.op == "placeholder":
                names[node] = {"node": INPUT}
            elif node.op == "get_attr":
                names[node] = {"tensor": self._tensor(exported, str(node.target))}
            elif node.op == "call_function" and not _is_idle(node):
                nodes.append(self._node(node, names))
                names[node] = {"node": nodes[-1].name}
            elif node.op == "call_module" and not str(node.target).startswith("_guards"):
                raise NetworkError("forward", f"calls {node.target!r}, a part that is no graph; {_REMEDY}")
        output, *features = self._outputs(exported, names)
        return Graph(nodes=nodes, output=output, features=features[0] if features else None)

    def _outputs(self, exported: fx.GraphModule, names: Mapping[fx.Node, Any]) -> list[str]:
        last = next(iter(reversed(exported.graph.nodes)))
        given = last.args[0] if isinstance(last.args[0], list | tuple) else [last.args[0]]
        found = [names.get(each, {}).get("node") if isinstance(each, fx.Node) else None for each in given]
        if not found or None in found or INPUT in found:
            raise NetworkError("forward", "returns something else than what its operators made; return one tensor")
        return [str(name) for name in found]

    def _node(self, node: fx.Node, names: Mapping[fx.Node, Any]) -> Node:
        name = _operator_of(node)
        if name not in OPERATORS:
            where = f" ({said})" if (said := _line_of(node)) else ""
            raise NetworkError("forward", f"operator {name!r}{where} is not on the list; {_REMEDY}")
        kwargs = {key: value for key, value in node.kwargs.items() if key not in _PLACES}
        try:
            args = [_encoded(each, names) for each in node.args]
            return Node(
                name=_named(node.name),
                op=name,
                args=args,
                kwargs={key: _encoded(each, names) for key, each in kwargs.items()},
            )
        except TypeError as error:
            raise NetworkError("forward", f"{name}: {error}; {_REMEDY}") from None

    def _tensor(self, exported: fx.GraphModule, target: str) -> str:
        name = target.removeprefix(self._prefix)
        if name in self._state:
            return name
        value: Any = exported
        for step in target.split("."):
            value = getattr(value, step)
        if not isinstance(value, Tensor):
            what = "a part with a graph of its own, such as a block under torch.no_grad() (take detach() instead)"
            raise NetworkError("forward", f"runs {name!r}, {what}; {_REMEDY}")
        if name not in self.constants:
            self.constants[name] = _constant(name, value)
        return name


def _named(name: str) -> str:
    """Return the name of a node, which an author's may be as long as she likes."""
    name = name if len(name) <= 128 else f"{name[:100]}_{abs(hash(name))}"
    return f"{name}_" if name == INPUT else name


def _is_idle(node: fx.Node) -> bool:
    """Whether a call only asserts something of shapes, or is read by nothing but such calls."""
    if _operator_of(node).startswith(_ASSERTS):
        return True
    plain = not isinstance(node.target, torch._ops.OpOverload)
    return plain and all(_is_idle(user) for user in node.users)


def _operator_of(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        name = str(target)
        return _SAME.get(name, name)
    return _OWN.get(target) or str(getattr(target, "__name__", target))


def _line_of(node: fx.Node) -> str:
    """Return the author's line that a call is from, as far as torch knows it."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").strip().splitlines()]
    return " ".join(lines[-2:])[:200]


def _encoded(value: Any, names: Mapping[fx.Node, Any]) -> Any:
    if isinstance(value, fx.Node):
        return names[value]
    if isinstance(value, list | tuple):
        return [_encoded(each, names) for each in value]
    if isinstance(value, float) and math.isinf(value):
        return {"float": "inf" if value > 0 else "-inf"}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return str(value).removeprefix("torch.")
    if value is None or (isinstance(value, bool | int | float | str) and value == value):
        return value
    raise TypeError(f"an argument is {type(value).__name__} {str(value)[:60]}, which a document has no form for")


def _constant(name: str, value: Tensor) -> Constant:
    if value.numel() > MAX_VALUES:
        raise NetworkError(
            "forward",
            f"reads {name!r}, {list(value.shape)}, which is no part of the state dict; register it as a buffer "
            "(persistent=True), and it travels with the weights",
        )
    if not bool(torch.isfinite(value).all()):
        raise NetworkError("forward", f"reads {name!r}, which has values that are not finite; make it in forward")
    values = value.detach().cpu().flatten().tolist()
    return Constant(name=name, dtype=_dtype(value), shape=list(value.shape), values=values)


def _dtype(value: Tensor) -> Any:
    return str(value.dtype).removeprefix("torch.")
