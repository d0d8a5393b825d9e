"""What all tests share: their processes' environment, their order, and what a process needs to find out only once.

Files with slow tests begin first, so that no worker is left alone with them at the end.
"""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

# Hundreds of processes import the same modules: what one has compiled, the others read.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tests run beside one another, and tiny networks on several threads wait on one another where a core is busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What stays to the end is no garbage: modules, and thousands of tests, are not looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def _statements_compiled_once() -> Iterator[None]:
    """Let every database of a process use what was compiled for the first of its kind: most tests have one each."""
    first: dict[str, Engine] = {}

    def make(url: Any, **options: Any) -> Engine:
        made = create_engine(url, **options)
        known = first.setdefault(made.dialect.name, made)
        made.dialect, made._compiled_cache = known.dialect, known._compiled_cache
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.persistence.engine.create_engine", make)
        yield
