"""Documents that come from outside: everything about one is refused here that can be told without torch."""

import math
from collections import Counter

from contract.bounds import MOST_OUTPUTS, MOST_VALUES
from contract.networks import arguments, parts
from contract.networks.document import (
    INPUT,
    MAX_ELEMENTS,
    MAX_VALUES,
    Document,
    Graph,
    Mode,
    Node,
    Tensor,
    parse,
)
from contract.networks.errors import NetworkError
from contract.networks.operators import OPERATORS
from contract.networks.schemas import Operator

_MODES: tuple[Mode, ...] = ("train", "eval")


def read(text: bytes) -> Document:
    """Return the document that JSON text is.

    Raises:
        NetworkError: why it is none, naming field, node and operator.
    """
    document = parse(text)
    check(document)
    return document


def check(document: Document) -> None:
    """Refuse a document whose parts do not fit together.

    Raises:
        NetworkError: naming field, node and operator.
    """
    _check_tensors(document)
    _check_form(document)
    scope = frozenset(each.name for each in document.stored)
    buffers = frozenset(each.name for each in document.tensors if each.kind == "buffer")
    for mode in _MODES:
        graph = document.graph(mode)
        written = buffers if mode == "train" else frozenset()
        _check_graph(mode, graph, arguments.Scope(scope), written)
    if (document.train.features is None) != (document.eval.features is None):
        raise NetworkError("features", "are named in one graph and not in the other; name them in both or in neither")
    _check_used(document)


def _check_form(document: Document) -> None:
    for field, shape, most in (("input", document.input.shape, MOST_VALUES), ("output", document.output, MOST_OUTPUTS)):
        if math.prod(shape) > most:
            raise NetworkError(field, f"{shape} has more than {most:,} values a sample; take smaller samples")
    if document.role == "discriminator" and document.output:
        raise NetworkError("output", f"a discriminator gives one score a sample, [], not {document.output}")
    if document.role != "discriminator" and not document.output:
        raise NetworkError("output", f"a {document.role} gives more than one number a sample; a discriminator gives []")
    if document.role == "generator" and (len(document.input.shape) != 1 or document.input.dtype != "float32"):
        raise NetworkError("input", "a generator reads noise, float32 [latent]")
    if document.gives == "probability" and document.role != "discriminator":
        raise NetworkError("gives", "is of discriminators; leave it out")


def _check_tensors(document: Document) -> None:
    names = Counter(each.name for each in document.stored)
    double = next((name for name, count in names.items() if count > 1), None)
    if double is not None:
        raise NetworkError("tensors", f"{double!r} is there twice; keep one of them")
    for name in names:
        path = name.split(".")
        above = next((".".join(path[:n]) for n in range(1, len(path)) if ".".join(path[:n]) in names), None)
        if above is not None:
            raise NetworkError("tensors", f"{above!r} is a tensor and has {name!r} below it; rename one")
    if sum(math.prod(each.shape) for each in document.tensors) > MAX_ELEMENTS:
        raise NetworkError("tensors", f"have more than {MAX_ELEMENTS:,} values together; take a smaller network")
    if sum(len(each.values) for each in document.constants) > MAX_VALUES:
        raise NetworkError("constants", f"have more than {MAX_VALUES:,} values together; make them persistent buffers")
    whole = next((each for each in document.tensors if each.kind == "parameter" and "float" not in each.dtype), None)
    if whole is not None:
        raise NetworkError("tensors", f"{whole.name!r} is {whole.dtype}, which no gradient changes; make it a buffer")
    _check_ties(document.tensors)


def _check_ties(tensors: list[Tensor]) -> None:
    earlier: dict[str, Tensor] = {}
    for each in tensors:
        if each.same_as is not None:
            first = earlier.get(each.same_as)
            if first is None or first.same_as is not None:
                raise NetworkError("tensors", f"{each.name!r} is to be {each.same_as!r}, which is none before it")
            if (first.dtype, first.shape, first.kind) != (each.dtype, each.shape, each.kind):
                raise NetworkError("tensors", f"{each.name!r} is to be {each.same_as!r}, which has another form")
        earlier[each.name] = each


def _check_graph(mode: Mode, graph: Graph, scope: arguments.Scope, written: frozenset[str]) -> None:
    scope.nodes[INPUT] = "tensor"
    for node in graph.nodes:
        place = f"{mode}.{node.name}"
        operator = OPERATORS.get(node.op)
        if operator is None:
            raise NetworkError(place, f"operator {node.op!r} is not on the list (docs/architectures.md); {_REMEDY}")
        if node.name in scope.nodes:
            raise NetworkError(place, f"a node of this name is there before ({node.op}); give each its own")
        try:
            _check_node(node, operator, scope, written)
        except NetworkError as error:
            where = f", {error.field}" if error.field else ""
            raise NetworkError(place, f"{node.op}{where}: {error.detail}") from None
        scope.nodes[node.name] = operator.gives
    for field, name in (("output", graph.output), ("features", graph.features)):
        if name is not None and scope.nodes.get(name) != "tensor":
            raise NetworkError(f"{mode}.{field}", f"{name!r} is no node that gives a tensor; name one")
    if graph.features is not None:
        parts.head(graph)


_REMEDY = "write that step with others, or ask for it: a row and a test add one"


def _check_node(node: Node, operator: Operator, scope: arguments.Scope, written: frozenset[str]) -> None:
    for argument, value in arguments.paired(node, operator):
        arguments.check(argument, value, scope)
        state = next(arguments.named(value, "tensor"), None) if argument.changed else None
        if state is not None and state not in written:
            raise NetworkError(
                argument.name, f"writes into {state!r}; only buffers may change, and only in training: clone it first"
            )


def _check_used(document: Document) -> None:
    """Refuse parameters that no graph reads: they would be averaged and sent for nothing."""
    first = {each.name: each.same_as or each.name for each in document.tensors}
    used = parts.tensors(document.train.nodes) | parts.tensors(document.eval.nodes)
    read = {first.get(name) for name in used}
    idle = [each.name for each in document.tensors if each.kind != "buffer" and first[each.name] not in read]
    if idle:
        more = f", and {len(idle) - 1} more" if len(idle) > 1 else ""
        raise NetworkError("tensors", f"parameter {idle[0]!r}{more}: no node reads it; take it out of the module")
