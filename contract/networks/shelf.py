"""The documents that this process has at hand, by the name of the architecture that each is.

A name holds the digest of its document, so what stands here under one can never be another network: a job, a device or
a federation's configuration puts there what it brings, and whoever builds a network by name takes it from here.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.networks import checks
from contract.networks.document import PREFIX, Document, canonical, digest_of, name_of
from contract.networks.facts import Facts, facts_of

_MOST = 10_000


@dataclass(frozen=True)
class Files:
    """Where a document is on this machine, and its first weights, where they are here too."""

    document: Path
    weights: Path | None = None


class _Shelf:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: OrderedDict[str, Facts] = OrderedDict()
        self._files: OrderedDict[str, Files] = OrderedDict()

    def know(self, name: str, facts: Facts) -> None:
        with self._lock:
            _put(self._facts, name, facts)

    def place(self, name: str, files: Files) -> None:
        with self._lock:
            _put(self._files, name, files)

    def facts(self, name: str) -> Facts | None:
        return self._facts.get(name)

    def files(self, name: str) -> Files | None:
        return self._files.get(name)


def _put(kept: OrderedDict[str, Any], name: str, value: Any) -> None:
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > _MOST:
        kept.popitem(last=False)


_shelf = _Shelf()


def know(name: str, facts: Facts) -> None:
    """Remember what a document says."""
    _shelf.know(name, facts)


def place(name: str, files: Files) -> None:
    """Remember where a document is."""
    _shelf.place(name, files)


def has(name: str, *, weights: bool = False) -> bool:
    """Whether a document's file is at hand, and its first weights where they are needed."""
    found = _shelf.files(name)
    here = (found.document, *([found.weights] if weights else [])) if found is not None else (None,)
    return all(path is not None and path.exists() for path in here)


def facts(name: str) -> Facts:
    """Return what a document says.

    Raises:
        ValueError: it is not at hand.
    """
    found = _shelf.facts(name)
    if found is None:
        found = facts_of(document(name))
        know(name, found)
    return found


def files(name: str) -> Files:
    """Return where a document and its first weights are.

    Raises:
        ValueError: it is not at hand.
    """
    found = _shelf.files(name)
    if found is None:
        raise ValueError(
            f"the network {name!r} is not at hand here; register its document, and name it by {PREFIX}NAME"
        )
    return found


def document(name: str) -> Document:
    """Return a document, checked again.

    Raises:
        ValueError: it is not at hand, or its file is another one's.
    """
    text = files(name).document.read_bytes()
    found = checks.read(text)
    if name_of(digest_of(canonical(found))) != name:
        raise ValueError(f"the file of the network {name!r} is another network's; fetch it again")
    return found
