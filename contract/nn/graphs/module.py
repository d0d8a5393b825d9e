"""The module that a document is: its tensors have their author's names, and train() and eval() choose the graph."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from contract.networks import parts
from contract.networks.document import INPUT, Constant, Document, Mode, Node
from contract.nn.graphs.program import Program, Watch, norm_of

_EMBEDDING = "aten.embedding.default"
_COUNTER = "num_batches_tracked"


class Part(nn.Module):
    """What holds tensors below one step of their names."""


class Norm(nn.modules.batchnorm._BatchNorm):
    """What holds a BatchNorm's tensors; it has that layer's mode, momentum and running statistics."""

    def __init__(self, momentum: float):
        nn.Module.__init__(self)
        self.momentum, self.track_running_stats = momentum, True

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        nn.Module._load_from_state_dict(self, *args, **options)  # torch's own adds a counter that may not be there

    def extra_repr(self) -> str:
        """Return what is shown of it."""
        return f"momentum={self.momentum}"


class Features(nn.Module):
    """``network.features(x)``: what the head reads. It may hold tensors whose author called them so."""

    _graph_of: Any  # set without its becoming a part of this one

    def __init__(self, network: "GraphNetwork"):
        super().__init__()
        object.__setattr__(self, "_graph_of", network)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of inputs [B, *input]."""
        return self._graph_of.run(self._graph_of.mode, "features", x)  # type: ignore[no-any-return]


class Head(Features):
    """``network.head(features)``: the output."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for features."""
        return self._graph_of.run(self._graph_of.mode, "head", x)  # type: ignore[no-any-return]


class GraphNetwork(nn.Module):
    """A document as a module: [B, *input] -> [B, *output].

    In training mode it runs the training graph, else the other; both read the same tensors. Where features are named it
    has ``features`` and ``head`` with forward(x) == head(features(x)), and a generator has ``latent``.

    Args:
        document: a checked one.

    Raises:
        ValueError: torch has no such operator, or a tensor's name is one that a module needs for itself.
    """

    def __init__(self, document: Document):
        super().__init__()
        self._graph_input = document.input
        norms = _norms(document)
        self._graph_programs = {mode: _programs(document, mode, norms) for mode in _MODES}
        self._graph_norms = {path: Norm(momentum) for path, momentum in norms.items()}
        self._graph_places: dict[str, tuple[nn.Module, str]] = {}
        self.words = _words(document)
        if document.role == "generator":
            self.latent = document.input.shape[0]
        self.names_features = document.train.features is not None
        self._graph_parts = {"features": Features(self), "head": Head(self)} if self.names_features else {}
        self._register(document)
        for name, part in self._graph_parts.items():
            self._modules.setdefault(name, part)  # an author's own part of that name is there already, and is this

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for inputs [B, *input].

        Raises:
            ValueError: the inputs are not what the network reads.
        """
        self._check(x)
        return self.run(self.mode, "whole", x)

    @property
    def mode(self) -> Mode:
        """Which graph runs."""
        return "train" if self.training else "eval"

    def run(self, mode: Mode, part: str, value: Tensor, watch: Watch | None = None) -> Tensor:
        """Run `whole`, `features` or `head` of a graph; see `Program.run`."""
        program: Program = self._graph_programs[mode][part]
        tensors = {name: self._tensor(name, value) for name in program.tensors}
        return program.run(value, tensors, self._graph_norms, watch)

    def _tensor(self, name: str, value: Tensor) -> Tensor:
        holder, leaf = self._graph_places[name]
        found = holder._parameters.get(leaf)
        held = holder._buffers.get(leaf) if found is None else found
        assert held is not None
        return held

    def _check(self, x: Tensor) -> None:
        wanted = self._graph_input
        kinds = x.dtype == torch.int64 if wanted.dtype == "int64" else x.is_floating_point()
        if list(x.shape[1:]) != wanted.shape or x.ndim == 0 or not kinds:
            raise ValueError(
                f"the network reads {wanted.dtype} [B, {', '.join(map(str, wanted.shape))}], and was given "
                f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
            )
        if self.words is not None and x.numel() and not x.is_meta:
            low, high = int(x.min()), int(x.max())
            if low < 0 or high >= self.words:
                raise ValueError(
                    f"token ids go from {low} to {high}, but the network has {self.words} of them: use the "
                    "tokenizer that it was made for"
                )

    def _register(self, document: Document) -> None:
        for tensor in document.tensors:
            holder, leaf = self._place(tensor.name)
            if hasattr(holder, leaf):
                raise ValueError(f"tensor {tensor.name!r}: a module has something else of that name; rename it")
            if tensor.same_as is not None:
                value: Any = self._tensor(tensor.same_as, torch.empty(0))
            else:
                value = torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype))
            if tensor.kind == "buffer":
                holder.register_buffer(leaf, value)
            elif tensor.same_as is not None:
                holder.register_parameter(leaf, value)
            else:
                holder.register_parameter(leaf, nn.Parameter(value, requires_grad=tensor.kind == "parameter"))
        for norm in self._graph_norms.values():
            if _COUNTER not in norm._buffers:
                norm.register_buffer(_COUNTER, torch.tensor(0), persistent=False)
        for constant in document.constants:
            holder, leaf = self._place(constant.name)
            holder.register_buffer(leaf, _constant(constant), persistent=False)

    def _place(self, name: str) -> tuple[nn.Module, str]:
        """Return what holds a tensor, made if need be, and the last step of its name."""
        holder: nn.Module = self
        *steps, leaf = name.split(".")
        for depth, step in enumerate(steps, 1):
            path = ".".join(steps[:depth])
            if step not in holder._modules:
                if hasattr(holder, step):
                    raise ValueError(f"tensor {name!r}: a module has something else called {step!r}; rename it")
                holder._modules[step] = self._graph_norms.get(path) or self._graph_parts.get(path) or Part()
            found = holder._modules[step]
            assert found is not None
            holder = found
        self._graph_places[name] = holder, leaf
        return holder, leaf


_MODES: tuple[Mode, ...] = ("train", "eval")


def _programs(document: Document, mode: Mode, norms: Mapping[str, float]) -> Mapping[str, Program]:
    graph = document.graph(mode)
    nodes = [node for node in graph.nodes if not _counts(node, norms)]
    layers = {node.name: norm_of(node, mode == "train") for node in nodes}
    known = {name: path for name, path in layers.items() if path is not None and path in norms}
    found = {"whole": Program(nodes, [INPUT], graph.output, known)}
    if graph.features is not None:
        end = next((number for number, node in enumerate(nodes, 1) if node.name == graph.features), 0)
        found["features"] = Program(nodes[:end], [INPUT], graph.features, known)
        last = [node for node in parts.head(graph) if not _counts(node, norms)]
        found["head"] = Program(last, [INPUT, graph.features], graph.output, known)
    return found


def _counts(node: Node, norms: Mapping[str, float]) -> bool:
    """Whether a node counts a BatchNorm's batches, which that layer does here, by its own mode."""
    if node.op != "aten.add_.Tensor":
        return False
    path, _, leaf = next(iter(parts.tensors([node])), "").rpartition(".")
    return leaf == _COUNTER and path in norms


def _norms(document: Document) -> dict[str, float]:
    """Return path -> momentum of the BatchNorms whose running statistics are trained."""
    found: dict[str, float] = {}
    for node in document.train.nodes:
        path = norm_of(node, True)
        if path is not None:
            found.setdefault(path, node.args[6])
    return found


def _words(document: Document) -> int | None:
    """Return how many token ids there are: rows of the smallest table that is looked up by the input itself."""
    shapes = {each.name: each.shape for each in document.tensors}
    rows = [
        shapes[node.args[0]["tensor"]][0]
        for node in (*document.train.nodes, *document.eval.nodes)
        if node.op == _EMBEDDING and node.args[1:2] == [{"node": INPUT}] and "tensor" in node.args[0]
    ]
    return min(rows, default=None)


def _constant(constant: Constant) -> Tensor:
    return torch.tensor(constant.values, dtype=getattr(torch, constant.dtype)).reshape(constant.shape)
