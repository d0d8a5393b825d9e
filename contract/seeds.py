"""Seeds derived from names, so that two runs of one federation draw the same numbers whatever their ids are."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NOTED_AT_MOST = 1000
_noted: ContextVar[dict[tuple[str | int, ...], None] | None] = ContextVar("noted_seeds", default=None)


def derive_seed(seed: int, *path: str | int) -> int:
    """Return a 63-bit seed for one use of randomness.

    Args:
        seed: the federation's seed.
        path: what the numbers are for, such as ``("round", 3, "client", "ward-7", "shuffle")``. Names, never
            database ids: a second run of the same federation has other ids and must draw the same numbers.
    """
    noted = _noted.get()
    if noted is not None and len(noted) < _NOTED_AT_MOST:
        noted[path] = None
    text = "\x1f".join(str(part) for part in ("potstill", seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derive_uniform(seed: int, *path: str | int) -> float:
    """Return a number in the open interval (0, 1), derived as in `derive_seed`."""
    return (derive_seed(seed, *path) + 0.5) / 2**63


def noted_seeds() -> list[tuple[str | int, ...]]:
    """Return the names of the seeds that were noted so far, inside `noting_seeds`."""
    return list(_noted.get() or ())


@contextmanager
def noting_seeds() -> Iterator[dict[tuple[str | int, ...], None]]:
    """Note the names of all seeds that this thread derives, in the order of their first use; at most a thousand."""
    noted: dict[tuple[str | int, ...], None] = {}
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)
