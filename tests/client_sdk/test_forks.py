"""A device that was forked computes with one thread, for torch's others are not there."""

import multiprocessing
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from client_sdk import errors, forks


def report(queue: Any) -> None:
    queue.put(forks.is_forked())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_knows_that_it_was_forked(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not forks.is_forked()
    monkeypatch.setattr(forks, "_loaded_by", os.getpid())
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=report, args=(queue,))
    child.start()
    assert queue.get(timeout=120) is (method == "fork")
    child.join()


def test_a_forked_device_computes_with_one_thread(take_part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(forks, "_loaded_by", -1)
    try:
        torch.set_num_threads(2)
        take_part(rounds=1)
        assert torch.get_num_threads() == 1
        monkeypatch.setenv("POTSTILL_TORCH_THREADS", "2")
        with pytest.raises(errors.UsageError, match="this process was forked, where torch hangs with 2 threads.*spawn"):
            take_part()
    finally:
        torch.set_num_threads(before)


PROGRAM = """
import os
import numpy as np
import torch
from torch import nn

torch.set_num_threads(2)
nn.Linear(512, 512)(torch.randn(4096, 512)).sum().backward()

from client_sdk import entry, trial
from client_sdk.data import load
from client_sdk.progress import Progress
from contract.local import LocalPlan
from contract.wire.federations import Task

child = os.fork()
if child == 0:
    entry._set_threads(Progress(False))
    samples = load((np.random.randn(512, 512).astype("float32"), np.zeros(512, int)))
    samples.check(Task.model_validate({"num_classes": 512, "input": {"shape": [512]}}))
    trial.attempt(nn.Linear(512, 512), samples, LocalPlan(batch_size=512), torch.device("cpu"))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_of_a_program_that_has_used_torch_trains() -> None:
    """Without the one thread it waits for ever for those that the fork did not copy."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    environment.pop("POTSTILL_TORCH_THREADS", None)
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=180)
