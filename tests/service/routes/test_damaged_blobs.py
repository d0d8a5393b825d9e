"""Stored files that are damaged, cut or gone: never served, named, set aside, and put back by the same bytes."""

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from service.infra.blob_folder import FolderStore
from tests.service.world import World, refused


def store_of(world: World) -> FolderStore:
    assert isinstance(world.blobs.store, FolderStore)
    return world.blobs.store


def flip(path: Path, keep_time: bool = False) -> None:
    """Turn one bit of a file's last byte, as a disk would; with its old time of change if wanted."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path: Path) -> None:
    """Take a file's last byte away."""
    os.truncate(path, path.stat().st_size - 1)


def events(world: World, kind: str) -> list[dict[str, Any]]:
    found = world.ok("GET", "/v1/events?format=json&after=0&limit=500")["items"]
    return [event["data"] for event in found if event["kind"] == kind]


@pytest.mark.parametrize("harm", [flip, cut, lambda path: flip(path, keep_time=True)], ids=["flip", "cut", "hidden"])
@pytest.mark.parametrize("seen_before", [False, True])
def test_a_damaged_model_is_named_and_never_served(world: World, harm: Any, seen_before: bool) -> None:
    fed = world.running()
    model = world.ok("GET", f"/v1/models?federation={fed.id}")["items"][0]
    path = store_of(world).path(model["digest"])
    if seen_before:
        assert world.op("GET", model["url"]).status_code == 200
    harm(path)
    for method, headers in (("GET", {}), ("GET", {"Range": "bytes=0-3"}), ("HEAD", {})):
        answer = world.op(method, model["url"], headers=headers)
        assert answer.status_code == 503
        assert "repr-digest" not in answer.headers
        if method == "GET":
            assert refused(answer)[1] in ("blob-damaged", "blob-missing")
            assert answer.json()["model"] == model["id"] and model["id"] in answer.json()["detail"]
    told = events(world, "blob.damaged")
    assert [(each["model_id"], each["digest"]) for each in told] == [(model["id"], model["digest"])]
    row = world.ok("GET", "/v1/audit?action=blob.quarantine")["items"]
    assert [each["target"] for each in row] == [model["digest"]]


def test_the_damaged_file_is_set_aside_for_its_owner_only(world: World) -> None:
    fed = world.running()
    model = world.ok("GET", f"/v1/models?federation={fed.id}")["items"][0]
    store = store_of(world)
    path = store.path(model["digest"])
    path.chmod(0o644)
    flip(path)
    assert refused(world.op("GET", model["url"])) == (503, "blob-damaged")
    assert not path.exists()
    aside = store.quarantine / path.name
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.quarantine.stat().st_mode) == 0o700
    assert refused(world.op("GET", model["url"])) == (503, "blob-missing")


def test_the_quarantine_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.infra.blob_folder.QUARANTINE_FILES", 2)
    store = store_of(world)
    for seed in range(4):
        body = world.forge.pack(world.forge.arrays(seed))
        model = world.ok("POST", "/v1/models", body=body)
        flip(store.path(model["digest"]))
        assert world.op("GET", model["url"]).status_code == 503
    assert len(list(store.quarantine.iterdir())) == 2
    monkeypatch.setattr("service.infra.blob_folder.QUARANTINE_SECONDS", -1.0)
    world.blobs.sweep(3600.0, set())
    assert not list(store.quarantine.iterdir())


def test_a_model_that_is_read_often_is_hashed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    model = world.ok("POST", "/v1/models", body=world.forge.pack(world.forge.arrays(7)))
    read: list[str] = []

    def digest_of(_: Any, digest: str, *__: Any) -> str:
        read.append(digest)
        return digest

    monkeypatch.setattr("service.infra.blob_folder._digest", digest_of)
    for _ in range(3):
        assert world.op("GET", model["url"]).status_code == 200
    assert read == [model["digest"]]


def test_a_models_file_that_is_gone_is_no_500(world: World) -> None:
    fed = world.running()
    model = world.ok("GET", f"/v1/models?federation={fed.id}")["items"][0]
    body = world.update(fed)
    store_of(world).path(model["digest"]).unlink()
    for answer in (world.op("GET", model["url"]), world.push(fed, "a", body)):
        assert refused(answer) == (503, "blob-missing")
        assert answer.json()["model"] == model["id"]
        assert int(answer.headers["retry-after"]) > 0
    assert world.updates() == 0


def test_the_same_bytes_put_a_lost_model_back(world: World) -> None:
    body = world.forge.pack(world.forge.arrays(8))
    model = world.ok("POST", "/v1/models", body=body)
    flip(store_of(world).path(model["digest"]))
    assert world.op("GET", model["url"]).status_code == 503
    world.ok("POST", "/v1/models", body=body)
    answer = world.op("GET", model["url"])
    assert (answer.status_code, answer.content) == (200, body)
    assert [each["model_id"] for each in events(world, "blob.restored")] == [model["id"]]


def test_the_same_bytes_put_a_lost_data_set_back(world: World) -> None:
    data = world.dataset()
    path = store_of(world).path(data["digest"])
    body = path.read_bytes()
    path.unlink()
    assert world.ok("POST", f"/v1/datasets?name={data['name']}", body=body)["id"] == data["id"]
    assert path.read_bytes() == body
    assert [each["name"] for each in events(world, "blob.restored")] == [data["name"]]


@pytest.mark.parametrize("harm", [flip, Path.unlink], ids=["damaged", "gone"])
def test_the_same_update_again_puts_its_file_back(world: World, harm: Any) -> None:
    fed = world.running()
    body = world.update(fed)
    receipt = world.push(fed, "a", body).json()
    path = store_of(world).path(receipt["digest"])
    harm(path)
    again = world.push(fed, "a", body)
    assert (again.status_code, again.json()) == (200, receipt)
    assert path.read_bytes() == body
    assert [each["client"] for each in events(world, "blob.restored")] == ["a"]
    assert world.push(fed, "a", body).status_code == 200
    assert len(events(world, "blob.restored")) == 1, "nothing was lost that time"


def test_the_same_discriminator_again_puts_its_file_back(world: World) -> None:
    fed = world.collecting()
    url, body = f"/v1/federations/{fed.id}/discriminator", world.forge.pack(world.forge.arrays(5))
    token = fed.devices["a"].token
    receipt = world.site.request("PUT", url, token=token, body=body).json()
    path = store_of(world).path(receipt["digest"])
    path.unlink()
    assert world.site.request("PUT", url, token=token, body=body).status_code == 200
    assert path.read_bytes() == body


def test_a_folder_that_is_no_longer_there_is_no_500(world: World) -> None:
    fed = world.running()
    model = world.ok("GET", f"/v1/models?federation={fed.id}")["items"][0]
    body = world.update(fed)
    assert world.op("GET", model["url"]).status_code == 200
    scratch = world.blobs.scratch.root
    shutil.rmtree(scratch)
    scratch.write_text("")  # as an unmounted or unwritable folder does, every path below it fails
    assert refused(world.push(fed, "a", body)) == (503, "storage-unavailable")
    ready = world.op("GET", "/readyz")
    assert ready.status_code == 503
    scratch.unlink()
    scratch.mkdir()
    assert world.push(fed, "a", body).status_code == 201


def test_a_file_of_the_system_that_cannot_be_written_is_no_500(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = world.running()
    body = world.update(fed)

    def read_only(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("service.infra.blob_folder.os.replace", read_only)
    answer = world.push(fed, "a", body)
    assert refused(answer) == (503, "storage-unavailable")
    assert "Read-only" in answer.json()["detail"]
    monkeypatch.undo()
    assert world.updates() == 0
    assert world.push(fed, "a", body).status_code == 201
