"""Arrays that a thread uses again for each block: the system maps and clears no memory anew for what lives a moment.

A mebibyte that is asked for and let go costs more than what is done with it. Where blocks are folded one after another
(`reused`), `room` gives the same memory each time; elsewhere, where many are under way at once, memory of its own.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from contract.tensors import Array
from worker.parts.arrays import Float


class _Rooms(threading.local):
    """Of one thread; they go with it."""

    def __init__(self) -> None:
        self.mine: dict[str, Array] = {}
        self.in_use = False


_ROOMS = _Rooms()


@contextmanager
def reused() -> Iterator[None]:
    """Within the block, in this thread, what `room` gives is valid until it is asked for the same name again."""
    before, _ROOMS.in_use = _ROOMS.in_use, True
    try:
        yield
    finally:
        _ROOMS.in_use = before


def room(name: str, count: int, dtype: npt.DTypeLike = np.float64) -> Array:
    """Return an array [count] with anything in it.

    Args:
        name: what for: of each name there is one at a time.
        count: values.
        dtype: of them.
    """
    if not _ROOMS.in_use:
        return np.empty(count, dtype)
    found = _ROOMS.mine.get(name)
    if found is None or len(found) < count or found.dtype != dtype:
        found = _ROOMS.mine[name] = np.empty(count, dtype)
    return found[:count]


def forget() -> None:
    """Let this thread's rooms go."""
    _ROOMS.mine.clear()


def wide_room(name: str, count: int) -> Float:
    """Return a room of float64 [count]."""
    found: Float = room(name, count)
    return found
