"""Fed-ET's shared head: the clients' mean goes into the server's model, the server's goes back into every prototype."""

import os
from pathlib import Path

from contract.tensors import Array, Header, TensorFile, TensorInfo, TensorWriter
from worker.parts.blocks import Source
from worker.parts.fuse import average_files
from worker.pipeline.job import SERVER, Round, header_of
from worker.specs import JobFailure, NetworkRef, PrototypeSpec

HEAD = "head."
"""Prefix of the tensors that all architectures share."""


def _head_of(path: Path) -> dict[str, TensorInfo]:
    return {name: info for name, info in header_of(path).tensors.items() if name.startswith(HEAD)}


def _require_shared(job: Round, server: Path) -> None:
    """Refuse networks whose heads are not interchangeable.

    Raises:
        JobFailure: schema_mismatch.
    """
    if any(each.name == SERVER for each in job.spec.prototypes):
        raise JobFailure("bad_option", f"a prototype is named {SERVER!r}, which is the server model's name; rename it")
    wanted = {name: (info.dtype, info.shape) for name, info in _head_of(server).items()}
    for prototype in job.spec.prototypes:
        found = _head_of(job.current(prototype.name))
        if not wanted or {name: (info.dtype, info.shape) for name, info in found.items()} != wanted:
            raise JobFailure(
                "schema_mismatch",
                f"prototype {prototype.name!r} and the server model do not end in the same head; give all of them the "
                "architecture option common_head",
            )


def _mean_head(job: Round) -> dict[str, Array]:
    """Return h_bar, the mean head of all participants of all architectures (Fed-ET eq. 2).

    Plain where clients were drawn in proportion to their samples, by n_k where all were alike.
    """
    plain, target = job.spec.recipe.selection == "samples", job.file("head", SERVER)
    sources = [Source(each.client, each.weights, 1 if plain else each.num_samples) for each in job.participants]
    average_files(sources, target, only=lambda name: name.startswith(HEAD))
    with TensorFile(target) as file:
        mean = {name: file.read(name) for name in file.names}
    target.unlink()
    return mean


def server_of(job: Round) -> PrototypeSpec:
    """Return the server's model.

    Raises:
        JobFailure: bad_option, where there is none.
    """
    server = job.spec.server_model
    if server is None or server.network.weights is None:
        raise JobFailure("bad_option", "the recipe's student is the server's model, and there is none: server_model")
    return server


def with_mean_head(job: Round) -> NetworkRef:
    """Return the server's network with the participants' mean head.

    Raises:
        JobFailure: bad_option (no server model), schema_mismatch (heads differ).
    """
    server = server_of(job)
    assert server.network.weights is not None
    _require_shared(job, server.network.weights)
    target = job.file("average", SERVER)
    _replace(server.network.weights, _mean_head(job), target)
    return server.network.model_copy(update={"weights": target})


def push_back(job: Round) -> None:
    """Put the server's head into every prototype's model, also into those without participants (Fed-ET step 5)."""
    with TensorFile(job.models[SERVER]) as file:
        shared = {name: file.read(name) for name in file.names if name.startswith(HEAD)}
    for prototype in job.spec.prototypes:
        target = job.file("model", prototype.name)
        _replace(job.current(prototype.name), shared, target)
        job.models[prototype.name] = target


def _replace(path: Path, tensors: dict[str, Array], target: Path) -> None:
    """Copy a file with some of its tensors replaced, one in memory at a time."""
    partial = target.with_suffix(".part")
    with TensorFile(path) as file:
        header: Header = file.header
        infos = {name: (info.dtype, info.shape) for name, info in header.tensors.items()}
        with TensorWriter(partial, infos, header.metadata) as writer:
            for name in file.names:
                writer.write(name, tensors[name] if name in tensors else file.read(name))
    os.replace(partial, target)
