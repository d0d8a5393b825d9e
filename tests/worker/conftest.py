"""Numeric tests share two cores with everything else: one thread each, or tiny networks wait on one another."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
