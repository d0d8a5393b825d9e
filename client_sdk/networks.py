"""Networks as data: the graph of a module of one's own, written on its author's machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from client_sdk.errors import ModelMismatch
from client_sdk.models import UserModel, make_own
from contract.networks.document import Document, canonical, digest_of
from contract.networks.errors import NetworkError
from contract.nn import codec
from contract.nn.graphs.exporting import export


def export_network(
    model: UserModel,
    input_shape: Sequence[int],
    path: str | Path,
    *,
    dtype: Literal["float32", "int64"] = "float32",
    role: Literal["classifier", "discriminator", "generator"] = "classifier",
    head: str | None = None,
    features: str | None = None,
    gives: Literal["score", "probability"] = "score",
) -> Document:
    """Write a module's graph as JSON, and its weights beside it; return the document.

    The service and its devices build the network of these two files, without the module's code, and get the same
    numbers bit for bit, in training and in evaluation.

    Args:
        model: a module, or a function that makes one; it stays as it is.
        input_shape: of one sample, or [latent] of a generator.
        path: of the graph, such as ``net.json``; the weights go to ``net.safetensors``.
        dtype: of the samples; int64 for token ids.
        role: what the network is for.
        head: path of the part that makes the output of the features, such as ``fc``: what it reads is the features.
        features: path of the part whose output is the features, where no part is the head.
        gives: what a discriminator ends in.

    Raises:
        ModelMismatch: the module cannot be traced, or its graph is not the module; with the line, operator or tensor.
    """
    module, target = make_own(model), Path(path)
    form: dict[str, Any] = {"role": role, "head": head, "features": features, "gives": gives}
    try:
        document = export(module, input_shape, dtype, **form)
    except NetworkError as error:
        raise ModelMismatch(f"model: {error}") from error
    text = canonical(document)
    codec.save_state(module, target.with_suffix(".safetensors"), {"network": digest_of(text)})
    target.write_bytes(text)
    return document
