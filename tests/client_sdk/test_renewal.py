"""A device replaces its token before it ends; a crash at any point costs nothing."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import identity
from client_sdk.client import Client
from client_sdk.errors import Unauthorized
from client_sdk.state import Identity, StateFolder
from contract.wire.problems import KINDS, TYPE_PREFIX

URL = "https://potstill.test"


class Tokens:
    """A service as far as tokens go: the one in use works until its successor is first used."""

    def __init__(self, life: timedelta = timedelta(days=90)):
        self.good, self.life, self.made = "pst_dev_0", life, 0
        self.next: str | None = None
        self.fails = self.is_away = False

    def handle(self, request: httpx.Request) -> httpx.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        if token is not None and token == self.next:
            self.good, self.next = token, None
        if token != self.good:
            status, title = KINDS["unauthorized"]
            body = {"type": TYPE_PREFIX + "unauthorized", "title": title, "status": status, "detail": "no"}
            return httpx.Response(status, json=body)
        if self.fails:
            return httpx.Response(500)
        if self.is_away:
            raise httpx.ConnectError("away", request=request)
        ends = (datetime.now(UTC) + self.life).isoformat()
        if request.url.path == "/v1/token":
            return httpx.Response(200, json={"id": "cli_1", "name": "a", "role": "device", "expires_at": ends})
        if self.next is None:
            self.made += 1
            self.next = f"pst_dev_{self.made}"
        return httpx.Response(200, json={"id": "cli_1", "token": self.next, "expires_at": ends})

    def client(self, token: str | None = None) -> Client:
        return Client(URL, token, transport=httpx.MockTransport(self.handle), retries=0)


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    return StateFolder(tmp_path)


def remember(folder: StateFolder, renew_at: datetime | None, token: str = "pst_dev_0") -> None:
    known = Identity(url=URL, federation="fed_1", name="a", key="k", client_id="cli_1", token=token)
    folder.remember(known.model_copy(update={"token_renew_at": renew_at}))


def establish(client: Client, folder: StateFolder) -> Identity:
    return identity.establish(client, folder, identity.Application("fed_1", num_samples=1, name="a"))


def test_a_token_near_its_end_is_replaced_and_kept_for_its_user_only(folder: StateFolder, tmp_path: Path) -> None:
    service = Tokens()
    remember(folder, datetime.now(UTC) - timedelta(seconds=1))
    with service.client() as client:
        client.use_token("pst_dev_0")
        assert identity.renew(client, folder)
        assert client.own_token().role == "device"  # with the new one
        assert service.good == "pst_dev_1"
        assert not identity.renew(client, folder)
    kept = json.loads((tmp_path / "identity.json").read_text())
    assert kept["token"] == "pst_dev_1"
    left = datetime.fromisoformat(kept["token_renew_at"]) - datetime.now(UTC)
    assert timedelta(days=59) < left < timedelta(days=61)  # two thirds of 90 days
    assert stat.S_IMODE((tmp_path / "identity.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("renew_at", [None, datetime(2100, 1, 1, tzinfo=UTC)])
def test_a_token_that_is_not_near_its_end_stays(folder: StateFolder, renew_at: datetime | None) -> None:
    remember(folder, renew_at)
    with Tokens().client() as client:
        assert not identity.renew(client, folder)


def test_a_crash_before_the_new_token_is_stored(folder: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Tokens()
    remember(folder, datetime.now(UTC) - timedelta(seconds=1))

    def fall(*ignored: Any) -> None:
        raise KeyboardInterrupt

    with service.client() as client, monkeypatch.context() as patch:
        client.use_token("pst_dev_0")
        patch.setattr(StateFolder, "remember", fall)
        with pytest.raises(KeyboardInterrupt):
            identity.renew(client, folder)
    with service.client() as client:  # the device starts again
        who = establish(client, folder)
        assert who.token == "pst_dev_0"
        assert identity.renew(client, folder)
        client.own_token()
    assert (service.good, service.made) == ("pst_dev_1", 1)


def test_a_clock_that_is_years_ahead_does_not_replace_tokens_in_a_loop(folder: StateFolder) -> None:
    service = Tokens(life=timedelta(days=-400))
    remember(folder, datetime.now(UTC) - timedelta(seconds=1))
    with service.client() as client:
        client.use_token("pst_dev_0")
        assert [identity.renew(client, folder) for _ in range(3)] == [True, False, False]


def test_where_the_clock_went_back_a_token_is_replaced_once(folder: StateFolder) -> None:
    """Nobody knows how old it is: it might end long before this clock says so."""
    service, ahead = Tokens(), datetime.now(UTC) + timedelta(days=1)
    remember(folder, ahead + timedelta(days=60))
    known = folder.identity()
    assert known is not None
    folder.remember(known.model_copy(update={"token_given_at": ahead}))
    with service.client() as client:
        client.use_token("pst_dev_0")
        assert [identity.renew(client, folder) for _ in range(3)] == [True, False, False]


def test_a_token_that_was_passed_once_does_not_come_back_after_it_was_replaced(folder: StateFolder) -> None:
    service = Tokens()
    with service.client("pst_dev_0") as client:
        first = establish(client, folder)
        assert first.token_renew_at is not None  # asked for: a token alone does not say when it ends
        folder.remember(first.model_copy(update={"token_renew_at": datetime.now(UTC)}))
        assert identity.renew(client, folder)
        client.own_token()
    with service.client("pst_dev_0") as client:
        assert establish(client, folder).token == "pst_dev_1"
    service.good = "pst_dev_other"  # the operator gave it another one
    with service.client("pst_dev_other") as client:
        assert establish(client, folder).token == "pst_dev_other"


def test_a_refusal_ends_the_device_and_a_fault_does_not(folder: StateFolder) -> None:
    service = Tokens()
    remember(folder, datetime.now(UTC) - timedelta(seconds=1), token="pst_dev_void")
    with service.client() as client:
        client.use_token("pst_dev_void")
        with pytest.raises(Unauthorized):
            identity.renew(client, folder)
        service.fails = True
        client.use_token("pst_dev_0")
        assert not identity.renew(client, folder)  # the token that it has still works
        service.fails, service.is_away = False, True
        assert not identity.renew(client, folder)
    known = folder.identity()
    assert known is not None
    assert known.token == "pst_dev_void"
