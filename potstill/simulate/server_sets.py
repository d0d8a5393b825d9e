"""The server's data of a simulation: checked as a client's would be, and written where jobs read them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk import data, named
from contract.federation import FederationConfig
from contract.tensors import write_file
from potstill.simulate.config import ROLES, SimulationError
from potstill.simulate.history import digest_of
from worker.specs import Datasets


def paths(server: Mapping[str, Any], config: FederationConfig, folder: Path) -> Datasets:
    """Return where the server's sets are; those that are no files are written into a folder.

    Raises:
        SimulationError: a set without labels that needs them.
    """
    found: dict[str, Path] = {}
    for role in ROLES:
        given = server.get(role)
        if given is None:
            continue
        if isinstance(given, (str, Path)):
            found[role] = Path(given).absolute()
            continue
        found[role] = folder / f"{role}.safetensors"
        folder.mkdir(exist_ok=True)
        write_file(found[role], _arrays(given, role, config))
    return Datasets(**found)


def fingerprint(server: Mapping[str, Any], config: FederationConfig) -> str:
    """Return a digest of the server's data."""
    digest = hashlib.sha256()
    for role in ROLES:
        given = server.get(role)
        if isinstance(given, (str, Path)):
            digest.update(f"\0{role}\0{digest_of(Path(given))}".encode())
        elif given is not None:
            digest.update(f"\0{role}\0".encode())
            for values in _arrays(given, role, config).values():
                digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _arrays(given: Any, role: str, config: FederationConfig) -> dict[str, Any]:
    """Return a server set's tensors, checked as a client's would be."""
    labelled = isinstance(given, (tuple, list))
    wanted = role != "unlabeled" or config.recipe.needs_labels
    if wanted and not labelled:
        raise SimulationError(f"server: {role} needs labels; give a pair (x, y)")
    inputs = given[0] if labelled else given
    labels = given[1] if labelled else np.zeros((len(inputs), *config.task.label_shape), np.int64)
    samples = data.load((inputs, labels))
    samples.check(config.task)
    assert samples.labels is not None
    arrays = {"inputs": named.one(samples.inputs, "a simulation").numpy()}
    return arrays | ({"labels": samples.labels.numpy()} if wanted else {})
