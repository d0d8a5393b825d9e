"""Parts of some work, done by a few threads side by side: neither what comes out nor its order depends on that.

numpy lets go of Python's lock while it computes, and so does the system while it reads: two threads are two cores.
"""

import contextvars
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")
THREADS = 2
"""More would be in each other's way: each takes the memory of a part, and others have work to do, too."""
_AHEAD = 2
"""Parts for each thread, done or waiting: whoever takes the results may be late by one."""


def in_order(
    work: Callable[[Item], Made],
    items: Iterable[Item],
    on_item: Callable[[], None] = lambda: None,
    most: int = THREADS,
) -> Generator[tuple[Item, Made]]:
    """Yield items with what `work` makes of them, in their order; threads are a few items ahead.

    To be closed by whoever does not take all: no thread works on when this has ended.

    Args:
        work: called from several threads at once, in the caller's context. What it raises is raised here, in its turn.
        items: asked for in the caller's thread.
        on_item: called there for each item, before it is begun.
        most: threads; one is the caller's own.
    """
    left = iter(items)
    threads, first = min(most, _cores()), list(islice(left, 2))
    if threads == 1 or len(first) < 2:
        for item in chain(first, left):
            on_item()
            yield item, work(item)
        return
    left, waiting = chain(first, left), deque[tuple[Item, Future[Made]]]()
    with ThreadPoolExecutor(threads, thread_name_prefix="part") as pool:
        try:
            while True:
                for item in islice(left, _AHEAD * threads - len(waiting)):
                    on_item()
                    waiting.append((item, pool.submit(contextvars.copy_context().run, work, item)))
                if not waiting:
                    return
                item, future = waiting.popleft()
                yield item, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
