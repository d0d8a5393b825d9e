"""A training step and an evaluation of a document on noise: what shapes alone do not tell."""

import warnings

import torch
from torch import Tensor, nn

from contract.networks.document import Document, Mode
from contract.networks.errors import NetworkError
from contract.nn.graphs.comparing import samples
from contract.nn.graphs.module import GraphNetwork
from contract.nn.seeding import global_seed

_SAMPLES = 2


def check(document: Document) -> None:
    """Refuse a document that cannot be computed or trained, whatever its weights.

    Args:
        document: one whose shapes fit (`contract.nn.graphs.shapes`).

    Raises:
        NetworkError: naming graph, node and operator, or a parameter that no gradient reaches.
    """
    network = GraphNetwork(document)
    inputs = samples(document.input, _SAMPLES, network.words)
    with global_seed(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=0.1) if parameter.is_floating_point() else None
        output = _run(network, "train", inputs)
        _run(network, "eval", inputs)
    if not output.requires_grad:
        raise NetworkError(
            "train.output", "no gradient reaches a parameter from it; what is detached cannot be trained"
        )
    try:
        output.sum().backward()  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as error:
        raise NetworkError("train", f"the backward pass failed: {_first_line(error)}") from error


def _run(network: GraphNetwork, mode: Mode, inputs: Tensor) -> Tensor:
    """Return the output; where features are named, that of the head, which reads them alone."""
    try:
        output: Tensor = network.train(mode == "train")(inputs)
        if not network.names_features:
            return output
        parted = network.run(mode, "head", network.run(mode, "features", inputs))
        if parted.shape != output.shape:
            raise ValueError(f"head(features(x)) gives {list(parted.shape)}, and the whole {list(output.shape)}")
        return parted
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
        if "allocate memory" in str(error):
            raise
        where = ", ".join(getattr(error, "__notes__", []))
        raise NetworkError(mode, f"{where}: {_first_line(error)}" if where else _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
