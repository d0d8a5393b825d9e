"""Resumable uploads by tus 1.0: the protocol, who may do what, the limits, and how an upload comes to count."""

import base64
import hashlib
import time
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any

import httpx
import numpy as np
import pytest

from contract.wire.problems import TYPE_PREFIX
from service.operations import clock
from service.operations.sweep import sweep, tidy

TUS = {"Tus-Resumable": "1.0.0"}
PIECE = {**TUS, "Content-Type": "application/offset+octet-stream"}
PATCHED = "service.operations.uploads.now"


def kind(response: Any) -> str:
    return response.json()["type"].removeprefix(TYPE_PREFIX)


def checksum(name: str, piece: bytes) -> str:
    return f"{name} {base64.b64encode(hashlib.new(name, piece).digest()).decode()}"


class Sender:
    """A device that uploads by hand."""

    def __init__(self, world: Any, token: str):
        self.world, self.token = world, token

    def ask(self, method: str, url: str, body: Any = b"", headers: Any = None, **more: Any) -> httpx.Response:
        return self.world.site.request(method, url, token=self.token, body=body, headers=TUS | (headers or {}), **more)

    def create(self, length: int, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/v1/uploads", headers={"Upload-Length": str(length), **named})

    def opened(self, length: int) -> str:
        response = self.create(length)
        assert response.status_code == 201, response.text
        return response.headers["location"]

    def patch(self, url: str, offset: int, body: Any, headers: Any = None, **more: Any) -> httpx.Response:
        return self.ask("PATCH", url, body, PIECE | {"Upload-Offset": str(offset)} | (headers or {}), **more)

    def begin(self, url: str, offset: int, body: Any, **more: Any) -> "Future[httpx.Response]":
        headers = PIECE | {"Upload-Offset": str(offset)}
        return self.world.site.begin("PATCH", url, token=self.token, body=body, headers=headers, **more)

    def offset(self, url: str) -> int:
        response = self.ask("HEAD", url)
        assert response.status_code == 200
        return int(response.headers["upload-offset"])

    def whole(self, body: bytes) -> str:
        """Upload a body and return the upload's id."""
        url = self.opened(len(body))
        assert self.patch(url, 0, body).status_code == 204
        return url.rpartition("/")[2]


@pytest.fixture
def fed(world: Any) -> Any:
    return world.running(["a", "b"])


@pytest.fixture
def sender(world: Any, fed: Any) -> Sender:
    return Sender(world, fed.devices["a"].token)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are renewed, and HEAD looks, every moment."""
    monkeypatch.setattr("service.api.lease.RENEW_SECONDS", 0.02)
    monkeypatch.setattr("service.api.routes.uploads._POLL_SECONDS", 0.02)


def held(world: Any, url: str) -> bool:
    with world.store.read() as session:
        from service.operations import uploads
        from service.persistence.tables import UploadRow

        return uploads.is_held(session.get_one(UploadRow, url.rpartition("/")[2]))


def until(what: Any) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


# ---------------------------------------------------------------------------------------------------- the protocol
def test_options_tell_what_is_spoken(world: Any) -> None:
    response = world.site.request("OPTIONS", "/v1/uploads")
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["tus-version"] == response.headers["tus-resumable"] == "1.0.0"
    extensions = response.headers["tus-extension"].split(",")
    assert extensions == ["creation", "creation-with-upload", "checksum", "expiration", "termination"]
    assert response.headers["tus-max-size"] == str(world.settings.max_upload_bytes)
    assert response.headers["tus-checksum-algorithm"] == "sha256,sha1"


def test_an_upload_in_pieces_is_delivered_by_name(world: Any, fed: Any, sender: Sender) -> None:
    body = world.update(fed)
    before = world.files()
    made = sender.create(len(body), Upload_Metadata=f"filename {base64.b64encode(b'x/../y').decode()},empty")
    url = made.headers["location"]
    assert (made.status_code, made.headers["tus-resumable"]) == (201, "1.0.0")
    assert made.headers["upload-expires"].endswith("GMT")
    for begin in range(0, len(body), 300):
        answer = sender.patch(url, begin, body[begin : begin + 300])
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["upload-offset"] == str(min(begin + 300, len(body)))
        assert answer.headers["upload-expires"].endswith("GMT")
    head = sender.ask("HEAD", url)
    assert (head.headers["upload-offset"], head.headers["upload-length"]) == (str(len(body)),) * 2
    assert (head.headers["cache-control"], head.headers["upload-metadata"]) == ("no-store", "filename eC8uLi95,empty")
    target = f"/v1/rounds/{world.round(fed)['id']}/update?upload={url.rpartition('/')[2]}"
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    first = world.push(fed, "a", b"", url=target, headers={"Repr-Digest": f"sha-256=:{digest}:"})
    again = world.push(fed, "a", b"", url=target)
    assert (first.status_code, again.status_code) == (201, 200), (first.text, again.text)
    receipt = first.json()
    assert receipt == again.json()
    assert (receipt["size"], receipt["digest"]) == (len(body), f"sha256-{hashlib.sha256(body).hexdigest()}")
    assert world.blobs.path(receipt["digest"]).read_bytes() == body
    assert len(world.files() - before) == 1
    assert sender.ask("HEAD", url).status_code == 404
    assert world.updates() == 1
    direct = world.push(fed, "a", body)
    assert (direct.status_code, direct.json()) == (200, receipt)


def test_the_answer_is_the_same_after_the_round_is_over(world: Any, fed: Any, sender: Sender) -> None:
    target = f"/v1/rounds/{world.round(fed)['id']}/update?upload={sender.whole(world.update(fed))}"
    first = world.push(fed, "a", b"", url=target)
    world.push(fed, "b", world.update(fed, seed=2))
    world.finish(world.claim(), {"main": world.forge.arrays(5)})
    again = world.push(fed, "a", b"", url=target)
    assert (again.status_code, again.json()) == (200, first.json())
    elsewhere = world.push(fed, "a", b"", url=target.replace("rounds/", "rounds/x"))
    assert elsewhere.status_code == 404


def test_creation_may_bring_the_first_bytes(sender: Sender) -> None:
    made = sender.ask("POST", "/v1/uploads", b"abc", PIECE | {"Upload-Length": "5"})
    assert (made.status_code, made.headers["upload-offset"]) == (201, "3")
    assert sender.offset(made.headers["location"]) == 3


def test_the_same_key_opens_the_same_upload(sender: Sender) -> None:
    first, again = (sender.create(5, Idempotency_Key="k") for _ in "12")
    assert first.headers["location"] == again.headers["location"]
    assert kind(sender.create(6, Idempotency_Key="k")) == "idempotency-conflict"


def test_a_method_may_travel_in_a_header(sender: Sender) -> None:
    url = sender.opened(3)
    headers = PIECE | {"Upload-Offset": "0", "X-HTTP-Method-Override": "PATCH"}
    assert sender.ask("POST", url, b"abc", headers).status_code == 204
    assert sender.offset(url) == 3
    assert sender.ask("POST", url, headers={"X-HTTP-Method-Override": "DELETE"}).status_code == 204
    assert sender.ask("HEAD", url).status_code == 404


@pytest.mark.parametrize("version", [None, "0.2.2", "1.0.1", ""])
def test_another_version_of_tus(world: Any, sender: Sender, version: str | None) -> None:
    url = sender.opened(3)
    headers = {} if version is None else {"Tus-Resumable": version}
    for method, path in (("POST", "/v1/uploads"), ("HEAD", url), ("PATCH", url), ("DELETE", url)):
        response = world.site.request(method, path, token=sender.token, headers=headers | {"Upload-Length": "3"})
        assert response.status_code == 412, method
        assert response.headers["tus-version"] == response.headers["tus-resumable"] == "1.0.0"
    assert sender.offset(url) == 0


@pytest.mark.parametrize(
    ("headers", "named", "said"),
    [
        ({"Upload-Length": "-1"}, "invalid-request", "Upload-Length"),
        ({"Upload-Length": "many"}, "invalid-request", "Upload-Length"),
        ({"Upload-Length": "9" * 30}, "invalid-request", "Upload-Length"),
        ({"Upload-Length": "²"}, "invalid-request", "Upload-Length"),
        ({}, "invalid-request", "Upload-Length"),
        ({"Upload-Defer-Length": "1"}, "invalid-request", "Upload-Defer-Length"),
        ({"Upload-Length": "3", "Upload-Concat": "partial"}, "invalid-request", "Upload-Concat"),
        ({"Upload-Length": "3", "Upload-Metadata": "name !"}, "invalid-field", "Upload-Metadata"),
        ({"Upload-Length": "3", "Upload-Metadata": "a YQ==,a YQ=="}, "invalid-field", "Upload-Metadata"),
        ({"Upload-Length": "3", "Upload-Metadata": "a " + "A" * 5000}, "invalid-field", "Upload-Metadata"),
        ({"Upload-Length": str(2**40)}, "too-large", "bytes"),
    ],
)
def test_a_creation_that_is_refused(world: Any, sender: Sender, headers: Any, named: str, said: str) -> None:
    encoded = {name: value.encode() for name, value in headers.items()}
    response = sender.ask("POST", "/v1/uploads", headers=encoded)
    assert kind(response) == named, response.text
    assert said in response.json()["detail"]
    assert world.services.parts and not list(world.services.parts.ids(0))


def test_pieces_that_are_refused(sender: Sender) -> None:
    url = sender.opened(5)
    assert sender.patch(url, 0, b"ab").status_code == 204
    for offset in (0, 1, 3, 5, 9):
        response = sender.patch(url, offset, b"x")
        assert (response.status_code, kind(response)) == (409, "upload-offset")
        assert (response.json()["expected"], response.json()["actual"]) == (2, offset)
    for body in (b"cdef", [b"c", b"def"]):
        response = sender.patch(url, 2, body)
        assert (response.status_code, kind(response)) == (413, "too-large"), "more than Upload-Length"
    response = sender.patch(url, 2, b"c", {"Content-Type": "application/octet-stream"})
    assert (response.status_code, kind(response)) == (415, "unsupported-media-type")
    for offset in ("x", "", "-1"):
        response = sender.patch(url, 2, b"c", {"Upload-Offset": offset})
        assert (response.status_code, kind(response)) == (400, "invalid-request")
    for text in ("md5 AAAA", "sha1", "sha1 !", "sha256 AAAA", checksum("sha1", b"c")[:-4]):
        response = sender.patch(url, 2, b"c", {"Upload-Checksum": text})
        assert (response.status_code, kind(response)) == (400, "invalid-request"), text
    assert sender.offset(url) == 2
    assert sender.patch(url, 2, b"cde").status_code == 204


@pytest.mark.parametrize("name", ["sha1", "sha256"])
def test_a_piece_with_a_checksum_counts_as_a_whole_or_not_at_all(world: Any, sender: Sender, name: str) -> None:
    url = sender.opened(6)
    assert sender.patch(url, 0, b"abc", {"Upload-Checksum": checksum(name, b"abc")}).status_code == 204
    response = sender.patch(url, 3, b"dex", {"Upload-Checksum": checksum(name, b"def")})
    assert (response.status_code, kind(response)) == (460, "checksum-mismatch")
    assert sender.offset(url) == 3
    cut = sender.patch(url, 3, [b"d"], {"Upload-Checksum": checksum(name, b"def")}, hang_up=True)
    assert cut.status_code == 400
    assert sender.offset(url) == 3
    assert sender.patch(url, 3, b"def", {"Upload-Checksum": checksum(name, b"def")}).status_code == 204
    path = world.services.parts.root / url.rpartition("/")[2]
    assert path.read_bytes() == b"abcdef"


def test_what_came_before_the_link_was_cut_is_kept(sender: Sender) -> None:
    url = sender.opened(9)
    assert sender.patch(url, 0, [b"abc", b"d"], hang_up=True).status_code == 400
    assert sender.offset(url) == 4
    assert sender.patch(url, 4, b"efghi").headers["upload-offset"] == "9"


def test_silence_ends_a_piece_and_keeps_what_came(world: Any, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.problems._LINGER_SECONDS", 0.01)
    monkeypatch.setitem(world.settings.__dict__, "max_upload_idle_seconds", 0.05)
    url = sender.opened(9)
    response = sender.patch(url, 0, [b"abc"], stall=True)
    assert kind(response) == "incomplete-body"
    assert sender.offset(url) == 3


def test_long_pieces_are_promised_as_they_come(
    world: Any, sender: Sender, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in the middle of a piece costs what came after the last step, not the whole piece."""
    monkeypatch.setattr("service.api.intake._BATCH", 16)
    monkeypatch.setattr("service.api.resumable.STEP_BYTES", 32)
    url = sender.opened(200)
    going = sender.begin(url, 0, [bytes(100)], stall=True)

    def promised() -> int:
        with world.store.read() as session:
            from service.persistence.tables import UploadRow

            return session.get_one(UploadRow, url.rpartition("/")[2]).offset

    until(lambda: promised() == 96)
    assert not going.done()
    assert sender.offset(url) == 100  # HEAD ends the request that hangs
    assert kind(going.result(20)) == "upload-locked"


def test_of_two_pieces_at_once_one_is_written(world: Any, sender: Sender, quick: None) -> None:
    url = sender.opened(6)
    first = sender.begin(url, 0, [b"abc"], stall=True)
    until(lambda: held(world, url))
    second = sender.patch(url, 0, b"xyzxyz")
    assert (second.status_code, kind(second)) == (423, "upload-locked")
    assert second.headers["retry-after"] == "1"
    assert sender.offset(url) == 3
    assert kind(first.result(20)) == "upload-locked"
    assert sender.patch(url, 3, b"def").status_code == 204


def test_many_pieces_at_once_never_mix(world: Any, sender: Sender) -> None:
    url = sender.opened(3000)
    pieces = [bytes([65 + i]) * 3000 for i in range(12)]
    begun = [sender.begin(url, 0, piece) for piece in pieces]
    assert not wait(begun, timeout=60).not_done
    codes = [future.result().status_code for future in begun]
    assert codes.count(204) == 1
    assert set(codes) <= {204, 409, 423}
    path = world.services.parts.root / url.rpartition("/")[2]
    assert path.read_bytes() == pieces[codes.index(204)]


def test_a_lease_that_ran_out_is_free(world: Any, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that was killed in the middle of a piece holds nobody up for long."""
    from service.operations import uploads

    url = sender.opened(3)
    with world.store.write() as session:
        uploads.take(session, world_owner(world, url), url.rpartition("/")[2], 0)
    assert sender.patch(url, 0, b"abc").status_code == 423
    later = clock.now() + uploads.LEASE
    monkeypatch.setattr(PATCHED, lambda: later)
    assert sender.patch(url, 0, b"abc").status_code == 204


def world_owner(world: Any, url: str) -> str:
    from service.persistence.tables import UploadRow

    with world.store.read() as session:
        return session.get_one(UploadRow, url.rpartition("/")[2]).owner


# ------------------------------------------------------------------------------------------------ whose it is, and ends
def test_an_upload_is_its_owners_alone(world: Any, fed: Any, sender: Sender) -> None:
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
def test_names_used_as_paths_find_nothing(world: Any, fed: Any, sender: Sender, name: str) -> None:
    before = world.files()
    assert sender.patch(f"/v1/uploads/{name}", 0, b"abc").status_code in (404, 405)
    named = world.push(fed, "a", b"", url=f"/v1/rounds/{world.round(fed)['id']}/update?upload={name}")
    assert named.status_code == 404
    assert world.files() == before


def test_termination_removes_it(world: Any, sender: Sender, quick: None) -> None:
    before = world.files()
    url = sender.opened(6)
    going = sender.begin(url, 0, [b"abc"], stall=True)
    until(lambda: held(world, url))
    assert sender.ask("DELETE", url).status_code == 204
    assert sender.ask("HEAD", url).status_code == 404
    assert going.result(20).status_code == 404
    assert sender.patch(url, 0, b"abc").status_code == 404
    until(lambda: world.files() == before)


def test_what_expired_is_swept(world: Any, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.files()
    url = sender.opened(6)
    sender.patch(url, 0, b"abc")
    assert world.files() != before
    sweep(world.store, 5)
    assert sender.offset(url) == 3
    later = clock.now() + timedelta(seconds=world.settings.upload_expiry_seconds + 1)
    monkeypatch.setattr(PATCHED, lambda: later)
    assert sender.ask("HEAD", url).status_code == 404
    sweep(world.store, 5)
    assert world.files() == before


def test_bytes_that_no_row_names_are_tidied_up(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stray = world.services.parts.root / ("upl_" + "0" * 23)
    stray.write_bytes(b"abc")
    tidy(world.store, world.settings)
    assert stray.exists(), "it may be that its row is about to come"
    monkeypatch.setattr("service.operations.sweep._ABANDONED_SECONDS", 0)
    tidy(world.store, world.settings)
    assert not stray.exists()


def test_a_revoked_device_leaves_no_upload(world: Any, fed: Any, sender: Sender) -> None:
    before = world.files()
    sender.patch(sender.opened(6), 0, b"abc")
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['a'].id}")
    assert world.files() == before


def test_bytes_that_were_lost_end_the_upload(world: Any, fed: Any, sender: Sender) -> None:
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
def test_how_many_may_be_open(world: Any, fed: Any, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(world.settings.__dict__, "max_open_uploads", 2)
    first, _ = sender.opened(6), sender.opened(6)
    response = sender.create(6)
    assert (response.status_code, kind(response)) == (429, "too-many-uploads")
    assert response.json()["open"][0] == {"id": first.rpartition("/")[2], "offset": 0, "length": 6}
    assert int(response.headers["retry-after"]) > 0
    assert Sender(world, fed.devices["b"].token).create(6).status_code == 201
    sender.ask("DELETE", first)
    assert sender.create(6).status_code == 201


def test_how_much_may_be_promised(world: Any, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(world.settings.__dict__, "max_open_upload_bytes", 100)
    sender.opened(60)
    response = sender.create(60)
    assert (response.status_code, kind(response)) == (507, "storage-full")
    assert (response.json()["expected"], response.json()["actual"]) == (100, 120)
    assert sender.create(40).status_code == 201


def test_room_that_was_promised_is_taken(world: Any, fed: Any, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    body = world.update(fed)
    monkeypatch.setattr(type(world.blobs), "free_bytes", lambda self: len(body) + 100)
    url = sender.opened(1000)
    assert kind(sender.create(len(body))) == "storage-full"
    assert kind(world.push(fed, "a", body)) == "storage-full"
    sender.ask("DELETE", url)
    assert world.push(fed, "a", body).status_code == 201


# ------------------------------------------------------------------------------------------------- what is delivered
@pytest.mark.parametrize("bad", ["nan", "cut", "stale", "closed"])
def test_a_refused_delivery_leaves_nothing(world: Any, fed: Any, sender: Sender, bad: str) -> None:
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
    assert kind(world.push(fed, "a", b"", url=target)) in ("not-found", "round-closed")


def test_what_is_not_whole_or_not_clear_is_kept(world: Any, fed: Any, sender: Sender) -> None:
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


def test_another_digest_than_the_device_has(world: Any, fed: Any, sender: Sender) -> None:
    before = world.files()
    target = f"/v1/rounds/{world.round(fed)['id']}/update?upload={sender.whole(world.update(fed))}"
    wrong = world.push(fed, "a", b"", url=target, headers={"Repr-Digest": "sha-256=:" + "A" * 43 + "=:"})
    assert (wrong.status_code, kind(wrong)) == (400, "digest-mismatch")
    assert (world.updates(), world.files()) == (0, before)


def test_a_delivery_that_is_under_way_has_the_upload(world: Any, fed: Any, sender: Sender) -> None:
    from service.operations import uploads

    upload = sender.whole(world.update(fed))
    target = f"/v1/rounds/{world.round(fed)['id']}/update?upload={upload}"
    with world.store.write() as session:
        grip = uploads.take(session, fed.devices["a"].id, upload)
    assert kind(world.push(fed, "a", b"", url=target)) == "upload-locked"
    with world.store.write() as session:
        uploads.let_go(session, grip)
    assert world.push(fed, "a", b"", url=target).status_code == 201


def test_discriminators_data_sets_and_models_come_by_name_too(world: Any) -> None:
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
