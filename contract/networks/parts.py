"""Where a graph is divided: what leads to its features, and the head that makes its output of them."""

from contract.networks import arguments
from contract.networks.document import INPUT, Graph, Node
from contract.networks.errors import NetworkError
from contract.networks.operators import OPERATORS

SIZE = "aten.sym_size.int"


def needed(graph: Graph, output: str, given: frozenset[str] = frozenset()) -> list[Node]:
    """Return the nodes that a value hangs on, in order, those that write into one of them included.

    What is behind the nodes that are `given` is not looked at.
    """
    wanted, found = {output}, []
    for node in reversed(graph.nodes):
        if node.name in given:
            break  # what is before runs with the features
        if node.name in wanted or wanted & set(writes(node)):
            found.append(node)
            wanted.update(reads(node))
    return found[::-1]


def writes(node: Node) -> list[str]:
    """Return the names of the nodes into whose values a node writes."""
    changed = [value for argument, value in arguments.paired(node, OPERATORS[node.op]) if argument.changed]
    return [name for value in changed for name in arguments.named(value, "node")]


def reads(node: Node) -> list[str]:
    """Return the names of the nodes whose values a node reads."""
    return [name for value in (*node.args, *node.kwargs.values()) for name in arguments.named(value, "node")]


def tensors(nodes: list[Node]) -> set[str]:
    """Return the names of the network's tensors that nodes read."""
    return {
        name
        for node in nodes
        for value in (*node.args, *node.kwargs.values())
        for name in arguments.named(value, "tensor")
    }


def is_size_of_batch(node: Node) -> bool:
    """Whether a node gives the number of samples."""
    return node.op == SIZE and node.args == [{"node": INPUT}, 0] and not node.kwargs


def head(graph: Graph) -> list[Node]:
    """Return the nodes that make the output of the features, and of the number of samples.

    Raises:
        NetworkError: the output reads more of the input than that.
    """
    assert graph.features is not None
    nodes = needed(graph, graph.output, frozenset({graph.features}))
    known = {graph.features, *(node.name for node in nodes)}
    if graph.output not in known:
        raise NetworkError(
            "features", f"the output {graph.output!r} comes before {graph.features!r}; name earlier ones"
        )
    sizes = [node for node in _sizes(graph) if node.name not in known]
    known.update(node.name for node in sizes)
    for node in nodes:
        strange = next((name for name in reads(node) if name not in known), None)
        if strange is not None and not is_size_of_batch(node):
            raise NetworkError(
                "features",
                f"the output reads more than {graph.features!r}: node {node.name!r} ({node.op}) reads {strange!r}; "
                "name as features what the last layers read, and nothing else",
            )
    return [*sizes, *nodes]


def _sizes(graph: Graph) -> list[Node]:
    """Return the nodes that hang on the number of samples alone."""
    found: dict[str, Node] = {}
    for node in graph.nodes:
        whole = OPERATORS[node.op].gives == "int" and node.op != SIZE
        if is_size_of_batch(node) or (whole and all(name in found for name in reads(node))):
            found[node.name] = node
    return list(found.values())
