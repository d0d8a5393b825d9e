"""What a service takes of the machine: memory and processor time of a process and all below it."""

import threading
from types import TracebackType
from typing import Self

import psutil


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def processor_seconds(pid: int) -> float:
    """Return the processor time so far, of processes that live or were waited for."""
    total = 0.0
    for process in _tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def memory(pid: int) -> float:
    """Return the memory now, in MB: resident, summed over the processes."""
    total = 0
    for process in _tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6


class Peak:
    """Watches memory while it is entered; `most` and `grown` in MB."""

    def __init__(self, pid: int):
        self._pid, self._done = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.first = self.most = memory(pid)

    @property
    def grown(self) -> float:
        """By how much it grew, at least by 1: less is not told apart."""
        return max(1.0, self.most - self.first)

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.most = max(self.most, memory(self._pid))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
