"""torch's global generator, seeded for a while and given back: what layers draw from it depends on the seed alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

turn = threading.RLock()
"""Held by whoever has the process's generators to itself."""


@contextmanager
def global_seed(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch's own generators within the block; afterwards they are as they were.

    There is one such generator a process. Threads take turns, or they would draw each other's numbers: several devices
    in one process train one after another, and each as it would alone.
    """
    device = torch.device(device)
    devices = []
    if device.type == "cuda":
        devices = [torch.cuda.current_device() if device.index is None else device.index]
    with turn, torch.random.fork_rng(devices=devices):
        # torch.manual_seed keeps a traceback for a CUDA that may never come.
        if device.type == "cpu" and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield
