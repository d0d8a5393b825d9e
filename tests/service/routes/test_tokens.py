"""Tokens end, are replaced, are taken back; and what that costs in writes."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from service.config import Settings
from service.domain.errors import DomainError
from service.infra import tokens as forge
from service.operations.access import tokens
from service.persistence.tables import ClientRow, TokenRow
from tests.service.conftest import SettingsMaker
from tests.service.world import Device, Fed, World

PAST = datetime(2020, 1, 1, tzinfo=UTC)


def change(world: World, table: Any, id_: str, **values: Any) -> None:
    with world.store.write() as session:
        row = session.get_one(table, id_)
        for name, value in values.items():
            setattr(row, name, value)


def use(world: World, token: str) -> int:
    return world.site.request("GET", "/v1/token", token=token).status_code


def rotate(world: World, token: str) -> dict[str, Any]:
    response = world.site.request("POST", "/v1/token/rotate", token=token)
    assert response.status_code == 200, response.text
    renewed: dict[str, Any] = response.json()
    return renewed


def test_a_persons_token_ends_when_it_was_said_to(world: World) -> None:
    made = world.ok("POST", "/v1/tokens", json={"name": "a", "role": "viewer", "valid_seconds": 3600})
    ends = datetime.fromisoformat(made["expires_at"])
    assert timedelta(minutes=59) < ends - datetime.now(UTC) <= timedelta(hours=1)
    assert use(world, made["token"]) == 200
    change(world, TokenRow, made["id"], expires_at=PAST)
    response = world.site.request("GET", "/v1/federations", token=made["token"])
    assert (response.status_code, response.json()["reason"]) == (401, "expired")
    assert "2020-01-01" in response.json()["detail"]
    states = {item["name"]: item["state"] for item in world.ok("GET", "/v1/tokens")["items"]}
    assert states == {"first operator": "active", "a": "expired"}
    assert rotate(world, world.operator)["expires_at"] is None


@pytest.mark.parametrize("seconds", [0, 59, -1, 10**12, "soon", 1.5])
def test_a_life_that_cannot_be_is_refused(world: World, seconds: Any) -> None:
    response = world.op("POST", "/v1/tokens", json={"name": "a", "valid_seconds": seconds})
    assert (response.status_code, response.json()["field"]) == (422, "valid_seconds")


def test_a_device_replaces_its_token_and_a_lost_answer_locks_nobody_out(world: World) -> None:
    fed = world.create()
    old = world.enrol(fed, "a")
    first = rotate(world, old.token)
    again = rotate(world, old.token)  # the answer was lost, or the device fell before it stored it
    assert again["token"] == first["token"] != old.token
    assert use(world, old.token) == 200  # still: the new one was never used
    assert use(world, first["token"]) == 200
    refused = world.site.request("GET", "/v1/token", token=old.token)
    assert (refused.status_code, refused.json()["reason"]) == (401, "unknown")
    assert world.site.request("GET", "/v1/assignment", token=first["token"]).status_code == 200
    assert rotate(world, first["token"])["token"] != first["token"]


def test_a_rotation_gives_a_device_a_whole_life_again(world: World) -> None:
    fed = world.create()
    device = world.enrol(fed, "a")
    soon = datetime.now(UTC) + timedelta(minutes=1)
    change(world, ClientRow, device.id, expires_at=soon)
    fresh = rotate(world, device.token)
    assert datetime.fromisoformat(fresh["expires_at"]) - datetime.now(UTC) > timedelta(days=89)
    shown = world.site.request("GET", "/v1/token", token=fresh["token"]).json()
    assert (shown["id"], shown["role"], shown["federation_id"]) == (device.id, "device", fed.id)
    assert shown["expires_at"] == fresh["expires_at"]


def test_an_expired_device_is_told_so_and_can_be_given_a_token_anew(world: World) -> None:
    fed = world.create()
    device = world.enrol(fed, "a")
    change(world, ClientRow, device.id, expires_at=PAST)
    refused = world.site.request("GET", "/v1/assignment", token=device.token)
    assert (refused.status_code, refused.json()["reason"]) == (401, "expired")
    assert world.ok("GET", f"/v1/federations/{fed.id}/clients")["items"][0]["token_state"] == "expired"
    made = world.ok("POST", f"/v1/federations/{fed.id}/clients/{device.id}/token")
    assert use(world, made["token"]) == 200
    assert world.ok("GET", f"/v1/federations/{fed.id}/clients")["items"][0]["token_state"] == "active"


def test_a_token_given_anew_ends_the_one_before_and_one_that_is_on_its_way(world: World) -> None:
    fed, other = world.create(), world.create()
    device = world.enrol(fed, "a")
    pending = rotate(world, device.token)["token"]
    made = world.ok("POST", f"/v1/federations/{fed.id}/clients/{device.id}/token")["token"]
    assert [use(world, token) for token in (device.token, pending, made)] == [401, 401, 200]
    assert world.op("POST", f"/v1/federations/{other.id}/clients/{device.id}/token").status_code == 404
    world.op("DELETE", f"/v1/federations/{fed.id}/clients/{device.id}")
    assert use(world, made) == 401
    assert world.op("POST", f"/v1/federations/{fed.id}/clients/{device.id}/token").status_code == 409


def test_revoking_ends_both_tokens_of_a_rotation(world: World) -> None:
    made = world.ok("POST", "/v1/tokens", json={"name": "a", "role": "operator"})
    pending = rotate(world, made["token"])["token"]
    assert world.op("DELETE", f"/v1/tokens/{made['id']}").status_code == 204
    for token in (made["token"], pending):
        response = world.site.request("GET", "/v1/token", token=token)
        assert (response.status_code, response.json()["reason"]) == (401, "revoked")


def _given_anew(world: World, fed: Fed, device: Device) -> str:
    return str(world.ok("POST", f"/v1/federations/{fed.id}/clients/{device.id}/token")["token"])


def _replaced(world: World, fed: Fed, device: Device) -> str:
    fresh = str(rotate(world, device.token)["token"])
    assert use(world, fresh) == 200
    return fresh


@pytest.mark.parametrize("change_hands", [_given_anew, _replaced])
def test_a_token_that_ends_while_it_is_replaced_fetches_no_successor(world: World, change_hands: Any) -> None:
    """Else whoever stole a token would hold the next one too, and the owner's would end at its first use."""
    fed = world.create()
    device = world.enrol(fed, "a")
    with world.store.read() as session:
        let_in = tokens.authenticate(session, world.settings.keys, device.token)
    fresh = change_hands(world, fed, device)
    with world.store.write() as session, pytest.raises(DomainError) as refused:
        tokens.rotate(session, world.settings.keys, let_in, world.settings)
    assert (refused.value.kind, refused.value.members["reason"]) == ("unauthorized", "unknown")
    assert use(world, fresh) == 200
    assert rotate(world, fresh)["token"] != fresh


@pytest.mark.parametrize("change_hands", [_given_anew, _replaced])
def test_a_long_poll_ends_with_its_token(world: World, change_hands: Any) -> None:
    fed = world.create()
    device = world.enrol(fed, "a")
    poll = world.site.begin("GET", "/v1/assignment?wait=20", token=device.token)
    while not world.services.changes.waiting:
        time.sleep(0.01)
    change_hands(world, fed, device)
    world.enrol(fed, "b")
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    answer = poll.result(10)
    assert (answer.status_code, answer.json().get("reason")) == (401, "revoked")


def statements(world: World, act: Any) -> list[str]:
    """Return the SQL that a call makes the service say, without transactions, nor what chores say meanwhile."""
    said: list[str] = []

    def hear(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if threading.current_thread().name.startswith("AnyIO"):  # requests' threads; chores run in asyncio's
            said.append(statement)

    event.listen(world.services.database.engine, "before_cursor_execute", hear)
    try:
        act()
    finally:
        event.remove(world.services.database.engine, "before_cursor_execute", hear)
    return [text for text in said if not text.startswith("BEGIN")]


def test_authentication_reads_once_and_writes_only_now_and_then(world: World) -> None:
    made = world.ok("POST", "/v1/tokens", json={"name": "a", "role": "viewer"})
    device = world.enrol(world.create(), "d")
    first = statements(world, lambda: use(world, made["token"]))
    assert any(text.startswith("UPDATE tokens") for text in first)  # the moment of use
    for token in (made["token"], device.token):
        later = statements(world, lambda token=token: use(world, token))
        assert len(later) == 1
        assert later[0].startswith("SELECT")
    used = {i["name"]: i["last_used_at"] for i in world.ok("GET", "/v1/tokens")["items"]}["a"]
    assert datetime.now(UTC) - datetime.fromisoformat(used) < timedelta(minutes=1)
    change(world, TokenRow, made["id"], last_used_at=PAST)
    assert len(statements(world, lambda: use(world, made["token"]))) > 1


def test_an_unknown_token_takes_the_same_way_as_a_revoked_one(world: World) -> None:
    made = world.ok("POST", "/v1/tokens", json={"name": "a", "role": "viewer"})
    world.op("DELETE", f"/v1/tokens/{made['id']}")
    revoked = statements(world, lambda: use(world, made["token"]))
    unknown = statements(world, lambda: use(world, "pst_view_" + "A" * 43))
    assert revoked == unknown


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def compare(a: str, b: str) -> bool:
        seen.append((a, b))
        return a == b

    monkeypatch.setattr("service.infra.tokens.hmac.compare_digest", compare)
    assert forge.same("x", ["y", "x"])
    assert not forge.same(None, ["y"])
    assert seen == [("x", "y"), ("x", "x"), ("", "y")]


def test_another_key_takes_over_while_the_one_before_is_still_known(
    make_settings: SettingsMaker, world_of: type[World]
) -> None:
    settings: Settings = make_settings(secret="the key before this")
    before = world_of(settings)
    fed = before.create()
    device = before.enrol(fed, "a")
    pending = rotate(before, device.token)["token"]
    enrolment = {"json": {"name": "b", "num_samples": 5}, "headers": {"Idempotency-Key": "k"}}
    path = f"/v1/federations/{fed.id}/clients"
    first = before.site.request("POST", path, token=fed.join_token, **enrolment).json()
    operator = before.operator
    before.close()

    both = settings.model_copy(update={"secret": None})
    both = Settings(**{**both.model_dump(), "secret": "a key that is new", "secret_previous": "the key before this"})
    between = world_of(both)
    for token in (operator, device.token, fed.join_token, pending):
        assert use(between, token) == 200
    again = between.site.request("POST", path, token=fed.join_token, **enrolment)
    assert again.json() == first  # the answer that was lost over the change of keys
    assert use(between, device.token) == 401  # its successor was used
    between.close()

    after = world_of(Settings(**{**both.model_dump(), "secret": "a key that is new", "secret_previous": None}))
    for token in (operator, pending, fed.join_token):
        assert use(after, token) == 200  # used while both were known, hence stored under the new key
    assert use(after, first["token"]) == 401
    conflict = after.site.request("POST", path, token=fed.join_token, **enrolment)
    assert (conflict.status_code, conflict.json()["type"]) == (409, "urn:potstill:problem:idempotency-conflict")
    after.close()


def test_only_so_many_tokens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.operations.access.tokens.MAX_TOKENS", 2)
    made = world.ok("POST", "/v1/tokens", json={"name": "a"})
    response = world.op("POST", "/v1/tokens", json={"name": "b"})
    assert (response.status_code, response.json()["limit"]) == (409, 2)
    assert "setting" not in response.json()
    world.op("DELETE", f"/v1/tokens/{made['id']}")
    assert world.op("POST", "/v1/tokens", json={"name": "b"}).status_code == 201
