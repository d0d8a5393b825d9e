"""A call that long work over tensor files makes again and again, so that whoever wants it to end can say so.

Rules read and write files block by block, and nothing else of theirs takes long; so a job can be stopped in any of them
without each having to know.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_beat: ContextVar[Callable[[], None] | None] = ContextVar("potstill_beat", default=None)


@contextmanager
def watched(beat: Callable[[], None]) -> Iterator[None]:
    """Within the block, and in this thread, call `beat` at every block that is read or written; it may raise."""
    token = _beat.set(beat)
    try:
        yield
    finally:
        _beat.reset(token)


def pulse() -> None:
    """Let the watcher, if there is one, have its say."""
    beat = _beat.get()
    if beat is not None:
        beat()
