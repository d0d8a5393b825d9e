"""How a file gets through: at once, in pieces, after broken links, and against services that know less."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import Client, errors
from client_sdk.deliveries import Deliveries
from client_sdk.progress import Progress
from client_sdk.state import Pending, StateFolder
from client_sdk.uploads import Delivery
from contract.wire.problems import MEDIA_TYPE

from .conftest import NOW, URL, problem

TARGET = "/v1/rounds/rnd_1/update"
BODY = bytes(range(256)) * 40  # 10,240 bytes


class Tus:
    """A service that takes one file, by tus or at once. `cuts`: bytes after which the next bodies break off."""

    def __init__(self, *cuts: int, tus: bool = True):
        self.cuts, self.tus = list(cuts), tus
        self.uploads: dict[str, tuple[int, bytes]] = {}
        self.requests: list[httpx.Request] = []
        self.taken: list[bytes] = []
        self.sent = 0
        self.lose: Callable[[], None] = lambda: None

    def client(self, **options: Any) -> Client:
        http = httpx.Client(transport=httpx.MockTransport(self.handle))
        return Client(URL, "t", http_client=http, sleep=lambda seconds: None, retries=3, **options)

    def methods(self) -> str:
        return " ".join(request.method for request in self.requests)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.path == TARGET:
            return self._deliver(request)
        if not self.tus:
            return problem("not-found")
        assert request.headers["Tus-Resumable"] == "1.0.0"
        return {"POST": self._create, "HEAD": self._head, "PATCH": self._patch, "DELETE": self._delete}[request.method](
            request
        )

    def _body(self, request: httpx.Request) -> tuple[bytes, bool]:
        """Return what arrives of a body, and whether it is all of it."""
        cut = self.cuts.pop(0) if self.cuts else None
        data = b""
        for chunk in request.stream:  # type: ignore[union-attr]
            data += chunk
        data = data if cut is None else data[:cut]
        self.sent += len(data)
        return data, cut is None

    def _create(self, request: httpx.Request) -> httpx.Response:
        name = f"upl_{len(self.requests)}"
        self.uploads[name] = (int(request.headers["Upload-Length"]), b"")
        return httpx.Response(201, headers={"Location": f"/v1/uploads/{name}"})

    def _head(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        if name not in self.uploads:
            return httpx.Response(404)
        return httpx.Response(200, headers={"Upload-Offset": str(len(self.uploads[name][1]))})

    def _patch(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        length, there = self.uploads[name]
        if int(request.headers["Upload-Offset"]) != len(there):
            return problem("upload-offset")
        data, whole = self._body(request)
        self.uploads[name] = (length, there + data)
        self.lose()
        if not whole:
            raise httpx.WriteError("connection reset")
        return httpx.Response(204, headers={"Upload-Offset": str(len(there + data))})

    def _delete(self, request: httpx.Request) -> httpx.Response:
        self.uploads.pop(request.url.path.rpartition("/")[2])
        return httpx.Response(204)

    def _deliver(self, request: httpx.Request) -> httpx.Response:
        name = request.url.params.get("upload")
        if name is None:
            data, whole = self._body(request)
            if not whole:
                raise httpx.WriteError("connection reset")
        elif name not in self.uploads:
            return problem("not-found", f"there is no upload {name!r}")
        else:
            length, data = self.uploads.pop(name)
            assert len(data) == length
            assert request.headers["Repr-Digest"].startswith("sha-256=:")
        self.taken.append(data)
        answer = {
            "id": "upd_1",
            "round_id": "rnd_1",
            "round": 1,
            "client_id": "cli_1",
            "digest": f"sha256-{hashlib.sha256(data).hexdigest()}",
            "size": len(data),
            "num_samples": 1,
            "received_at": NOW,
        }
        return httpx.Response(201, json=answer)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "update"
    path.write_bytes(BODY)
    return path


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("client_sdk.uploads.PIECE_BYTES", 4096)
    monkeypatch.setattr("client_sdk.uploads.CHUNK", 1024)


def test_a_small_file_goes_at_once(file: Path) -> None:
    service = Tus()
    assert service.client().push_update("rnd_1", file).size == len(BODY)
    assert service.methods() == "PUT"


def test_a_large_file_goes_in_pieces_and_the_progress_is_told(file: Path) -> None:
    service, told = Tus(), []
    service.client(resumable_bytes=len(BODY)).push_update("rnd_1", file, on_bytes=lambda *seen: told.append(seen))
    assert service.methods() == "POST HEAD PATCH PATCH PATCH PUT"
    assert service.taken == [BODY]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (told[0], told[-1]) == ((0, len(BODY)), (len(BODY), len(BODY)))


def test_a_broken_put_goes_on_in_pieces_where_the_link_broke(file: Path) -> None:
    said: list[Any] = []
    service = Tus(3000, 1500, 10, 2000)
    service.client(on_retry=said.append).push_update("rnd_1", file)
    assert service.taken == [BODY]
    assert service.methods() == "PUT POST HEAD PATCH HEAD PATCH HEAD PATCH HEAD PATCH PATCH PUT"
    assert service.sent == 3000 + len(BODY), "no byte of the upload went twice"
    assert "broke off" in said[0]


def test_a_service_that_is_down_is_no_broken_upload(file: Path) -> None:
    service = Tus()
    answers = iter([httpx.ConnectError("refused"), None])

    def handle(request: httpx.Request) -> httpx.Response:
        error = next(answers, None)
        if error is not None:
            raise error
        return service.handle(request)

    http = httpx.Client(transport=httpx.MockTransport(handle))
    Client(URL, "t", http_client=http, sleep=lambda seconds: None).push_update("rnd_1", file)
    assert service.methods() == "PUT"


def test_a_service_without_tus_gets_the_whole_file_again(file: Path) -> None:
    service = Tus(3000, tus=False)
    service.client().push_update("rnd_1", file)
    assert service.methods() == "PUT POST PUT"
    large = Tus(tus=False)
    large.client(resumable_bytes=1).push_update("rnd_1", file)
    assert (large.methods(), large.taken) == ("POST PUT", [BODY])


def test_another_process_goes_on_at_the_offset(file: Path, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "device")
    service = Tus(1000, 1000, 1000, 1000, 1000)
    with folder.locked(), pytest.raises(errors.TransportError):
        Client(
            URL, "t", http_client=httpx.Client(transport=httpx.MockTransport(service.handle)), retries=0
        ).push_update("rnd_1", file, memory=folder)
    sent, service.cuts = service.sent, []
    assert json.loads((folder.path / "upload.json").read_bytes())["url"].startswith("/v1/uploads/upl_")
    again = StateFolder(tmp_path / "device")
    with again.locked():
        service.client().push_update("rnd_1", file, memory=again)
    assert service.methods().count("POST") == 1
    assert service.taken == [BODY]
    assert sent == 2000
    assert service.sent == 1000 + len(BODY)
    assert not (folder.path / "upload.json").exists()


def test_an_upload_that_is_gone_is_begun_anew(file: Path, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "device")
    service = Tus()
    digest = f"sha256-{hashlib.sha256(BODY).hexdigest()}"
    with folder.locked():
        folder.remember_upload(digest, "/v1/uploads/upl_old")
        service.client().push_update("rnd_1", file, memory=folder)
    assert service.taken == [BODY]
    assert service.methods().startswith("HEAD POST HEAD PATCH")


def test_an_upload_that_is_swept_before_it_is_named_is_sent_again(file: Path) -> None:
    swept: list[Any] = []
    service = Tus()

    def lose() -> None:
        whole = [name for name, (length, data) in service.uploads.items() if len(data) == length]
        if whole and not swept:
            swept.append(service.uploads.pop(whole[0]))

    service.lose = lose
    service.client(resumable_bytes=1).push_update("rnd_1", file)
    assert (len(swept), service.taken) == (1, [BODY])


def test_too_many_uploads_make_room(file: Path) -> None:
    service = Tus()
    service.uploads["upl_old"] = (5, b"")
    plain = service._create

    def create(request: httpx.Request) -> httpx.Response:
        if "upl_old" in service.uploads:
            return problem("too-many-uploads", open=[{"id": "upl_old", "offset": 0, "length": 5}])
        return plain(request)

    service._create = create  # type: ignore[method-assign]
    service.client(resumable_bytes=1).push_update("rnd_1", file)
    assert service.methods().startswith("POST DELETE POST HEAD")
    assert service.taken == [BODY]


def test_nothing_that_gets_through_is_given_up(file: Path) -> None:
    service = Tus(*[0] * 50)
    with pytest.raises(errors.TransportError):
        service.client(resumable_bytes=1).push_update("rnd_1", file)
    assert service.methods().count("PATCH") == 4  # one, and three more
    slow = Tus(*[100] * 90)  # far more breaks than tries, but something always comes through
    slow.client(resumable_bytes=1).push_update("rnd_1", file)
    assert (slow.taken, slow.sent) == ([BODY], len(BODY))


def test_a_refusal_ends_it(file: Path) -> None:
    service = Tus()
    service._deliver = lambda request: problem("round-closed")  # type: ignore[method-assign]
    with pytest.raises(errors.RoundClosed):
        service.client(resumable_bytes=1).push_update("rnd_1", file)


def test_a_post_keeps_one_key_over_both_ways(file: Path) -> None:
    service = Tus(10)
    client = service.client()
    response = Delivery(client._transport, "POST", TARGET, file, params={"name": "x"}).send()
    assert response.status_code == 201
    posts = [request for request in service.requests if request.url.path == TARGET]
    assert len({request.headers["Idempotency-Key"] for request in posts}) == 1
    assert all(request.url.params["name"] == "x" for request in posts)


def test_the_bar_goes_back_when_the_service_has_less(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("bar").sending("uploading") as sent:
        for done in (0, 600, 200, 1000):
            sent(done, 1000)
    shown = capsys.readouterr().err
    assert "uploading: 100%" in shown
    assert "20%" in shown
    with Progress("bar").sending("nothing"):
        pass
    assert capsys.readouterr().err == ""


class Between(Tus):
    """The same behind a proxy: no body beyond `limit`; `hangs_up` in place of an answer; `answer` to everything."""

    limit, hangs_up = 1 << 40, False
    answer: httpx.Response | None = None

    def handle(self, request: httpx.Request) -> httpx.Response:
        if self.answer is not None:
            return self.answer
        if int(request.headers.get("Content-Length", 0)) > self.limit:
            self.requests.append(request)
            if self.hangs_up:
                raise httpx.WriteError("connection reset")
            return httpx.Response(
                413, text="<html>413</html>", headers={"Server": "nginx", "Content-Type": "text/html"}
            )
        return super().handle(request)


@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize("limit", [5000, 2000, 1100])
def test_what_a_proxy_finds_too_large_goes_in_pieces_that_fit(
    file: Path, limit: int, hangs_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sdk.uploads.LEAST_PIECE_BYTES", 512)
    said: list[str] = []
    service = Between()
    service.limit, service.hangs_up = limit, hangs_up
    with service.client(on_retry=said.append) as client:
        client.push_update("rnd_1", file)
    assert service.taken == [BODY]
    if not hangs_up:
        assert "nginx" in said[0] and "10,240 bytes" in said[0] and "going on in pieces" in said[0]


def _deliver(service: Tus, folder: StateFolder) -> errors.PotstillError:
    folder.draft.write_bytes(BODY)
    folder.submit(Pending(kind="update", purpose="rnd_1", base="mdl_1", loss=1.0, num_samples=1))
    pending = folder.pending()
    assert pending is not None
    with service.client() as client, pytest.raises(errors.PotstillError) as raised:
        Deliveries(client, folder, Progress(False)).deliver(pending, TARGET)
    return raised.value


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (413, {"Server": "nginx"}, "nginx, .*refused a body of .* bytes; have its limit raised"),
        (301, {"Location": "https://far.example/v1/x"}, "sends to https://far.example/v1/x"),
        (302, {"Location": "/login"}, "sends to http://potstill.test/login"),
        (307, {"Location": "/login"}, "sends to http://potstill.test/login"),
        (403, {"Content-Type": "text/html"}, "something between here and the service"),
        (409, {"Content-Type": "text/html"}, "something between here and the service"),
        (422, {"Content-Type": "text/html"}, "something between here and the service"),
        (415, {"Content-Type": "text/html"}, "something between here and the service"),
        (502, {"Content-Type": "text/html"}, "does not reach the service"),
    ],
)
def test_a_refusal_of_something_between_costs_no_training(
    status: int, headers: dict[str, str], says: str, tmp_path: Path
) -> None:
    service = Between()
    service.answer = httpx.Response(status, text="<html>", headers=headers)
    folder = StateFolder(tmp_path)
    error = _deliver(service, folder)
    assert isinstance(error, errors.ApiError) and (error.status, error.kind) == (status, "")
    assert re.search(says, str(error)) and f"kept in {tmp_path}" in str(error)
    assert folder.pending() is not None and folder.pending_file.read_bytes() == BODY


@pytest.mark.parametrize("status", [200, 201, 204])
def test_a_page_in_place_of_a_receipt_costs_no_training(status: int, tmp_path: Path) -> None:
    service = Between()
    service.answer = httpx.Response(status, text="<html>sign in", headers={"Content-Type": "text/html"})
    folder = StateFolder(tmp_path)
    assert isinstance(_deliver(service, folder), errors.UnexpectedAnswer)
    assert folder.pending() is not None


def test_a_problem_document_of_another_program_is_no_verdict(tmp_path: Path) -> None:
    service = Between()
    gateway = {"type": "about:blank", "title": "Too large", "status": 413, "detail": "no"}
    service.answer = httpx.Response(413, json=gateway, headers={"Content-Type": MEDIA_TYPE})
    folder = StateFolder(tmp_path)
    _deliver(service, folder)
    assert folder.pending() is not None


def test_the_service_s_own_refusal_drops_the_update(tmp_path: Path) -> None:
    service = Between()
    service.answer = problem("too-large")
    folder = StateFolder(tmp_path)
    assert isinstance(_deliver(service, folder), errors.TooLarge)
    assert folder.pending() is None


@pytest.mark.parametrize("location", ["uploads/{}", "../v1/uploads/{}", "/v1/uploads/{}", URL + "/v1/uploads/{}"])
def test_an_upload_s_address_may_be_relative(file: Path, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Tus()
    create = service._create

    def elsewhere(request: httpx.Request) -> httpx.Response:
        name = create(request).headers["Location"].rpartition("/")[2]
        return httpx.Response(201, headers={"Location": location.format(name)})

    monkeypatch.setattr(service, "_create", elsewhere)
    with service.client(resumable_bytes=1) as client:
        client.push_update("rnd_1", file)
    assert service.taken == [BODY]
