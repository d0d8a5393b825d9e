"""Memory and disk: a limit for one job, who dies first without any, and how that is told from others."""

import contextlib
import errno
import resource
import sys
from pathlib import Path

_COUNTERS = (
    (Path("/proc/vmstat"), "oom_kill"),  # the whole machine, and in a container its own where the kernel tells
    (Path("/sys/fs/cgroup/memory.events"), "oom_kill"),
    (Path("/sys/fs/cgroup/memory/memory.oom_control"), "oom_kill"),
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was no memory left, of the machine or of an accelerator."""
    if isinstance(error, MemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError | OSError) and ("out of memory" in text or "allocate memory" in text)


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
        Path("/proc/self/oom_score_adj").write_text("800")


def oom_kills() -> int:
    """Return how many processes Linux has ended for want of memory, as far as it can be seen from here."""
    return sum(_count(path, name) for path, name in (*_COUNTERS, *_own_group()))


def _own_group() -> list[tuple[Path, str]]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "" and group != "/":
                return [(Path("/sys/fs/cgroup") / group.lstrip("/") / "memory.events", "oom_kill")]
    return []


def _count(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
