"""The event feed over HTTP: pages, streams, replay, two replicas, a clean end."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from client_sdk.events import Message, messages
from service.api.routes import events as routes
from service.config import Settings
from service.operations.progress import jobs
from tests.service.conftest import SettingsMaker

from ..world import Fed, World


class Stream:
    """An open stream and what it has said so far."""

    def __init__(self, world: World, path: str, token: str | None = None, **headers: str):
        self._text = ""
        self.future: Future[httpx.Response] = world.site.begin(
            "GET", path, token=token or world.operator, headers=headers, heard=self._hear
        )

    def _hear(self, piece: bytes) -> None:
        self._text += piece.decode()

    @property
    def said(self) -> list[Message]:
        return list(messages(self._text.rpartition("\n\n")[0].splitlines() + [""]))

    @property
    def is_open(self) -> bool:
        return self._text.startswith("retry: ")

    @property
    def kinds(self) -> list[str]:
        return [message.event for message in self.said if message.data]

    def until(self, what: Callable[["Stream"], bool]) -> None:
        end = time.monotonic() + 10
        while not what(self):
            assert time.monotonic() < end, self._text
            time.sleep(0.005)


@pytest.fixture
def twin(world: World, world_of: type[World]) -> Iterator[World]:
    """A second replica on the same database."""
    made = world_of(world.settings)
    made.operator = world.operator
    try:
        for each in (world, made):  # FastAPI builds a route at its first call, and not in two threads at once
            each.ok("GET", "/v1/events?format=json")
        yield made
    finally:
        made.close()


def url(fed: Fed) -> str:
    return f"/v1/federations/{fed.id}/events"


def test_pages(world: World) -> None:
    fed, other = world.create(), world.create()
    for name in "abc":
        world.enrol(fed, name)
    world.enrol(other, "z")
    page = world.ok("GET", url(fed) + "?format=json&limit=2")
    assert [item["kind"] for item in page["items"]] == ["federation.created", "client.enrolled"]
    rest = world.ok("GET", url(fed) + f"?format=json&after={page['next']}")
    assert [item["data"]["client"] for item in rest["items"]] == ["b", "c"]
    assert world.ok("GET", url(fed) + f"?format=json&after={rest['next']}")["items"] == []
    newest = world.ok("GET", url(fed) + "?format=json&newest=1")["items"]
    assert [item["data"]["client"] for item in newest] == ["c"]
    assert world.ok("GET", url(fed) + "?format=json&newest=0")["items"] == []
    everything = world.ok("GET", "/v1/events?format=json")["items"]
    assert {item["federation_id"] for item in everything} == {fed.id, other.id}
    assert world.op("GET", url(fed), headers={"Accept": "application/json"}).json()["missed"] is False
    assert world.op("GET", "/v1/federations/fed_x/events?format=json").status_code == 404
    assert world.op("GET", url(fed) + "?format=json&after=-1").status_code == 422


def test_a_stream_replays_goes_on_and_ends_with_the_service(world: World) -> None:
    fed, other = world.create(), world.create()
    stream = Stream(world, url(fed))
    stream.until(lambda s: s.kinds == ["federation.created"])
    world.enrol(other, "z")
    world.enrol(fed, "a")
    stream.until(lambda s: s.kinds == ["federation.created", "client.enrolled"])
    again = Stream(world, url(fed), **{"Last-Event-ID": stream.said[1].id or ""})
    again.until(lambda s: s.kinds == ["client.enrolled"])
    event = json.loads(again.said[-1].data)
    assert (event["data"]["client"], str(event["sequence"])) == ("a", again.said[-1].id)
    world.services.feed.close()
    for response in (stream.future.result(5), again.future.result(5)):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        assert response.text.endswith(": bye\n\n")
    assert world.services.feed.viewers == 0


def test_a_stream_shows_what_another_replica_did(world: World, twin: World) -> None:
    fed = world.create()
    mine, theirs = Stream(world, "/v1/events?newest=0"), Stream(twin, "/v1/events?newest=0")
    mine.until(lambda s: s.is_open)
    theirs.until(lambda s: s.is_open)
    world.enrol(fed, "a")
    twin.enrol(fed, "b")
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    expected = ["client.enrolled", "client.enrolled", "federation.started", "job.queued"]
    for stream in (mine, theirs):
        stream.until(lambda s: len(s.kinds) == 4)
        assert stream.kinds == expected
    assert [m.id for m in mine.said if m.data] == [m.id for m in theirs.said if m.data]


def test_a_stream_from_far_behind_catches_up_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.routes.events._PAGE", 3)
    fed = world.create()
    for number in range(10):
        world.enrol(fed, f"c{number}")
    stream = Stream(world, url(fed))
    stream.until(lambda s: len(s.kinds) == 11)
    numbers = [int(m.id or 0) for m in stream.said if m.data]
    assert numbers == sorted(set(numbers))


def test_progress_passes_by_without_a_number(world: World) -> None:
    fed = world.running(["a"])
    world.push(fed, "a")
    job = world.claim()
    stream = Stream(world, url(fed) + "?newest=0")
    progress = {"phase": "teachers", "step": 5, "of": 20, "phase_seconds": 10.0}
    with world.store.write() as session:
        jobs.renew(session, job.id, job.fence, 30, progress)
    stream.until(lambda s: any("teachers" in m.data for m in s.said if m.event == "progress"))
    told = [json.loads(m.data) for m in stream.said if m.event == "progress"][-1]
    assert (told[0]["id"], told[0]["progress"]["step"]) == (job.id, 5)
    world.finish(job, {"main": world.forge.arrays(5)})
    stream.until(lambda s: [m.data for m in s.said if m.event == "progress"][-1] == "[]")
    assert world.ok("GET", url(fed) + "?format=json&limit=500")["items"][-1]["kind"] == "round.opened"


def test_what_retention_dropped_is_said(world: World) -> None:
    fed = world.create()
    world.enrol(fed, "a")
    world.enrol(fed, "b")
    with world.store.write() as session:
        from service.operations.ledger import events

        events.forget(session, 1, 9.0)
    stream = Stream(world, url(fed) + "?after=1")
    stream.until(lambda s: s.kinds == ["missed", "client.enrolled"])


def test_heartbeats_and_a_bounded_life(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.routes.events.HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr("service.api.routes.events.STREAM_SECONDS", 0.5)
    response = Stream(world, "/v1/events").future.result(10)
    assert response.text.startswith("retry: 2000\n\n: still here")
    assert response.text.endswith(": bye\n\n")


@pytest.fixture
def narrow(settings: Settings, world_of: type[World], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Three streams, two of them for a token."""
    monkeypatch.setattr("service.app.EVENT_STREAMS", 3)
    monkeypatch.setattr("service.app.EVENT_STREAMS_PER_TOKEN", 2)
    made = world_of(settings)
    yield made
    made.close()


def _opened(world: World, token: str | None = None) -> Stream:
    stream = Stream(world, "/v1/events", token)
    stream.until(lambda s: s.is_open)
    return stream


def test_a_token_that_takes_many_streams_leaves_some_for_others(narrow: World) -> None:
    viewer, other = (
        narrow.ok("POST", "/v1/tokens", json={"name": name, "role": "viewer"})["token"] for name in ("a", "b")
    )
    greedy = [narrow.site.begin("GET", "/v1/events", token=viewer) for _ in range(10)]  # all at the same moment
    _opened(narrow)
    refused = narrow.site.request("GET", "/v1/events", token=viewer)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert refused.json()["detail"].startswith("this token has 2 event streams open, and 2 is its limit")
    full = narrow.site.request("GET", "/v1/events", token=other)
    assert full.json()["detail"].startswith("the service holds 3 event streams open, and 3 is its limit")
    assert "format=json" in full.json()["detail"]
    assert narrow.site.request("GET", "/v1/events?format=json", token=other).status_code == 200
    narrow.services.feed.close()
    assert sorted(future.result(10).status_code for future in greedy) == [200] * 2 + [429] * 8


@pytest.mark.timeout(120)
def test_streams_that_are_far_behind_leave_threads_to_others(
    make_settings: SettingsMaker, world_of: type[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.app.REQUESTS_AT_ONCE", 2)
    world, gate, at_work = world_of(make_settings(threads=6)), threading.Event(), []
    page = routes._page

    def slow(*args: Any) -> Any:
        at_work.append(1)
        gate.wait(30)
        return page(*args)

    monkeypatch.setattr(routes, "_page", slow)
    try:
        streams = [Stream(world, "/v1/events?after=0") for _ in range(8)]
        for stream in streams:
            stream.until(lambda s: s.is_open)
        assert world.op("GET", "/v1/token").status_code == 200
        assert len(at_work) == 2
        gate.set()
        world.create()
        for stream in streams:
            stream.until(lambda s: "federation.created" in s.kinds)
    finally:
        gate.set()
        world.close()


@pytest.mark.parametrize("ended", ["revoked", "rotated", "expired"])
def test_a_stream_ends_with_its_token(world: World, monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
    monkeypatch.setattr("service.api.routes.events.HEARTBEAT_SECONDS", 0.05)
    made = world.ok("POST", "/v1/tokens", json={"name": "a", "role": "viewer", "valid_seconds": 60})
    stream, stays = _opened(world, made["token"]), _opened(world)
    if ended == "revoked":
        assert world.op("DELETE", f"/v1/tokens/{made['id']}").status_code == 204
    elif ended == "rotated":
        fresh = world.site.request("POST", "/v1/token/rotate", token=made["token"]).json()["token"]
        assert not stream.future.done()  # the one before works until the new one is first used
        assert world.site.request("GET", "/v1/token", token=fresh).status_code == 200
    else:
        monkeypatch.setattr("service.operations.access.tokens.now", lambda: datetime.now(UTC) + timedelta(seconds=61))
    assert stream.future.result(10).text.endswith(": bye\n\n")
    assert not stays.future.done()
