"""Token ids of the server's sets, held against what networks know before one of them reads an id that it has not."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from contract import vocabulary
from contract.tensors import TensorFile
from contract.wire.federations import Task
from worker.specs import JobFailure, NetworkRef

_BLOCK = 1 << 20


def check_ids(sets: Mapping[str, Path | None], task: Task, networks: Mapping[str, NetworkRef]) -> None:
    """Refuse a set with token ids that a network does not know.

    Args:
        sets: what each is, and its file.
        networks: by whose they are, for the message.

    Raises:
        JobFailure: bad_option, naming set, sample, id and network.
    """
    if not task.input.is_tokens:
        return
    known = vocabulary.smallest((owner, each.architecture, each.options) for owner, each in networks.items())
    if known is None:
        return
    for what, path in sets.items():
        if path is not None:
            _check(what, path, known)


def _check(what: str, path: Path, known: vocabulary.Known) -> None:
    with TensorFile(path) as file:
        info = file.header.tensors.get("inputs")
        if info is None or not info.numel:
            return  # whoever reads it says so
        for at in range(0, info.numel, _BLOCK):
            ids = file.read_block("inputs", at, min(_BLOCK, info.numel - at))
            wrong = (ids < 0) | (ids >= known.size)
            if wrong.any():
                first = int(np.argmax(wrong))
                sample = (at + first) // (info.numel // info.shape[0])
                raise JobFailure(
                    "bad_option", f"the {what} data set: sample {sample} has the token id {ids[first]}; {known.wanted}"
                )
