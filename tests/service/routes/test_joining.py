"""Join tokens let in so many devices, and for so long."""

from collections.abc import Iterator
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.persistence.tables import FederationRow
from tests.service.conftest import SettingsMaker
from tests.service.world import Fed, World


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, make_settings: SettingsMaker, world_of: type[World]) -> Iterator[World]:
    url = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    made = world_of(make_settings(database_url=url))
    yield made
    made.close()


def join(world: World, fed: Fed, name: str, key: str | None = None, token: str | None = None) -> Any:
    headers = {"Idempotency-Key": key} if key else None
    body = {"name": name, "num_samples": 5}
    url = f"/v1/federations/{fed.id}/clients"
    return world.site.begin("POST", url, token=token or fed.join_token, json=body, headers=headers)


def test_fifty_at_once_never_exceed_the_limit(world: World) -> None:
    fed = world.create(join={"max_uses": 20})
    begun = [join(world, fed, f"d{i}") for i in range(50)]
    assert not wait(begun, timeout=60).not_done
    answers = [future.result() for future in begun]
    assert sorted(answer.status_code for answer in answers) == [201] * 20 + [403] * 30
    refused = next(answer for answer in answers if answer.status_code == 403).json()
    assert refused["type"] == "urn:potstill:problem:join-token-spent"
    assert (refused["reason"], refused["max_uses"]) == ("exhausted", 20)
    shown = world.show(fed)
    assert shown["clients"] == 20
    assert shown["join"] == {
        "state": "exhausted",
        "uses": 20,
        "max_uses": 20,
        "expires_at": shown["join"]["expires_at"],
    }


def test_a_refused_enrolment_uses_nothing_and_an_answered_one_is_answered_again(world: World) -> None:
    fed = world.create(join={"max_uses": 2})
    first = join(world, fed, "a", key="k").result()
    assert join(world, fed, "a").result().status_code == 409  # the name is taken
    assert join(world, fed, "b").result().status_code == 201
    assert join(world, fed, "c").result().status_code == 403
    assert join(world, fed, "a", key="k").result().json() == first.json()
    card = world.site.request("GET", f"/v1/federations/{fed.id}/card", token=fed.join_token)
    assert (card.status_code, card.json()["reason"]) == (403, "exhausted")


def test_a_join_token_ends_with_its_time(world: World) -> None:
    fed = world.create(join={"valid_seconds": 3600})
    with world.store.write() as session:
        session.get_one(FederationRow, fed.id).join_expires_at = datetime.now(UTC) - timedelta(seconds=1)
    refused = join(world, fed, "a").result()
    assert (refused.status_code, refused.json()["reason"]) == (403, "expired")
    assert "potstill federation join-token" in refused.json()["detail"]
    assert world.show(fed)["join"]["state"] == "expired"
    fresh = world.ok("POST", f"/v1/federations/{fed.id}/join-token", json={"max_uses": 1, "valid_seconds": 60})
    assert fresh["max_uses"] == 1
    assert join(world, fed, "a", token=fresh["join_token"]).result().status_code == 201
    assert join(world, fed, "b", token=fresh["join_token"]).result().status_code == 403
    assert join(world, fed, "b").result().status_code == 401  # the one before


def test_without_limits_the_service_sets_a_time(world: World) -> None:
    fed = world.create()
    shown = world.show(fed)["join"]
    left = datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29) < left < timedelta(days=31)
    assert (shown["state"], shown["max_uses"]) == ("open", None)
    assert world.ok("POST", f"/v1/federations/{fed.id}/join-token")["max_uses"] is None


@pytest.mark.parametrize("limits", [{"max_uses": 0}, {"valid_seconds": 1}, {"max_uses": "many"}, {"uses": 3}])
def test_limits_that_cannot_be_are_refused(world: World, limits: dict[str, Any]) -> None:
    response = world.op("POST", "/v1/federations", json=world.body(join=limits))
    assert (response.status_code, response.json()["field"]) == (422, f"join.{next(iter(limits))}")
    fed = world.create()
    assert world.op("POST", f"/v1/federations/{fed.id}/join-token", json=limits).status_code == 422
    assert join(world, fed, "a").result().status_code == 201  # the token is the one it was


def test_a_federation_has_only_so_many_clients(
    make_settings: SettingsMaker, world_of: type[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.operations.steer.creation.MAX_FEDERATIONS", 1)
    world = world_of(make_settings(max_clients=2))
    fed = world.create()
    answers = [join(world, fed, name).result() for name in "abc"]
    assert [answer.status_code for answer in answers] == [201, 201, 409]
    assert answers[2].json()["setting"] == "POTSTILL_MAX_CLIENTS"
    refused = world.op("POST", "/v1/federations", json=world.body())
    assert (refused.status_code, refused.json()["limit"]) == (409, 1)
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    world.create()  # one that is over does not count
    world.close()
