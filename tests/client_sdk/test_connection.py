"""One object says how a service is reached; an address alone is one with defaults."""

from dataclasses import FrozenInstanceError, fields

import httpx
import pytest

from client_sdk import Client, Connection, OperatorClient
from client_sdk.connection import Options

URL = "http://potstill.test"
REFUSING = httpx.MockTransport(lambda request: httpx.Response(503))


def test_every_field_can_be_given_as_a_keyword() -> None:
    assert Options.__annotations__.keys() == {field.name for field in fields(Connection)} - {"url", "token"}


def test_an_address_is_a_connection_with_defaults() -> None:
    assert Connection.to(URL) == Connection(URL)
    assert Connection.to(URL, "t", timeout=3.0) == Connection(URL, "t", timeout=3.0)


def test_what_is_said_beside_a_connection_changes_that_and_no_more() -> None:
    known = Connection(URL, "t", timeout=3.0, ca_file="ca.pem")
    assert Connection.to(known) == known
    assert Connection.to(known, timeout=5.0) == Connection(URL, "t", timeout=5.0, ca_file="ca.pem")
    assert Connection.to(known, "other").token == "other"


def test_defaults_fill_only_what_was_left_open() -> None:
    assert Connection(URL).filled(retries=10).retries == 10
    assert Connection(URL, retries=0).filled(retries=10).retries == 0


def test_clients_share_a_connection_and_each_has_its_own_token() -> None:
    known = Connection(URL, "t", transport=REFUSING, retries=1, sleep=lambda seconds: None)
    with Client(known) as device, OperatorClient(known) as operator:
        device.use_token("later")
        assert device.connection == operator.connection == known
        assert (device.url, known.token) == (URL, "t")
        said: list[str] = []
        with pytest.raises(Exception, match="503"), Client(known, on_retry=said.append) as loud:
            loud.health()
        assert len(said) == 1


def test_it_does_not_change_and_its_token_is_not_shown() -> None:
    known = Connection(URL, "pst_secret")
    with pytest.raises(FrozenInstanceError):
        known.url = "http://elsewhere"  # type: ignore[misc]
    assert "pst_secret" not in repr(known)
