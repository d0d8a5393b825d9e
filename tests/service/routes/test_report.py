"""What a federation has cost: bytes are worked by hand, from the sizes of files and of what was asked for."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from contract.rates import PartialWork
from service.infra.traffic import Account, Counts
from service.operations.store import traffic
from service.persistence.tables import ParticipantRow, RoundRow, UpdateRow
from tests.service.world import Device, Fed, World

from .sending import Sender


def report(world: World, fed: Fed, *targets: float) -> dict[str, Any]:
    query = "&".join(f"target={target}" for target in targets)
    return dict(world.ok("GET", f"/v1/federations/{fed.id}/report?{query}"))


def fetch(world: World, device: Device, headers: dict[str, str] | None = None) -> bytes:
    """Ask for the assignment, and download its model; return what came."""
    url = world.assignment(device)["model"]["url"]
    return world.site.request("GET", url, token=device.token, headers=headers).content


def test_two_rounds(world: World) -> None:
    fed = world.running(["a", "b"])
    size = len(fetch(world, fed.devices["a"]))
    fetch(world, fed.devices["b"])
    update = world.update(fed, metrics='{"seconds": 1.5}')
    assert all(world.push(fed, name, update).status_code == 201 for name in "ab")
    world.finish(world.claim(), {"main": world.forge.arrays(3)}, {"accuracy": 0.5, "seconds": {"fuse": 0.25}})
    fetch(world, fed.devices["a"])
    later = world.update(fed)
    assert world.push(fed, "a", later).status_code == 201  # b neither asks nor answers

    found = report(world, fed, 0.4, 0.5, 0.75)
    first, second = found["rounds"]
    whole = {"down": 2 * size, "up": 2 * len(update)}
    assert first["files"] == first["wire"] == whole
    assert (first["devices"], first["answered"], first["accuracy"]) == (2, 2, 0.5)
    assert (first["seconds"]["phases"], first["seconds"]["training"]) == ({"fuse": 0.25}, 3.0)
    assert 0 <= first["seconds"]["slowest"] <= first["seconds"]["devices"] <= 2 * first["seconds"]["collecting"]
    assert second["files"] == second["wire"] == {"down": size, "up": len(later)}
    assert (second["state"], second["accuracy"], second["devices"], second["answered"]) == ("collecting", None, 1, 1)
    assert found["before"]["files"] == {"down": 0, "up": 0}
    assert found["total"]["files"] == found["total"]["wire"] == {"down": 3 * size, "up": 2 * len(update) + len(later)}
    assert first["clock"] > 0 and second["clock"] is None
    assert (found["metric"], found["parts"]["recipe"]["name"]) == ("accuracy", "fedavg")
    reached, exactly, never = found["targets"]
    assert (reached["round"], reached["cost"]["files"]) == (1, whole)
    assert (exactly["round"], exactly["cost"]["wire"]) == (1, whole)
    assert never == {"target": 0.75, "round": None, "cost": None}


def test_what_goes_beside_the_model_counts(world: World) -> None:
    """What a round's job keeps for devices is sent in the next round, with the model; the rest stays."""
    fed = world.running(["a", "b"])
    size = len(fetch(world, fed.devices["a"]))
    assert all(world.push(fed, name).status_code == 201 for name in "ab")
    kept = {"send.control": world.forge.arrays(5), "adam.main": world.forge.arrays(6)}
    world.finish(world.claim(), {"main": world.forge.arrays(3)}, state=kept)
    asked = world.assignment(fed.devices["a"])
    assert asked["extras"]["control"]["size"] == size
    first, second = report(world, fed)["rounds"]
    assert (first["files"]["down"], second["files"]["down"]) == (2 * size, 2 * size)
    assert (first["devices"], second["devices"]) == (2, 1)


def test_a_base_is_sent_once_to_each_device(world: World) -> None:
    """Of three, two were there in the round before: the third alone is sent what nobody trains."""
    fed = world.running("abc")
    size = len(fetch(world, fed.devices["a"]))
    assert all(world.push(fed, name).status_code == 201 for name in "ab")
    world.ok("POST", f"/v1/rounds/{world.round(fed)['id']}/close", json={"force": True})
    kept = {"send.base.main": world.forge.arrays(5)}
    world.finish(world.claim(), {"main": world.forge.arrays(3)}, state=kept)
    for name in "abc":
        fetch(world, fed.devices[name])
    base = world.assignment(fed.devices["c"])["extras"]["base"]["size"]
    first, second = report(world, fed)["rounds"]
    assert (first["files"]["down"], second["files"]["down"]) == (2 * size, 3 * size + base)


def test_the_wire_counts_parts_repetitions_and_refusals(world: World) -> None:
    fed = world.running(["a", "b"])
    a = fed.devices["a"]
    size = len(fetch(world, a))
    assert len(fetch(world, a, {"Range": "bytes=0-9"})) == 10
    assert len(fetch(world, a, {"Range": "bytes=10-"})) == size - 10
    known = world.site.request("GET", world.assignment(a)["model"]["url"], token=a.token).headers["etag"]
    assert fetch(world, a, {"If-None-Match": known}) == b""
    assert fetch(world, a, {"Range": f"bytes={size}-"}) != b""  # a problem, which is no file
    refusal = world.update(fed, num_samples=None)
    assert world.push(fed, "a", refusal).status_code == 422
    update = world.update(fed)
    assert [world.push(fed, "a", update).status_code for _ in range(2)] == [201, 200]
    (first,) = report(world, fed)["rounds"]
    assert first["wire"] == {"down": 3 * size, "up": len(refusal) + 2 * len(update)}
    assert first["files"] == {"down": size, "up": len(update)}


def test_what_others_download_is_no_device_s(world: World) -> None:
    fed = world.running(["a", "b"])
    url = world.show(fed)["models"]["main"]["url"]
    size = len(world.op("GET", url).content)
    found = report(world, fed)
    assert (found["others"], found["rounds"][0]["wire"]) == (size, {"down": 0, "up": 0})


def test_a_resumable_upload_counts_by_its_pieces(world: World) -> None:
    fed = world.running(["a", "b"])
    sender, update = Sender(world, fed.devices["a"].token), world.update(fed)
    url = sender.opened(len(update))
    sender.patch(url, 0, update[:50])
    assert sender.patch(url, 40, update[40:]).status_code == 409  # the wrong place: it came, and does not count
    sender.patch(url, 50, update[50:])
    assert world.push(fed, "a", b"", url=f"{_update_url(world, fed)}?upload={url.rpartition('/')[2]}").is_success
    (first,) = report(world, fed)["rounds"]
    assert first["files"]["up"] == len(update)
    assert len(update) <= first["wire"]["up"] <= 2 * len(update) - 40


def _update_url(world: World, fed: Fed) -> str:
    return f"/v1/rounds/{world.round(fed)['id']}/update"


def test_before_the_first_round(world: World) -> None:
    fed = world.collecting(["a", "b"])
    (generator,) = {len(_generator(world, device)) for device in fed.devices.values()}
    discriminator = world.forge.pack(world.forge.arrays(2), {"num_samples": "10"})
    for device in fed.devices.values():
        url = f"/v1/federations/{fed.id}/discriminator"
        assert world.site.request("PUT", url, token=device.token, body=discriminator).status_code == 201
    found = report(world, fed)
    assert found["before"]["files"] == {"down": 2 * generator, "up": 2 * len(discriminator)}
    assert found["before"]["wire"] == found["total"]["wire"] == found["before"]["files"]
    assert set(found["before"]["seconds"]["phases"]) == {"initialize", "generator"}


def _generator(world: World, device: Device) -> bytes:
    url = world.assignment(device)["generator"]["model"]["url"]
    return world.site.request("GET", url, token=device.token).content


def test_the_first_model_may_be_good_enough(world: World) -> None:
    fed = world.create()
    world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    measured = {"accuracy": 0.6, "model": {"prototypes": {"main": 0.6}}}
    world.finish(world.claim(), {"main": world.forge.arrays()}, measured)
    (target,) = report(world, fed, 0.6)["targets"]
    assert (target["round"], target["cost"]["files"]) == (0, {"down": 0, "up": 0})


def test_operations(world: World) -> None:
    """Networks are known from the first job on: 10 samples of each of two clients, one epoch, 152 operations each."""
    fed = world.create(rounds={"total": 2, "min_clients": 2})
    for name in "ab":
        world.enrol(fed, name)
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    effort = {"parameters": 39, "forward": 64, "training": 152}
    world.finish(world.claim(), {"main": world.forge.arrays()}, {"networks": {"main": effort}})
    for name in "ab":
        assert world.push(fed, name).status_code == 201
    found = report(world, fed)
    (network,) = found["networks"]
    assert (network["name"], network["role"], network["architecture"]) == ("main", "prototype", "mlp")
    assert (network["parameters"], network["forward_flops"], network["training_flops"]) == (39, 64, 152)
    assert network["bytes"] == world.show(fed)["models"]["main"]["size"]
    epochs = world.show(fed)["local"]["epochs"]
    assert found["total"]["flops"]["training"] == 20 * epochs * 152
    assert found["rounds"][0]["flops"] == found["total"]["flops"]


def test_operations_that_nobody_counted_are_not_zero(world: World) -> None:
    fed = world.running(["a"])
    assert world.push(fed, "a").status_code == 201
    found = report(world, fed)
    assert (found["rounds"][0]["flops"], found["total"]["flops"]) == (None, None)
    assert found["networks"][0]["parameters"] is None


def test_a_target_is_an_accuracy(shared: World) -> None:
    fed = shared.create()
    for wrong in ("80", "-0.1", "1.01", "nan", "1e-1"):
        response = shared.op("GET", f"/v1/federations/{fed.id}/report?target={wrong}")
        assert (response.status_code, response.json()["field"]) == (422, "query.target"), wrong
    many = "&".join(["target=0.5"] * 21)
    assert shared.op("GET", f"/v1/federations/{fed.id}/report?{many}").status_code == 422


def test_counts_are_added_in_either_database(both: Any, world_of: type[World]) -> None:
    world = world_of(both.settings)
    try:
        fed = world.create()
        account, gone = Account(fed.id, 3, "cli_1", "mdl_1"), Account("fed_gone", 3, "cli_1", "mdl_1")
        for _ in range(2):
            world.services.traffic.add({account: Counts(down=7, requests=1), gone: Counts(up=5, requests=1)})
            traffic.flush(world.store, world.services.traffic)
        with world.store.read() as session:
            assert list(traffic.kept(session, fed.id)) == [(account, Counts(down=14, up=0, requests=2))]
            assert list(traffic.kept(session, "fed_gone")) == []
    finally:
        world.close()


def test_what_cannot_be_written_waits(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fed, held = shared.create(), shared.services.traffic
    account = Account(fed.id, 1, "cli_1", "mdl_1")
    held.add({account: Counts(down=7, requests=1)})
    with monkeypatch.context() as broken, pytest.raises(OSError, match="full"):
        broken.setattr("service.operations.store.traffic.record", _full)
        traffic.flush(shared.store, held)
    held.add({account: Counts(down=1, requests=1)})
    traffic.flush(shared.store, held)
    with shared.store.read() as session:
        assert list(traffic.kept(session, fed.id)) == [(account, Counts(down=8, up=0, requests=2))]


def _full(*_: object) -> None:
    raise OSError("full")


def test_it_goes_with_its_federation(shared: World) -> None:
    fed = shared.running(["a"])
    fetch(shared, fed.devices["a"])
    report(shared, fed)
    shared.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert shared.op("DELETE", f"/v1/federations/{fed.id}").status_code == 204
    with shared.store.read() as session:
        assert list(traffic.kept(session, fed.id)) == []


def _slowly(world: World, fed: Fed) -> list[tuple[int, int, int, float, float, float]]:
    """Devices, answers, bytes up, seconds of all, of the slowest and of training by round: one device after another."""
    found = []
    with world.store.read() as session:
        for round_ in session.scalars(
            select(RoundRow).where(RoundRow.federation_id == fed.id).order_by(RoundRow.index)
        ):
            updates = {row.client_id: row for row in session.scalars(select(UpdateRow).filter_by(round_id=round_.id))}
            asked = session.scalars(select(ParticipantRow).filter_by(round_id=round_.id)).all()
            told = [row for row in asked if row.fetched_at is not None or row.client_id in updates]
            took = [
                max(0.0, (updates[row.client_id].received_at - row.fetched_at).total_seconds())
                if row.fetched_at is not None and row.client_id in updates
                else 0.0
                for row in told
            ]
            trained = [float((row.metrics or {}).get("seconds") or 0) for row in updates.values()]
            size = sum(row.size for row in updates.values())
            found.append((len(told), len(updates), size, sum(took), max(took, default=0.0), sum(trained)))
    return found


@pytest.mark.parametrize("partial", [False, True], ids=["alike", "partial work"])
def test_sums_are_those_of_one_device_after_another(both: Any, world_of: type[World], partial: bool) -> None:
    """Of devices that answer, do not, never asked, tell no figures, or whose clock went back."""
    world = world_of(both.settings)
    local = {"epochs": 5, "partial_work": {"least": 2}} if partial else {"epochs": 2}
    try:
        fed = world.create(local=local, rounds={"total": 2, "min_clients": 6})
        for name in "abcdef":
            world.enrol(fed, name)
        world.ok("POST", f"/v1/federations/{fed.id}/start")
        effort = {"parameters": 39, "forward": 64, "training": 152}
        world.finish(world.claim(), {"main": world.forge.arrays()}, {"networks": {"main": effort}})
        for name in "abcde":
            fetch(world, fed.devices[name])
        told = {"a": '{"seconds": 1.25}', "b": "{}", "c": None, "f": '{"seconds": 0.5, "loss": 1}'}
        for number, (name, metrics) in enumerate(told.items()):
            more = {} if metrics is None else {"metrics": metrics}
            update = world.update(fed, seed=number, num_samples=str(10 - number // 2), **more)
            assert world.push(fed, name, update).status_code == 201
        with world.store.write() as session:
            rows = session.scalars(select(ParticipantRow).order_by(ParticipantRow.client_id)).all()
            moments = [7.0, 0.0123455, -5.0, 90000.25, 3.0, 1.0]
            for row, seconds in zip(rows, moments, strict=True):
                if row.fetched_at is not None:
                    row.fetched_at = row.fetched_at.replace(microsecond=999_700) - timedelta(seconds=seconds)
        (shown,) = report(world, fed)["rounds"]
        ((devices, answered, up, took, slowest, training),) = _slowly(world, fed)
        assert (shown["devices"], shown["answered"], shown["files"]["up"]) == (devices, answered, up)
        seconds = shown["seconds"]
        assert (seconds["devices"], seconds["slowest"]) == (round(took, 3), round(slowest, 3))
        assert (seconds["training"], training) == (1.75, 1.75) and slowest > 0
        seed, drawn = world.show(fed)["seed"], PartialWork(least=2)
        epochs = {name: drawn.draw(5, seed, 1, name) if partial else 2 for name in told}
        samples = {name: 10 - number // 2 for number, name in enumerate(told)}
        assert shown["flops"]["training"] == sum(152 * epochs[name] * samples[name] for name in told)
        assert len(set(epochs.values())) > 1 or not partial
    finally:
        world.close()
