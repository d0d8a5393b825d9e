"""What a service keeps of absent clients: through rounds, a device that is late, one that is revoked, one deleted."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.operations.progress import reading
from tests.service.conftest import SettingsMaker
from tests.service.plant import Plant
from tests.service.world import Fed, World

pytestmark = pytest.mark.timeout(600)
RECIPE: dict[str, Any] = {
    "name": "reflux",
    "options": {
        "schedule": {"steps": 3, "batch_size": 8},
        "discriminators": {
            "plan": {"architecture": "disc-mlp", "options": {"hidden": [4]}},
            "generator": {"options": {"hidden": [4], "latent": 3}, "critic_options": {"hidden": [4]}, "steps": 2},
        },
    },
}


@pytest.fixture
def plant(make_settings: SettingsMaker, world_of: type[World]) -> Iterator[Plant]:
    made = Plant(world_of(make_settings(device="cpu", torch_threads=1)))
    yield made
    made.close()


def step(plant: Plant, fed: Fed) -> dict[str, Any]:
    """Have a round answered and fused; return its figures."""
    before = len(plant.world.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"])
    plant.answer(fed)
    plant.runner.drain()
    found: dict[str, Any] = plant.world.round(fed, before)["metrics"]
    return found


def kept(plant: Plant, fed: Fed) -> set[str]:
    with plant.world.store.read() as session:
        return set(reading.carried_state(session, fed.id))


def test_what_is_kept_follows_those_who_are_registered(plant: Plant) -> None:
    rounds = {"total": 9, "clients_per_round": 2, "min_updates": 1, "min_clients": 4}
    fed = plant.begin(RECIPE, rounds=rounds, seed=5)
    plant.answer(fed)  # discriminators
    plant.runner.drain()
    first, second = step(plant, fed), step(plant, fed)
    assert (first["bank"]["remembered"], first["balance"]["clients"]) == (0, 4)
    assert second["bank"]["heard"] == 2
    known = {name.removeprefix("bank.") for name in kept(plant, fed) - {"claims"}}
    assert len(known) == sum(second["bank"].values())
    gone, revoked = sorted(known)[:2]

    told = plant.world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices.pop(gone).id}?forget=true")
    assert told["deleted"]["kept"] >= 2  # the balanced odds, and all that it ever said
    assert kept(plant, fed) == {f"bank.{name}" for name in known - {gone}}
    third = step(plant, fed)
    assert third["balance"]["clients"] == 3 and gone not in third["teacher_weights"]

    plant.world.enrol(fed, "late", num_samples=50)
    plant.answer(fed)  # its discriminator, beside the round
    plant.runner.drain()
    assert step(plant, fed)["balance"]["clients"] == 4

    plant.world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices.pop(revoked).id}")
    last = step(plant, fed)
    assert last["balance"]["clients"] == 3 and revoked not in last["teacher_weights"]
    assert f"bank.{revoked}" not in kept(plant, fed)
