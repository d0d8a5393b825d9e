"""The same service on PostgreSQL, which refuses text that SQLite takes and runs writers side by side."""

from collections.abc import Iterator
from concurrent.futures import wait

import pytest

from tests.service.conftest import SettingsMaker
from tests.service.world import World


@pytest.fixture
def world(make_settings: SettingsMaker, postgres: str, world_of: type[World]) -> Iterator[World]:
    made = world_of(make_settings(database_url=postgres))
    yield made
    made.close()


def test_a_round_with_uploads_all_at_once(world: World) -> None:
    names = [f"c{i:02}" for i in range(20)]
    fed = world.running(names)
    url = f"/v1/rounds/{world.round(fed)['id']}/update"
    bodies = {name: world.update(fed, seed=i, metrics='{"loss": 0.5}') for i, name in enumerate(names)}
    begun = [world.site.begin("PUT", url, token=fed.devices[n].token, body=bodies[n]) for n in names for _ in "12"]
    assert not wait(begun, timeout=60).not_done
    assert sorted(future.result().status_code for future in begun) == [200] * 20 + [201] * 20
    assert (world.round(fed)["answered"], world.round(fed)["state"]) == (20, "aggregating")
    world.finish(world.claim(), {"main": world.forge.arrays(5)}, {"accuracy": 0.5})
    assert (world.show(fed)["round"], world.show(fed)["accuracy"]) == (2, 0.5)
    assert [name for name in world.files() if name.startswith("tmp")] == []


@pytest.mark.parametrize("path", ["federations", "models", "rounds", "jobs", "datasets", "federations/x%00/rounds"])
def test_a_nul_in_an_id_names_nothing(world: World, path: str) -> None:
    response = world.op("GET", f"/v1/{path}" + ("" if "%00" in path else "/a%00b"))
    assert response.status_code == 404
    assert response.json()["type"].endswith(":not-found")


@pytest.mark.parametrize(
    "path", ["federations?after=%00", "models?federation=%00", "models?prototype=%00", "jobs?after=a%00"]
)
def test_a_nul_in_a_query_is_no_fault_of_ours(world: World, path: str) -> None:
    assert world.op("GET", f"/v1/{path}").status_code < 500


def test_a_nul_in_a_body_is_no_fault_of_ours(world: World) -> None:
    for change in (
        {"name": "a\x00"},
        {"datasets": {"unlabeled": "a\x00"}},
        {"prototypes": [{"architecture": "custom", "initial_model": "a\x00"}]},
        {"prototypes": [{"architecture": "mlp", "options": {"a\x00": 1}}]},
    ):
        response = world.op("POST", "/v1/federations", json=world.body(**change))
        assert response.status_code in (400, 404, 422), response.text
    fed = world.create()
    url = f"/v1/federations/{fed.id}/clients"
    body = {"name": "a", "num_samples": 1, "capabilities": {"gpu": "a\x00"}}
    assert world.site.request("POST", url, token=fed.join_token, json=body).status_code in (201, 400, 422)
    body = {"name": "b", "num_samples": 1, "prototype": "\x00"}
    assert world.site.request("POST", url, token=fed.join_token, json=body).status_code == 422
    assert (
        world.op("POST", "/v1/federations", json=world.body(), headers={"Idempotency-Key": "\x01"}).status_code == 422
    )
