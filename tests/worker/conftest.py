"""Numeric tests share two cores with everything else."""

import pytest
from hypothesis import settings

# No deadline: a loaded machine is not a defect. The same examples every time: a red test can be run again.
settings.register_profile("potstill", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("potstill")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tiny networks on several threads wait on one another: ten times slower where another process is busy."""
    import torch

    torch.set_num_threads(1)
