"""Commands away from any installation, and with a service that is told what to answer."""

from pathlib import Path

import httpx
import pytest

from client_sdk import OperatorClient

from .command_line import Service


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder, and nothing of Potstill's in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("POTSTILL_HOME", "POTSTILL_URL", "POTSTILL_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service for all commands that ask one."""
    fake = Service()

    def client(url: str, token: str, **_: int) -> OperatorClient:
        return OperatorClient(url, token, transport=httpx.MockTransport(fake), retries=0)

    monkeypatch.setattr("client_sdk.OperatorClient", client)
    monkeypatch.setenv("POTSTILL_TOKEN", "pst_op_1")
    return fake
