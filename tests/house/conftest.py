"""Commands away from any installation, with a service that is told what to answer, and on an installation's files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from client_sdk import OperatorClient
from potstill.cli import app

from .command_line import Service
from .installation import House


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


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "home")
    yield made
    made.database.close()


@pytest.fixture
def potstill(house: House, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run the command line in this process, on the house."""
    monkeypatch.setenv("POTSTILL_HOME", str(house.home))

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == code, (result.output, result.stderr, result.exception)
        return result.output + result.stderr

    return run
