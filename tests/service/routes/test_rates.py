"""Who asks too fast, sends too much, guesses tokens or keeps polls open is told to wait; nobody else notices."""

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from service.api import guard
from service.infra.rates import Memory, Rates, RecentTokens, Slots, network_of
from service.infra.refusals import Refusals
from service.operations.view import federations
from tests.service.conftest import SettingsMaker
from tests.service.world import World

Strict = Callable[..., World]
"""(constants by their dotted names, settings) -> a service of these."""


@pytest.fixture
def strict(make_settings: SettingsMaker, world_of: type[World], monkeypatch: pytest.MonkeyPatch) -> Iterator[Strict]:
    """Make services with lower limits: constants, by their dotted names, and settings."""
    made: list[World] = []

    def make(constants: dict[str, float] | None = None, **settings: Any) -> World:
        for name, value in (constants or {}).items():
            monkeypatch.setattr(name, value)
        made.append(world_of(make_settings(**settings)))
        return made[-1]

    yield make
    for world in made:
        world.close()


def get(world: World, token: str | None, path: str = "/v1/token") -> Any:
    return world.site.request("GET", path, token=token)


def test_a_token_that_asks_too_fast_waits_and_others_do_not(strict: Strict) -> None:
    world = strict({"service.infra.rates.RATE_BURST": 5, "service.infra.rates.RATE_PER_SECOND": 0.01})
    fed = world.create()
    a, b = world.enrol(fed, "a"), world.enrol(fed, "b")
    answers = [get(world, a.token) for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2
    first, last = answers[0], answers[-1]
    assert first.headers["ratelimit-policy"] == '"requests";q=5;w=500'
    assert first.headers["ratelimit"].startswith('"requests";r=4;t=')
    assert last.headers["ratelimit"].startswith('"requests";r=0;t=')
    assert 1 <= int(last.headers["retry-after"]) <= 1000
    problem = last.json()
    assert (problem["type"], problem["limit"]) == ("urn:potstill:problem:too-many-requests", 5)
    assert get(world, b.token).status_code == 200
    fresh = world.op("POST", f"/v1/federations/{fed.id}/clients/{a.id}/token").json()["token"]
    assert get(world, fresh).status_code == 429  # another token of the same device does not begin anew


def test_the_days_bytes_are_counted_as_they_come(strict: Strict) -> None:
    world = strict(upload_bytes_per_day=6000, max_upload_bytes=5000)
    body = world.forge.pack(world.forge.arrays())
    assert 600 < len(body) < 3000
    sent = 0
    while sent + len(body) <= 6000 - 700:
        answer = world.op("POST", f"/v1/datasets?name=d{sent}", body=[body[:500], body[500:]])  # no Content-Length
        assert answer.status_code == 422  # refused, and its bytes came all the same
        sent += len(body)
        time.sleep(0.05)
    refused = world.op("POST", "/v1/datasets?name=x", body=b"x" * 4000)
    assert (refused.status_code, refused.json()["limit"]) == (429, 6000)
    assert int(refused.headers["retry-after"]) > 60
    assert world.op("GET", "/v1/federations").status_code == 200


def test_a_body_without_a_length_does_not_pass_the_days_bytes_by(
    strict: Strict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.middleware.COUNTED_EVERY", 1000)
    world = strict(upload_bytes_per_day=6000, max_upload_bytes=50_000)
    header = world.forge.raw({"inputs": {"dtype": "F32", "shape": [5000, 2], "data_offsets": [0, 40_000]}})

    def send(name: str, pieces: int) -> Any:
        body, headers = [header, *[bytes(1000)] * pieces], {"Transfer-Encoding": "chunked"}
        return world.op("POST", f"/v1/datasets?name={name}", body=body, headers=headers)

    cut = send("a", 40)  # no Content-Length says that this will be too much
    assert (cut.status_code, cut.json()["limit"]) == (429, 6000)
    refused = send("b", 0)
    assert (refused.status_code, "0 are left" in refused.json()["detail"]) == (429, True)
    assert world.op("GET", "/v1/federations").status_code == 200


def test_a_small_body_that_trickles_is_ended(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read before its token is looked at: strangers could hold every connection with a byte now and then."""
    monkeypatch.setattr("service.api.middleware.JSON_SECONDS", 0.5)
    heard: list[Message] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": not heard}

    async def send(message: Message) -> None:
        heard.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/federations", "query_string": b"", "headers": []}
    began = time.monotonic()
    shared.site.call(shared.app(scope | {"asgi": {"version": "3.0"}, "http_version": "1.1"}, receive, send))
    assert time.monotonic() - began < 10
    assert heard[0]["status"] == 400
    assert b"did not come within 0.5 seconds" in heard[1]["body"]


def test_an_address_that_guesses_waits_before_its_tokens_are_looked_up(strict: Strict) -> None:
    world = strict({"service.infra.rates.AUTH_FAILURES_PER_MINUTE": 5})
    device = world.enrol(world.create(), "a")
    assert get(world, device.token).status_code == 200
    guesses = [get(world, f"pst_dev_{'A' * 42}{i}") for i in range(8)]
    assert [answer.status_code for answer in guesses] == [401] * 5 + [429] * 3
    assert int(guesses[-1].headers["retry-after"]) == 60
    assert get(world, device.token).status_code == 200  # it was good from there before
    other = world.ok("POST", "/v1/tokens", json={"name": "never seen here"})["token"]
    assert get(world, other).status_code == 429  # or the answer would tell which guess was right
    assert get(world, None).status_code == 401  # no token is no guess
    assert get(world, None, "/healthz").status_code == 200


def test_refusals_are_in_the_audit_log_and_cannot_make_it_grow(strict: Strict) -> None:
    from service.app import write_refusals

    world = strict({"service.infra.rates.AUTH_FAILURES_PER_MINUTE": 5})
    device = world.enrol(world.create(), "a")
    assert get(world, device.token).status_code == 200
    for i in range(50):
        get(world, f"pst_op_{'A' * 42}{i % 10}")
    assert world.site.request("GET", "/v1/federations", token=device.token).status_code == 403
    write_refusals(world.services)
    write_refusals(world.services)
    rows = world.ok("GET", "/v1/audit?action=access.refused&outcome=refused")["items"]
    found = {(row["target"], row["detail"]["reason"]): row["detail"]["count"] for row in rows}
    assert found == {("unknown", "unknown"): 5, ("unknown", "throttled"): 45, (device.id, "role"): 1}
    assert {row["address"] for row in rows} == {"test"}


def test_any_number_of_addresses_comes_to_21_rows() -> None:
    refusals = Refusals()
    for i in range(5000):
        refusals.note(f"10.0.{i // 256}.{i % 256}", "unknown")
    for _ in range(10):
        refusals.note("192.0.2.1", "unknown")
    found = refusals.drain()
    assert len(found) == 21
    assert sum(item.count for item in found) == 5010
    assert refusals.drain() == []


def test_long_polls_are_counted(strict: Strict) -> None:
    world = strict({"service.app.LONG_POLLS_PER_TOKEN": 2})
    fed = world.create()
    device = world.enrol(fed, "a")
    other = world.enrol(fed, "b")
    url = "/v1/assignment?wait=20"
    held = [world.site.begin("GET", url, token=device.token) for _ in range(2)]
    deadline = time.monotonic() + 10
    while world.services.changes.waiting < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    refused = world.site.request("GET", url, token=device.token)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert world.assignment(other)["action"] == "wait"
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")  # wakes them
    assert [future.result(20).json()["action"] for future in held] == ["done"] * 2
    assert world.site.request("GET", url, token=device.token).status_code == 200


def test_slots_of_all_together() -> None:
    polls = Slots("polls", each=2, together=3)
    assert [polls.enter(caller) is None for caller in "aabbc"] == [True, True, True, False, False]
    polls.leave("a")
    assert polls.enter("c") is None
    assert polls.enter("d") == "the service holds 3 polls open, and 3 is its limit"
    for caller in "ac":
        polls.leave(caller)
    assert polls.enter("b") is None
    assert polls.enter("b") == "this token has 2 polls open, and 2 is its limit"
    for caller in "bb":
        polls.leave(caller)
    assert [polls.enter(caller) for caller in "abc"] == [None] * 3


def test_a_crowd_of_one_tokens_requests_keeps_nobody_out(strict: Strict, monkeypatch: pytest.MonkeyPatch) -> None:
    world = strict({"service.app.REQUESTS_AT_ONCE": 4}, threads=8)
    device = world.enrol(world.create(), "a")
    viewer = world.ok("POST", "/v1/tokens", json={"name": "v", "role": "viewer"})["token"]
    assert get(world, viewer).status_code == 200
    assert get(world, device.token).status_code == 200
    gate, listing, at_work = threading.Event(), federations.listing, []

    def slow(*args: Any) -> Any:
        at_work.append(1)
        gate.wait(30)
        return listing(*args)

    monkeypatch.setattr(federations, "listing", slow)
    crowd = [world.site.begin("GET", "/v1/federations", token=viewer) for _ in range(40)]
    deadline = time.monotonic() + 10
    while len(at_work) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        assert get(world, world.operator).status_code == 200
        assert world.assignment(device)["action"] == "wait"
        assert len(at_work) == 4
    finally:
        gate.set()
    assert {request.result(30).status_code for request in crowd} == {200}


def test_polls_and_streams_take_no_slot_while_they_wait(strict: Strict) -> None:
    world = strict({"service.app.REQUESTS_AT_ONCE": 1})
    fed = world.create()
    device = world.enrol(fed, "a")
    assert get(world, device.token).status_code == 200
    polls = [world.site.begin("GET", "/v1/assignment?wait=20", token=device.token) for _ in range(3)]
    streams = [world.site.begin("GET", "/v1/events", token=world.operator) for _ in range(3)]
    deadline = time.monotonic() + 10
    while (world.services.changes.waiting, world.services.feed.viewers) != (3, 3) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert get(world, device.token).status_code == 200
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert [poll.result(20).json()["action"] for poll in polls] == ["done"] * 3
    world.services.feed.close()
    assert [stream.result(20).status_code for stream in streams] == [200] * 3


def test_a_body_that_does_not_come_holds_no_slot(strict: Strict) -> None:
    """Strangers behind an address could keep its devices waiting."""
    world = strict({"service.app.REQUESTS_AT_ONCE": 1})
    fed = world.create()
    slow = [world.site.begin("POST", "/v1/federations", body=[b"{"], stall=True) for _ in range(3)]
    assert world.enrol(fed, "a").name == "a"
    assert not any(request.done() for request in slow)


def test_a_line_that_is_too_long_is_sent_back(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(caller: str) -> bool:
        return False

    monkeypatch.setattr(shared.services.concurrency, "acquire", full)
    answer = get(shared, shared.operator)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert "wait already" in answer.json()["detail"]


def test_concurrency_is_a_tokens_where_it_is_known_and_else_an_addresss(world: World) -> None:
    assert get(world, world.operator).status_code == 200

    def line(token: str, sends: bool = False) -> Any:
        return guard.limit_of(world.services, "test", token, sends=sends)

    known, unknown = line(world.operator), line("pst_op_made_up")
    assert known[0] is unknown[0] is world.services.concurrency
    assert unknown[1] == "test" != known[1]
    assert line("pst_dev_slow", sends=True)[0] is world.services.upload_concurrency
    assert line("pst_dev_slow", sends=True)[1] != line("pst_dev_other", sends=True)[1]
    assert guard.limit_of(world.services, "2001:db8::1", "", sends=True) == (
        world.services.concurrency,
        "2001:db8::/64",
    )


def test_failures_are_counted_by_network() -> None:
    assert network_of("203.0.113.5") == "203.0.113.5"
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert network_of("test") == "test"


def test_a_token_is_known_for_a_while_and_where_it_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    recent = RecentTokens(seconds=600)
    recent.add("a", "hash")
    assert recent.has("a", "hash")
    assert not recent.has("b", "hash")
    later = time.monotonic() + 601
    monkeypatch.setattr("service.infra.clock.steady", lambda: later)
    assert not recent.has("a", "hash")


def test_a_redis_that_is_away_stops_nobody_and_lets_nobody_in(
    make_settings: SettingsMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr("service.infra.rates.RATE_BURST", 2)
    monkeypatch.setattr("service.infra.rates.RATE_PER_SECOND", 0.01)
    settings = make_settings(broker_url="redis://127.0.0.1:1/0")
    rates = Rates(settings, lambda: told.append(1))
    assert [rates.take(rates.requests, "a").allowed for _ in range(3)] == [True, True, False]  # alone, but counted
    assert told == [1]


@pytest.mark.parametrize("depth", [64, 65, 5000])
def test_json_nests_64_levels_deep(shared: World, depth: int) -> None:
    body = b'{"name": "[[[", "options": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    answer = shared.op("POST", "/v1/federations", body=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == (422 if depth <= 64 else 400), answer.text
    assert ("nested" in answer.text) == (depth > 64)


def test_brackets_in_texts_are_no_nesting(shared: World) -> None:
    body = b'{"name": "' + b"[{" * 100 + b'\\"[[["}'
    answer = shared.op("POST", "/v1/federations", body=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "nested" in answer.text) == (422, False)


def test_idempotency_keys_do_not_grow_without_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.operations.ledger.idempotency.MOST", 2)
    statuses = [
        world.op("POST", "/v1/tokens", json={"name": f"t{i}"}, headers={"Idempotency-Key": f"k{i}"}).status_code
        for i in (0, 1, 2, 0)
    ]
    assert statuses == [201, 201, 429, 201]  # the last one is answered as it was the first time


def test_counts_in_memory_start_no_threads_and_expired_ones_go(
    make_settings: SettingsMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, memory = Rates(make_settings(broker_url=None)), Memory()
    rates.take(rates.requests, "a")  # the library's first look is over by the next count
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    assert all(rates.take(rates.requests, f"caller {number}").allowed for number in range(50))
    rates.spend(rates.bytes, "a", 1000)
    assert rates.left(rates.bytes, "a")[0] == rates.bytes.amount - 1000
    assert started == []
    assert [memory.incr("old", 0), memory.incr("new", 60), memory.incr("new", 60, amount=2)] == [1, 1, 3]
    assert memory.decr("new") == 2
    monkeypatch.setattr("service.infra.rates._LOOK_SECONDS", 0.0)
    memory.incr("new", 60)
    assert (dict(memory.storage), set(memory.expirations)) == ({"new": 3}, {"new"})


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="NO REDIS: apt-get install redis-server")
def test_replicas_share_their_counts_in_redis_and_go_on_alone_without_it(
    make_settings: SettingsMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.infra.rates.RATE_BURST", 4)
    monkeypatch.setattr("service.infra.rates.RATE_PER_SECOND", 0.01)
    place = tmp_path / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(place), "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    told: list[int] = []
    try:
        deadline = time.monotonic() + 20
        while not place.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        settings = make_settings(broker_url=f"redis+unix://{place}")
        one, two = (Rates(settings, lambda: told.append(1)) for _ in range(2))
        allowed = [rates.take(rates.requests, "a").allowed for rates in (one, two, one, two, one, two)]
        assert allowed == [True] * 4 + [False] * 2
        one.spend(one.bytes, "a", 1000)
        assert two.left(two.bytes, "a")[0] == two.bytes.amount - 1000
        assert told == []
    finally:
        server.kill()
        server.wait()
    assert one.take(one.requests, "a").allowed  # alone now, and counting anew
    assert told == [1]
