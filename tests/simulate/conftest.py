from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.e2e.conftest import deployment
from tests.foreign import forget_foreign

from .small import samples

__all__ = ["deployment"]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As devices and workers of an installation compute here: sums of several threads differ in their last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def own_choices() -> Iterator[None]:
    """What the test takes from a file is forgotten after it."""
    yield
    forget_foreign()


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Own data, in a file."""
    inputs, labels = samples(0, 240)
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels)
    return tmp_path / "mine.npz"
