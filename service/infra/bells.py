"""Bells: a process of this machine waits for another one's word, at once and without looking again and again.

A bell is a FIFO: one ring, one byte, which one of those who wait takes. It is a hint and no more: where the folder was
wiped, or its file system has no FIFOs, nobody is rung, and whoever waits looks when the time is up.
"""

import contextlib
import os
import select
import stat
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from contract.private import FILE

_AGAIN_SECONDS = 1.0
"""After which one who answers looks whether its bell is still there."""
_RINGS = 64
"""Taken at once: one who wakes sees to all that there is to do."""


def ring(bell: Path) -> None:
    """Wake one of those who wait at a bell; nobody may be there."""
    with contextlib.suppress(OSError):  # no bell, nobody at it, or rung so often that it holds no more
        handle = os.open(bell, os.O_WRONLY | os.O_NONBLOCK)
        try:
            if _is_bell(handle):
                os.write(handle, b"!")
        finally:
            os.close(handle)


class Bells:
    """The bells at which one thread waits; `hang` comes before it looks, so that no ring after its look is missed."""

    def __init__(self) -> None:
        self._hung: dict[Path, int] = {}

    def hang(self, bells: Collection[Path]) -> None:
        """Have these bells and no others; those that were taken away are made anew."""
        for bell in set(self._hung) - set(bells):
            os.close(self._hung.pop(bell))
        for bell in bells:
            if bell in self._hung and _same(bell, self._hung[bell]):
                continue
            if bell in self._hung:
                os.close(self._hung.pop(bell))
            with contextlib.suppress(OSError):  # no FIFOs here: the time tells
                with contextlib.suppress(FileExistsError):
                    os.mkfifo(bell, FILE)
                handle = os.open(bell, os.O_RDWR | os.O_NONBLOCK)  # writing, too: without a writer it would never rest
                if _is_bell(handle):
                    self._hung[bell] = handle
                else:
                    os.close(handle)

    def wait(self, seconds: float) -> bool:
        """Return when one rings, or when the time is up; say whether one did."""
        if not self._hung:
            time.sleep(seconds)
            return False
        waiting = select.poll()
        for handle in self._hung.values():
            waiting.register(handle, select.POLLIN)
        rung = False
        for handle, _ in waiting.poll(seconds * 1000):
            with contextlib.suppress(BlockingIOError):  # another one took it
                rung = bool(os.read(handle, _RINGS)) or rung
        return rung

    def close(self) -> None:
        """Let go of all."""
        self.hang(())


class Answering:
    """Calls back when a bell rings, from a thread of its own.

    Args:
        bell: in a folder that is there.
        told: called in the thread.
    """

    def __init__(self, bell: Path, told: Callable[[], None]):
        self._bell, self._told, self._bells = bell, told, Bells()
        self._bells.hang({bell})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bell", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._bells.wait(_AGAIN_SECONDS):
                self._told()
            self._bells.hang({self._bell})

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        ring(self._bell)
        self._thread.join(timeout=5)
        self._bells.close()


def _is_bell(handle: int) -> bool:
    return stat.S_ISFIFO(os.fstat(handle).st_mode)


def _same(bell: Path, handle: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(bell.stat(), os.fstat(handle))
    return False
