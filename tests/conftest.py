"""What all tests share: their processes' environment, and their order.

Files with slow tests begin first, so that no worker is left alone with them at the end.
"""

import os
import sys

import pytest

# Hundreds of processes import the same modules: what one has compiled, the others read.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tests run beside one another, and tiny networks on several threads wait on one another where a core is busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)
