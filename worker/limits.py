"""Memory and disk: a limit for one job, who dies first without any, and how that is told from others."""

import contextlib
import errno
import os
import resource
import sys
import threading
from collections import deque
from pathlib import Path
from typing import IO

_COUNTERS = (
    (Path("/proc/vmstat"), "oom_kill"),  # the whole machine, and in a container its own where the kernel tells
    (Path("/sys/fs/cgroup/memory.events"), "oom_kill"),
    (Path("/sys/fs/cgroup/memory/memory.oom_control"), "oom_kill"),
)


_MEMORY = (
    "out of memory",
    "allocate memory",
    "memory allocation failed",
    "memory allocation of",  # "... 262144 bytes failed": of libraries in Rust
    "bad_alloc",
    "MemoryError",
    "failed to map segment from shared object",  # of a library that is loaded; without a reason after it, for memory
    "cannot map zero-fill pages",  # the same, of a library's own variables
)
_LINE = 4096
_STORAGE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.ESTALE, errno.ENOENT})


def says_out_of_memory(text: str) -> bool:
    """Whether a message of Python, torch, the C++ runtime or the loader says that there was no memory left."""
    return any(words in text for words in _MEMORY) and "Operation not permitted" not in text


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was no memory left, of the machine or of an accelerator."""
    if isinstance(error, MemoryError):
        return True
    unsaid = ("without exception set", "without setting an exception")
    if isinstance(error, SystemError) and any(words in str(error) for words in unsaid):
        return _is_limited()  # Python had no memory for the MemoryError either
    return isinstance(error, RuntimeError | OSError | ImportError) and says_out_of_memory(str(error))


def _is_limited() -> bool:
    return any(
        resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS)
    )


def out_of_memory(said: object) -> str:
    """Return the detail of a job's failure for want of memory."""
    text = str(said).strip()
    return f"not enough memory{': ' if text else ''}{text}; use smaller models or batches"


def is_storage_fault(error: BaseException) -> bool:
    """Whether a folder was taken away, may not be written, or its disk fails: no fault of the job's."""
    return isinstance(error, OSError) and error.errno in _STORAGE


class LastWords:
    """Passes on what a process writes to its standard error, and remembers the last lines.

    C and C++ end a process that gets no memory after a line there, by a signal or a status that tells nothing.
    """

    def __init__(self, pipe: IO[str]):
        self._pipe, self._lines = pipe, deque[str](maxlen=50)
        self._thread = threading.Thread(target=self._pass_on, name="last-words", daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        with self._pipe:
            while line := self._pipe.readline(_LINE):
                self._lines.append(line)
                with contextlib.suppress(OSError):
                    os.write(2, line.encode(errors="replace"))

    def forget(self) -> None:
        """Begin anew: what was said before is of another job."""
        self._lines.clear()

    def of_memory(self) -> str | None:
        """Return the last line that says that there was no memory, if there is one; of a process that has ended."""
        self._thread.join(2.0)
        return next((line.strip() for line in reversed(self._lines) if says_out_of_memory(line)), None)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that there is no room left on the disk, in a quota, or under a limit of file sizes."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def limit_memory(limit: int) -> None:
    """Give this process at most so many bytes of memory of its own; beyond that an allocation fails, and nobody else's.

    RLIMIT_DATA and not RLIMIT_AS: accelerators reserve hundreds of gigabytes of addresses that cost nothing.
    """
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def die_first() -> None:
    """Ask Linux to end this process before others when memory runs out: its job is tried again, a database is not."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800", encoding="utf-8")


def oom_kills() -> int:
    """Return how many processes Linux has ended for want of memory, as far as it can be seen from here."""
    return sum(_count(path, name) for path, name in (*_COUNTERS, *_own_group()))


def _own_group() -> list[tuple[Path, str]]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "" and group != "/":
                return [(Path("/sys/fs/cgroup") / group.lstrip("/") / "memory.events", "oom_kill")]
    return []


def _count(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
