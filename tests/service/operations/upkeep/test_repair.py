"""What is mended by itself about a lost file, and what is left to the operator."""

from pathlib import Path
from typing import Any

import pytest

from service.infra.blob_folder import FolderStore
from service.infra.blobs import BlobFault
from service.operations.upkeep import repair
from tests.service.world import World


def lost(world: World, digest: str) -> BlobFault:
    """Take a blob away and return the fault."""
    store = world.blobs.store
    assert isinstance(store, FolderStore)
    Path(store.path(digest)).unlink()
    with pytest.raises(BlobFault) as found:
        store.verify(digest)
    return found.value


def acts(steps: list[repair.Step]) -> list[str]:
    return [step.act for step in steps]


def planned(world: World, fault: BlobFault) -> list[str]:
    with world.store.read() as session:
        return acts(repair.plan(session, fault))


def test_an_update_of_a_round_that_collects_is_asked_for_again(world: World) -> None:
    fed = world.running()
    fault = lost(world, world.push(fed, "a").json()["digest"])
    assert planned(world, fault) == ["ask again"]
    assert world.updates() == 1
    assert acts(repair.carry_out(world.store, fault)) == ["ask again"]
    assert world.updates() == 0
    assert world.assignment(fed.devices["a"])["action"] == "train"


def test_history_is_marked_as_removed_and_what_is_in_use_is_the_operators(world: World) -> None:
    fed = world.running(retention={"updates": "all", "models": "all"})
    first = world.ok("GET", f"/v1/models?federation={fed.id}")["items"][0]
    updates = [world.push(fed, name, world.update(fed, seed)).json() for seed, name in enumerate("ab", start=1)]
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    newest = world.ok("GET", f"/v1/models?federation={fed.id}")["items"][-1]
    for digest in (updates[0]["digest"], first["digest"]):
        fault = lost(world, digest)
        assert planned(world, fault) == ["mark as removed"]
        repair.carry_out(world.store, fault)
    assert world.op("GET", first["url"]).status_code == 410
    fault = lost(world, newest["digest"])
    steps: list[Any] = repair.carry_out(world.store, fault)
    assert acts(steps) == ["by hand"] and "roll back" in steps[0].remedy
    assert world.op("GET", newest["url"]).status_code == 503


def test_a_data_set_is_the_operators(world: World) -> None:
    data = world.dataset()
    (step,) = repair.carry_out(world.store, lost(world, data["digest"]))
    assert (step.act, data["name"] in step.remedy) == ("by hand", True)


def test_a_damaged_file_that_nothing_names_is_set_aside(world: World) -> None:
    data = world.dataset()
    store = world.blobs.store
    assert isinstance(store, FolderStore)
    path = store.path(data["digest"])
    content = path.read_bytes()
    world.ok("DELETE", f"/v1/datasets/{data['id']}")
    path.write_bytes(content[:-1])
    with pytest.raises(BlobFault) as found:
        store.verify(data["digest"])
    assert acts(repair.carry_out(world.store, found.value)) == ["set aside"]
    assert not path.exists()
