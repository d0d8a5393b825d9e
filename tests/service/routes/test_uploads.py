"""Resumable uploads by tus 1.0: what the protocol asks for."""

import base64
import hashlib
from concurrent.futures import wait
from typing import Any

import pytest

from service.operations.ledger import clock
from tests.service.world import Fed, World

from .sending import PATCHED, PIECE, Sender, checksum, held, kind, until, world_owner


# ---------------------------------------------------------------------------------------------------- the protocol
def test_options_tell_what_is_spoken(world: World) -> None:
    response = world.site.request("OPTIONS", "/v1/uploads")
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["tus-version"] == response.headers["tus-resumable"] == "1.0.0"
    extensions = response.headers["tus-extension"].split(",")
    assert extensions == ["creation", "creation-with-upload", "checksum", "expiration", "termination"]
    assert response.headers["tus-max-size"] == str(world.settings.max_upload_bytes)
    assert response.headers["tus-checksum-algorithm"] == "sha256,sha1"


def test_an_upload_in_pieces_is_delivered_by_name(world: World, fed: Fed, sender: Sender) -> None:
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
    assert world.blobs.cache.path(receipt["digest"]).read_bytes() == body
    assert len(world.files() - before) == 1
    assert sender.ask("HEAD", url).status_code == 404
    assert world.updates() == 1
    direct = world.push(fed, "a", body)
    assert (direct.status_code, direct.json()) == (200, receipt)


def test_the_answer_is_the_same_after_the_round_is_over(world: World, fed: Fed, sender: Sender) -> None:
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
def test_another_version_of_tus(world: World, sender: Sender, version: str | None) -> None:
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
def test_a_creation_that_is_refused(world: World, sender: Sender, headers: Any, named: str, said: str) -> None:
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
    for said in ("x", "", "-1"):
        response = sender.patch(url, 2, b"c", {"Upload-Offset": said})
        assert (response.status_code, kind(response)) == (400, "invalid-request")
    for text in ("md5 AAAA", "sha1", "sha1 !", "sha256 AAAA", checksum("sha1", b"c")[:-4]):
        response = sender.patch(url, 2, b"c", {"Upload-Checksum": text})
        assert (response.status_code, kind(response)) == (400, "invalid-request"), text
    assert sender.offset(url) == 2
    assert sender.patch(url, 2, b"cde").status_code == 204


@pytest.mark.parametrize("name", ["sha1", "sha256"])
def test_a_piece_with_a_checksum_counts_as_a_whole_or_not_at_all(world: World, sender: Sender, name: str) -> None:
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


def test_silence_ends_a_piece_and_keeps_what_came(
    world: World, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.problems._LINGER_SECONDS", 0.01)
    monkeypatch.setattr("service.api.bodies.IDLE_SECONDS", 0.05)
    url = sender.opened(9)
    response = sender.patch(url, 0, [b"abc"], stall=True)
    assert kind(response) == "incomplete-body"
    assert sender.offset(url) == 3


def test_long_pieces_are_acknowledged_as_they_come(
    world: World, sender: Sender, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in the middle of a piece costs what came after the last step, not the whole piece."""
    monkeypatch.setattr("service.api.bodies.pour.__kwdefaults__", {"tail": False, "size": 16})
    monkeypatch.setattr("service.api.resumable.STEP_BYTES", 32)
    url = sender.opened(200)
    going = sender.begin(url, 0, [bytes(100)], stall=True)

    def acknowledged() -> int:
        with world.store.read() as session:
            from service.persistence.tables import UploadRow

            return session.get_one(UploadRow, url.rpartition("/")[2]).offset

    until(lambda: acknowledged() == 96)
    assert not going.done()
    assert sender.offset(url) == 100  # HEAD ends the request that hangs
    assert kind(going.result(20)) == "upload-locked"


def test_of_two_pieces_at_once_one_is_written(world: World, sender: Sender, quick: None) -> None:
    url = sender.opened(6)
    first = sender.begin(url, 0, [b"abc"], stall=True)
    until(lambda: held(world, url))
    second = sender.patch(url, 0, b"xyzxyz")
    assert (second.status_code, kind(second)) == (423, "upload-locked")
    assert second.headers["retry-after"] == "1"
    assert sender.offset(url) == 3
    assert kind(first.result(20)) == "upload-locked"
    assert sender.patch(url, 3, b"def").status_code == 204


def test_many_pieces_at_once_never_mix(world: World, sender: Sender) -> None:
    url = sender.opened(3000)
    pieces = [bytes([65 + i]) * 3000 for i in range(12)]
    begun = [sender.begin(url, 0, piece) for piece in pieces]
    assert not wait(begun, timeout=60).not_done
    codes = [future.result().status_code for future in begun]
    assert codes.count(204) == 1
    assert set(codes) <= {204, 409, 423}
    path = world.services.parts.root / url.rpartition("/")[2]
    assert path.read_bytes() == pieces[codes.index(204)]


def test_a_lease_that_ran_out_is_free(world: World, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that was killed in the middle of a piece holds nobody up for long."""
    from service.operations.store import uploads

    url = sender.opened(3)
    with world.store.write() as session:
        uploads.take(session, world_owner(world, url), url.rpartition("/")[2], 0)
    assert sender.patch(url, 0, b"abc").status_code == 423
    later = clock.now() + uploads.LEASE
    monkeypatch.setattr(PATCHED, lambda: later)
    assert sender.patch(url, 0, b"abc").status_code == 204
