"""Which service is tested: the one of CONFORMANCE_URL, or a Potstill that is started for it."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.adapter import Adapter, Potstill, Session


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapter]:
    url = os.environ.get("CONFORMANCE_URL")
    if url is None:
        from tools.deployment import Deployment, running

        service = Deployment(tmp_path_factory.mktemp("conformance") / "home")
        with running(service):
            made: Adapter = Potstill(service.url, service.token)
            yield made
            made.close()
        return
    name = os.environ.get("CONFORMANCE_ADAPTER", "tests.conformance.adapter:Potstill")
    module, _, kind = name.partition(":")
    made = getattr(importlib.import_module(module), kind)(url, os.environ.get("CONFORMANCE_TOKEN", ""))
    yield made
    made.close()


@pytest.fixture(scope="module")
def open_round(adapter: Adapter) -> Session:
    """A round that the files of a module are sent to, by the first of its two clients."""
    return adapter.open(2)


@pytest.fixture(autouse=True)
def nothing_was_unpickled() -> Iterator[None]:
    yield
    assert not Path("PICKLE_WAS_EXECUTED").exists()
