from collections.abc import Iterator

import pytest
import torch

from tests.e2e.conftest import deployment
from tests.foreign import forget_foreign

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
