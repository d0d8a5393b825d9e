"""Networks that are documents, by the name of the architecture that each is."""

from functools import lru_cache

from torch import nn

from contract.networks import shelf
from contract.networks.document import Document
from contract.nn.codec import load_state
from contract.nn.graphs import shapes, trying
from contract.nn.graphs.module import GraphNetwork
from contract.tensors import TensorError


def inspect_graph(name: str) -> None:
    """Find what is wrong with a network of the shelf before anything is trained: shapes first, then a step on noise.

    Raises:
        ValueError: its document is not at hand; or NetworkError, naming graph, node and operator.
    """
    document = _document(name)
    shapes.check(document)
    trying.check(document)


@lru_cache(maxsize=8)
def _document(name: str) -> Document:
    return shelf.document(name)


def build_graph(name: str) -> nn.Module:
    """Build a network of the shelf to load weights into; it has zeros.

    Raises:
        ValueError: its document is not at hand, or cannot be built.
    """
    shelf.files(name)
    return GraphNetwork(_document(name))


def initialise_graph(name: str) -> nn.Module:
    """Build a network of the shelf with its first weights.

    Raises:
        ValueError: likewise, or there are no weights.
    """
    weights = shelf.files(name).weights
    if weights is None:
        raise ValueError(
            f"the network {name!r} was registered without first weights; register it with them "
            "(potstill network register --weights), or name initial_model"
        )
    module = build_graph(name)
    try:
        load_state(module, weights)
    except TensorError as error:
        raise ValueError(f"the first weights of the network {name!r} are another one's: {error.detail}") from error
    return module
