"""A service whose blobs are in a bucket: downloads, direct uploads, and a store that is away."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.bucket_server import BucketServer
from tests.service.conftest import SettingsMaker
from tests.service.world import Fed, World


@pytest.fixture
def values(bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.setattr("service.infra.bucket.TIMEOUT_SECONDS", 5.0)
    yield bucket_server.settings()
    bucket_server.door.down = False


@pytest.fixture
def world(make_settings: SettingsMaker, world_of: type[World], values: dict[str, Any]) -> Iterator[World]:
    made = world_of(make_settings(**values))
    yield made
    made.close()


@pytest.fixture
def linked(make_settings: SettingsMaker, world_of: type[World], values: dict[str, Any]) -> Iterator[World]:
    """The same with presigned addresses."""
    made = world_of(make_settings(**values, presign=True))
    yield made
    made.close()


def imported(world: World) -> tuple[dict[str, Any], bytes]:
    body = world.forge.pack(world.forge.arrays(3))
    return world.ok("POST", "/v1/models", body=body), body


def test_a_download_passes_through(world: World) -> None:
    info, body = imported(world)
    whole = world.op("GET", info["url"])
    assert (whole.status_code, whole.content) == (200, body)
    assert whole.headers["etag"] == f'"{info["digest"]}"'
    assert whole.headers["content-length"] == str(len(body))
    head = world.op("HEAD", info["url"])
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(body)))
    assert world.op("GET", info["url"], headers={"If-None-Match": whole.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    ("asked", "part"),
    [("bytes=3-9", slice(3, 10)), ("bytes=100-", slice(100, None)), ("bytes=-7", slice(-7, None)),
     ("bytes=0-99999999", slice(0, None))],
)  # fmt: skip
def test_a_part_passes_through(world: World, asked: str, part: slice) -> None:
    info, body = imported(world)
    response = world.op("GET", info["url"], headers={"Range": asked})
    assert (response.status_code, response.content) == (206, body[part])
    assert response.headers["content-range"].endswith(f"/{len(body)}")
    other = world.op("GET", info["url"], headers={"Range": asked, "If-Range": '"another version"'})
    assert (other.status_code, other.content) == (200, body)


def test_a_range_outside_and_several_ranges(world: World) -> None:
    info, body = imported(world)
    outside = world.op("GET", info["url"], headers={"Range": f"bytes={len(body)}-"})
    assert (outside.status_code, outside.headers["content-range"]) == (416, f"bytes */{len(body)}")
    assert outside.json()["type"].endswith("range-not-satisfiable")
    for odd in ("bytes=0-1,5-6", "lines=1-2", "bytes=-", "bytes=x-1"):
        response = world.op("GET", info["url"], headers={"Range": odd})
        assert (response.status_code, response.content) == (200, body), odd


def test_a_download_may_be_sent_to_the_bucket(linked: World) -> None:
    info, body = imported(linked)
    answer = linked.op("GET", info["url"])
    assert (answer.status_code, answer.headers["cache-control"]) == (307, "no-store")
    assert httpx.get(answer.headers["location"]).content == body
    assert linked.op("HEAD", info["url"]).status_code == 200


def test_no_direct_uploads_without_presigned_addresses(world: World) -> None:
    fed = world.running()
    token = fed.devices["a"].token
    wanted = {"digest": "sha256-" + "0" * 64, "size": 5}
    response = world.site.request("POST", "/v1/staging", token=token, json=wanted)
    assert response.status_code == 404 and "body of the delivery" in response.json()["detail"]
    assert (
        world.push(fed, "a", b"", url=f"/v1/rounds/{world.round(fed)['id']}/update?staged={'0' * 32}").status_code
        == 404
    )


def staged(world: World, fed: Fed, name: str, body: bytes, **changes: Any) -> httpx.Response:
    wanted = {"digest": f"sha256-{hashlib.sha256(body).hexdigest()}", "size": len(body), **changes}
    response = world.site.request("POST", "/v1/staging", token=fed.devices[name].token, json=wanted)
    if response.status_code == 201:
        place = response.json()
        assert httpx.put(place["url"], content=body, headers=place["headers"]).status_code == 200
    return response


def deliver(world: World, fed: Fed, name: str, place: str, body: bytes = b"") -> httpx.Response:
    return world.push(fed, name, body, url=f"/v1/rounds/{world.round(fed)['id']}/update?staged={place}")


def test_a_direct_upload_counts_when_it_was_checked(
    linked: World, bucket_server: BucketServer, values: dict[str, Any]
) -> None:
    fed = linked.running()
    body = linked.update(fed)
    place = staged(linked, fed, "a", body).json()["name"]
    assert linked.updates() == 0
    assert deliver(linked, fed, "b", place).status_code == 404, "another device's file"
    assert deliver(linked, fed, "a", place, b"and a body").status_code == 400
    receipt = deliver(linked, fed, "a", place)
    assert receipt.status_code == 201
    assert receipt.json()["digest"] == f"sha256-{hashlib.sha256(body).hexdigest()}"
    assert linked.updates() == 1
    assert not [key for key in bucket_server.keys(values) if key.startswith("staging/")]
    again = deliver(linked, fed, "a", place)
    assert (again.status_code, again.json()) == (200, receipt.json()), "it is gone, and its answer is not"
    assert deliver(linked, fed, "b", place).status_code == 404


def at_once(linked: World, fed: Fed, place: str) -> list[httpx.Response]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda _: deliver(linked, fed, "a", place), range(8)))


def test_parallel_deliveries_of_one_direct_upload_get_one_answer(
    linked: World, bucket_server: BucketServer, values: dict[str, Any]
) -> None:
    fed = linked.running()
    answers = at_once(linked, fed, staged(linked, fed, "a", linked.update(fed)).json()["name"])
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.content for answer in answers}) == 1
    assert linked.updates() == 1
    assert not [key for key in bucket_server.keys(values) if key.startswith("staging/")]


def test_parallel_deliveries_of_a_bad_direct_upload_all_hear_why(
    linked: World, bucket_server: BucketServer, values: dict[str, Any]
) -> None:
    fed = linked.running()
    place = staged(linked, fed, "a", linked.update(fed)[:-1]).json()["name"]
    answers = [*at_once(linked, fed, place), deliver(linked, fed, "a", place)]
    told = [{key: value for key, value in answer.json().items() if key != "instance"} for answer in answers]
    assert told[0]["status"] == 422 and told[0]["type"].endswith("invalid-container")
    assert told == [told[0]] * 9, "also after the bytes are gone"
    assert linked.updates() == 0
    assert not [key for key in bucket_server.keys(values) if key.startswith("staging/")]


def test_what_the_bucket_sends_and_takes_is_of_a_federations_bytes(linked: World) -> None:
    """A link counts as one whole file; what was put into the bucket counts when it is delivered."""
    fed = linked.running()
    device, body = fed.devices["a"], linked.update(fed)
    model = linked.assignment(device)["model"]
    assert linked.site.request("GET", model["url"], token=device.token).status_code == 307
    assert deliver(linked, fed, "a", staged(linked, fed, "a", body).json()["name"]).status_code == 201
    (first,) = linked.ok("GET", f"/v1/federations/{fed.id}/report")["rounds"]
    assert first["wire"] == first["files"] == {"down": model["size"], "up": len(body)}


def test_a_bad_direct_upload_leaves_nothing(linked: World, bucket_server: BucketServer, values: dict[str, Any]) -> None:
    fed = linked.running()
    before = bucket_server.keys(values)
    for body in (linked.update(fed)[:-1], linked.update(fed, base_model="mdl_other"), b"\0" * 20):
        place = staged(linked, fed, "a", body).json()["name"]
        assert deliver(linked, fed, "a", place).status_code in (409, 422)
    assert linked.updates() == 0
    assert bucket_server.keys(values) == before
    assert staged(linked, fed, "a", b"x", size=10**12).status_code == 413
    assert staged(linked, fed, "a", b"x", digest="sha256-").status_code == 422


def test_a_store_that_is_away_is_told_to_devices_and_changes_nothing(world: World, bucket_server: BucketServer) -> None:
    fed = world.running()
    info, _ = imported(world)
    body = world.update(fed)
    bucket_server.door.down = True
    for response in (world.push(fed, "a", body), world.op("GET", info["url"])):
        assert response.status_code == 503
        assert response.json()["type"].endswith("unavailable")
        assert int(response.headers["retry-after"]) >= 1
    ready = world.op("GET", "/readyz")
    assert (ready.status_code, ready.json()["checks"]["blobs"]["ok"]) == (503, False)
    assert world.updates() == 0
    bucket_server.door.down = False
    assert world.push(fed, "a", body).status_code == 201


def test_what_was_committed_stands_though_the_store_went_away(world: World, bucket_server: BucketServer) -> None:
    data = world.dataset()
    bucket_server.door.down = True
    assert world.op("DELETE", f"/v1/datasets/{data['id']}").status_code == 204


def test_direct_uploads_are_of_the_days_bytes(
    make_settings: SettingsMaker, world_of: type[World], values: dict[str, Any]
) -> None:
    """An address may be asked for and never used; the store is filled by those that are, without the service."""
    world = world_of(make_settings(**values, presign=True, upload_bytes_per_day=5000))
    try:
        device = world.enrol(world.create(), "a")
        wish = {"digest": "sha256-" + "0" * 64, "size": 2000}
        answers = [world.site.request("POST", "/v1/staging", token=device.token, json=wish) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [201, 201, 429]
        assert answers[-1].json()["limit"] == 5000
    finally:
        world.close()
