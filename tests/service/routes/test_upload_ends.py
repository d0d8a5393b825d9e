"""Resumable uploads: who may do what, when they end, the limits, and how one comes to count."""

from datetime import timedelta

import numpy as np
import pytest

from service.operations.ledger import clock
from service.operations.store import reservations
from service.operations.upkeep.sweep import sweep, tidy
from tests.service.world import Fed, World

from .sending import PATCHED, Sender, held, kind, until


# ------------------------------------------------------------------------------------------------ whose it is, and ends
def test_an_upload_is_its_owners_alone(world: World, fed: Fed, sender: Sender) -> None:
    other, operator = Sender(world, fed.devices["b"].token), Sender(world, world.operator)
    upload = sender.whole(world.update(fed))
    url = f"/v1/uploads/{upload}"
    for stranger in (other, operator):
        assert stranger.ask("HEAD", url).status_code == 404
        assert kind(stranger.patch(url, 0, b"")) == "not-found"
        assert kind(stranger.ask("DELETE", url)) == "not-found"
    stolen = world.push(fed, "b", b"", url=f"/v1/rounds/{world.round(fed)['id']}/update?upload={upload}")
    assert kind(stolen) == "not-found"
    assert world.updates() == 0
    assert sender.offset(url) == len(world.update(fed))


@pytest.mark.parametrize("name", ["upl_x", "..%2f..%2fx", "%00", "C:%5Cx"])
def test_names_used_as_paths_find_nothing(world: World, fed: Fed, sender: Sender, name: str) -> None:
    before = world.files()
    assert sender.patch(f"/v1/uploads/{name}", 0, b"abc").status_code in (404, 405)
    named = world.push(fed, "a", b"", url=f"/v1/rounds/{world.round(fed)['id']}/update?upload={name}")
    assert named.status_code == 404
    assert world.files() == before


def test_termination_removes_it(world: World, sender: Sender, quick: None) -> None:
    before = world.files()
    url = sender.opened(6)
    going = sender.begin(url, 0, [b"abc"], stall=True)
    until(lambda: held(world, url))
    assert sender.ask("DELETE", url).status_code == 204
    assert sender.ask("HEAD", url).status_code == 404
    assert going.result(20).status_code == 404
    assert sender.patch(url, 0, b"abc").status_code == 404
    until(lambda: world.files() == before)


def test_what_expired_is_swept(world: World, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.files()
    url = sender.opened(6)
    sender.patch(url, 0, b"abc")
    assert world.files() != before
    sweep(world.store)
    assert sender.offset(url) == 3
    later = clock.now() + reservations.EXPIRY + timedelta(seconds=1)
    monkeypatch.setattr(PATCHED, lambda: later)
    assert sender.ask("HEAD", url).status_code == 404
    sweep(world.store)
    assert world.files() == before


def test_bytes_that_no_row_names_are_tidied_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stray = world.services.parts.root / ("upl_" + "0" * 23)
    stray.write_bytes(b"abc")
    tidy(world.store, world.blobs, world.settings)
    assert stray.exists(), "it may be that its row is about to come"
    monkeypatch.setattr("service.operations.upkeep.sweep._ABANDONED_SECONDS", 0)
    tidy(world.store, world.blobs, world.settings)
    assert not stray.exists()


def test_a_revoked_device_leaves_no_upload(world: World, fed: Fed, sender: Sender) -> None:
    before = world.files()
    sender.patch(sender.opened(6), 0, b"abc")
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['a'].id}")
    assert world.files() == before


def test_bytes_that_were_lost_end_the_upload(world: World, fed: Fed, sender: Sender) -> None:
    """An older copy of the folder came back: what is missing is said, not made up."""
    upload = sender.whole(world.update(fed))
    (world.services.parts.root / upload).unlink()
    target = f"/v1/rounds/{world.round(fed)['id']}/update?upload={upload}"
    assert kind(world.push(fed, "a", b"", url=target)) == "not-found"
    url = sender.opened(6)
    sender.patch(url, 0, b"abc")
    (world.services.parts.root / url.rpartition("/")[2]).write_bytes(b"a")
    assert kind(sender.patch(url, 3, b"def")) == "not-found"
    assert sender.ask("HEAD", url).status_code == 404
    assert (world.updates(), list(world.services.parts.ids(0))) == (0, [])


# ------------------------------------------------------------------------------------------------------- the limits
def test_how_many_may_be_open(world: World, fed: Fed, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.operations.store.uploads.MAX_OPEN", 2)
    first, _ = sender.opened(6), sender.opened(6)
    response = sender.create(6)
    assert (response.status_code, kind(response)) == (429, "too-many-uploads")
    assert response.json()["open"][0] == {"id": first.rpartition("/")[2], "offset": 0, "length": 6}
    assert int(response.headers["retry-after"]) > 0
    assert Sender(world, fed.devices["b"].token).create(6).status_code == 201
    sender.ask("DELETE", first)
    assert sender.create(6).status_code == 201


def test_how_much_may_be_reserved(world: World, fed: Fed, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.operations.store.uploads.max_open_bytes", lambda settings: 100)
    sender.opened(60)
    other = Sender(world, fed.devices["b"].token)
    response = other.create(60)
    assert (response.status_code, kind(response)) == (507, "storage-full")
    assert (response.json()["expected"], response.json()["actual"]) == (100, 120)
    assert other.create(40).status_code == 201


def test_a_device_holds_no_more_than_its_share_beyond_its_first_upload(
    world: World, fed: Fed, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.operations.store.uploads.max_open_bytes", lambda settings: 10_000)
    sender.opened(1000)
    assert sender.create(1500).status_code == 201
    refused = sender.create(1)
    assert (refused.status_code, kind(refused)) == (429, "too-many-uploads")
    assert (refused.json()["expected"], refused.json()["actual"]) == (2500, 2501)
    assert Sender(world, fed.devices["b"].token).create(5000).status_code == 201
    monkeypatch.setattr(type(world.blobs.scratch), "free_bytes", lambda self: 9000)  # of which 7500 are reserved
    assert Sender(world, world.operator).create(1500).status_code == 201


def test_reservations_alone_hold_no_room_for_long(
    world: World, fed: Fed, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that opens uploads and sends nothing would keep all others from sending, for a day."""
    body = world.update(fed)
    monkeypatch.setattr(type(world.blobs.scratch), "free_bytes", lambda self: len(body) + 100)
    url = sender.opened(len(body) + 50)
    assert sender.patch(url, 0, b"abc").status_code == 204
    assert kind(world.push(fed, "b", body)) == "storage-full"
    later = clock.now() + reservations.HOLDS + timedelta(seconds=1)
    for module in ("store.uploads", "store.reservations"):
        monkeypatch.setattr(f"service.operations.{module}.now", lambda: later)
    assert Sender(world, fed.devices["b"].token).create(len(body)).status_code == 201
    late = sender.patch(url, 3, b"def")  # its room is another's now
    assert (late.status_code, kind(late)) == (507, "storage-full")
    monkeypatch.setattr(type(world.blobs.scratch), "free_bytes", lambda self: 3 * len(body))
    assert sender.offset(url) == 3
    assert sender.patch(url, 3, b"def").status_code == 204


def test_room_that_was_reserved_is_taken(
    world: World, fed: Fed, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = world.update(fed)
    monkeypatch.setattr(type(world.blobs.scratch), "free_bytes", lambda self: len(body) + 100)
    url = sender.opened(1000)
    assert kind(Sender(world, fed.devices["b"].token).create(len(body))) == "storage-full"
    assert kind(world.push(fed, "a", body)) == "storage-full"
    sender.ask("DELETE", url)
    assert world.push(fed, "a", body).status_code == 201


# ------------------------------------------------------------------------------------------------- what is delivered
@pytest.mark.parametrize("bad", ["nan", "cut", "stale", "closed"])
def test_a_refused_delivery_leaves_nothing(world: World, fed: Fed, sender: Sender, bad: str) -> None:
    body, url = world.update(fed), f"/v1/rounds/{world.round(fed)['id']}/update"
    arrays = world.forge.arrays(1)
    if bad == "nan":
        arrays["fc.bias"][1] = np.nan
        metadata = {"num_samples": "10", "base_model": world.round(fed)["base_models"]["main"]}
        body = world.forge.pack(arrays, metadata)
    elif bad == "cut":
        body = body[:-1]
    elif bad == "stale":
        body = world.update(fed, base_model="mdl_other")
    before = world.files()
    target = f"{url}?upload={sender.whole(body)}"
    if bad == "closed":
        world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    direct = world.push(fed, "a", body, url=url)
    response = world.push(fed, "a", b"", url=target)
    same = ("status", "type", "detail")
    assert [response.json()[name] for name in same] == [direct.json()[name] for name in same]
    assert response.status_code in (409, 422)
    assert (world.updates(), world.files()) == (0, before)
    again = world.push(fed, "a", b"", url=target)
    assert [again.json()[name] for name in same] == [direct.json()[name] for name in same], "its bytes are gone"
    assert world.push(fed, "a", b"", url=f"{target}&more=1").status_code in (404, 409), "another delivery"


def test_what_is_not_whole_or_not_clear_is_kept(world: World, fed: Fed, sender: Sender) -> None:
    body = world.update(fed)
    url = sender.opened(len(body))
    sender.patch(url, 0, body[:100])
    target = f"/v1/rounds/{world.round(fed)['id']}/update?upload={url.rpartition('/')[2]}"
    early = world.push(fed, "a", b"", url=target)
    assert (early.status_code, kind(early)) == (409, "upload-incomplete")
    assert (early.json()["expected"], early.json()["actual"]) == (len(body), 100)
    both = world.push(fed, "a", body, url=target)
    assert (both.status_code, kind(both)) == (400, "invalid-request")
    assert sender.patch(url, 100, body[100:]).status_code == 204
    assert world.push(fed, "a", b"", url=target).status_code == 201


def test_another_digest_than_the_device_has(world: World, fed: Fed, sender: Sender) -> None:
    before = world.files()
    target = f"/v1/rounds/{world.round(fed)['id']}/update?upload={sender.whole(world.update(fed))}"
    wrong = world.push(fed, "a", b"", url=target, headers={"Repr-Digest": "sha-256=:" + "A" * 43 + "=:"})
    assert (wrong.status_code, kind(wrong)) == (400, "digest-mismatch")
    assert (world.updates(), world.files()) == (0, before)


def test_a_delivery_that_is_under_way_has_the_upload(world: World, fed: Fed, sender: Sender) -> None:
    from service.operations.store import uploads

    upload = sender.whole(world.update(fed))
    target = f"/v1/rounds/{world.round(fed)['id']}/update?upload={upload}"
    with world.store.write() as session:
        grip = uploads.take(session, fed.devices["a"].id, upload)
    assert kind(world.push(fed, "a", b"", url=target)) == "upload-locked"
    with world.store.write() as session:
        uploads.let_go(session, grip)
    assert world.push(fed, "a", b"", url=target).status_code == 201


def test_discriminators_data_sets_and_models_come_by_name_too(world: World) -> None:
    fed = world.collecting(["a", "b"])
    device, operator = Sender(world, fed.devices["a"].token), Sender(world, world.operator)
    file = world.forge.pack(world.forge.arrays(4), {"num_samples": "10"})
    url = f"/v1/federations/{fed.id}/discriminator?upload={device.whole(file)}"
    for expected in (201, 200):
        assert device.ask("PUT", url).status_code == expected
    data = world.forge.pack({"inputs": np.ones((4, 2), np.float32)})
    url = f"/v1/datasets?name=by-name&upload={operator.whole(data)}"
    made = [operator.ask("POST", url) for _ in "12"]
    assert [response.status_code for response in made] == [201, 201]
    assert made[0].json() == made[1].json()
    assert world.ok("GET", "/v1/datasets/by-name")["size"] == len(data)
    model = world.forge.pack(world.forge.arrays(7))
    url = f"/v1/models?upload={operator.whole(model)}"
    made = [operator.ask("POST", url) for _ in "12"]
    assert made[0].json()["id"] == made[1].json()["id"]
    assert list(world.services.parts.ids(0)) == []
