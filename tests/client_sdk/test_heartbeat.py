"""Heartbeats of a device that trains: from a thread beside it, sparing, and never in the way."""

import threading
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk import Client
from client_sdk.data import load
from client_sdk.errors import RoundClosed
from client_sdk.heartbeat import Heartbeats
from contract.wire.devices import Heartbeat, TrainAssignment

NOW = "2026-01-01T00:00:00.000Z"
DIGEST = "sha256-" + "0" * 64
DATA = load((np.zeros((20, 2), np.float32), np.zeros(20, np.int64)))
RECEIPT = {
    "round_id": "rnd_1",
    "round": 1,
    "state": "collecting",
    "answered": False,
    "deadline_at": NOW,
    "closes_at": NOW,
    "heartbeat_seconds": 0,
}


def assignment(heartbeat_seconds: int | None, **local: Any) -> TrainAssignment:
    return TrainAssignment.model_validate(
        {
            "federation_id": "fed_1",
            "federation_name": "toy",
            "state": "running",
            "task": {"num_classes": 2, "input": {"shape": [2], "dtype": "float32"}},
            "prototype": {"architecture": "mlp"},
            "seed": 1,
            "client_name": "a",
            "round": {
                "id": "rnd_1",
                "index": 1,
                "total": 2,
                "deadline_at": NOW,
                "heartbeat_seconds": heartbeat_seconds,
            },
            "model": {"id": "mdl_1", "digest": DIGEST, "size": 1, "url": "/v1/models/mdl_1/weights"},
            "local": {"epochs": 3, "batch_size": 8, **local},
            "upload_url": "/v1/rounds/rnd_1/update",
        }
    )


def problem(kind: str, status: int) -> httpx.Response:
    body = {"type": f"urn:potstill:problem:{kind}", "title": "T", "status": status, "detail": "d"}
    return httpx.Response(status, json=body)


class Ear:
    """A service that hears heartbeats and answers what it is told."""

    def __init__(self, *answers: httpx.Response):
        self.answers, self.beats, self.heard = list(answers), list[dict[str, Any]](), threading.Condition()
        self.client = Client("http://t", "pst_dev_1", transport=httpx.MockTransport(self.hear))

    def hear(self, request: httpx.Request) -> httpx.Response:
        with self.heard:
            self.beats.append(Heartbeat.model_validate_json(request.content).model_dump(exclude_none=True))
            self.heard.notify_all()
            return self.answers.pop(0) if self.answers else httpx.Response(200, json=RECEIPT)

    def wait_for(self, count: int) -> None:
        with self.heard:
            assert self.heard.wait_for(lambda: len(self.beats) >= count, 30), self.beats


def test_it_beats_at_once_and_again_and_tells_how_far_training_is() -> None:
    ear, told = Ear(), []
    heartbeats = Heartbeats(ear.client, assignment(1), DATA)
    with heartbeats:
        ear.wait_for(1)
        heartbeats.between(lambda epoch, loss: told.append((epoch, loss)))(2, 0.5)
        heartbeats.step(5)
        ear.wait_for(3)
    count = len(ear.beats)
    assert ear.beats[0] == {"epoch": 0, "step": 0, "of": 9}  # twenty samples by eight, three epochs
    assert ear.beats[2] == {"epoch": 2, "step": 5, "of": 9}
    assert told == [(2, 0.5)]
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]
    assert len(ear.beats) == count


def test_a_service_that_asks_for_none_gets_none() -> None:
    ear = Ear()
    with Heartbeats(ear.client, assignment(None), DATA):
        pass
    assert ear.beats == []


@pytest.mark.parametrize(
    "answer",
    [
        problem("round-closed", 409),
        problem("unauthorized", 401),
        problem("not-found", 404),
        problem("method-not-allowed", 405),
    ],
)
def test_it_ends_when_nobody_wants_to_hear(answer: httpx.Response) -> None:
    ear = Ear(answer)
    with Heartbeats(ear.client, assignment(1), DATA) as heartbeats:
        heartbeats._thread.join(30)
        assert not heartbeats._thread.is_alive()
    assert len(ear.beats) == 1


def test_a_fault_is_not_tried_again_but_the_next_one_comes() -> None:
    ear = Ear(problem("unavailable", 503), httpx.Response(500, text="?"))
    with Heartbeats(ear.client, assignment(1), DATA):
        ear.wait_for(3)
    assert len(ear.beats) >= 3


def test_the_client_raises_what_the_service_says() -> None:
    with pytest.raises(RoundClosed):
        Ear(problem("round-closed", 409)).client.heartbeat("rnd_1", Heartbeat())


def test_a_device_beats_while_it_trains(service: Any, take_part: Any) -> None:
    service.heartbeat_seconds = 30
    random = np.random.default_rng(1)
    data = (random.normal(size=(16, 2)).astype(np.float32), np.arange(16, dtype=np.int64) % 2)
    report = take_part(data)
    assert report.rounds_trained == 2
    assert len(service.beats) == 2  # one a round: training takes less than thirty seconds
    assert {beat["of"] for beat in service.beats} == {4}


def test_a_round_may_begin_again_more_than_once(service: Any, take_part: Any) -> None:
    """The operator changes the models twice while this device trains: two refusals, and it goes on."""
    fresh = iter(["mdl_a", "mdl_b"])

    def restarted(request: httpx.Request) -> httpx.Response:
        name = next(fresh)
        service.add_model(name, "mlp", service.options)
        service.current = name
        return problem("stale-base-model", 409)

    for _ in range(2):
        service.fault("PUT", "/v1/rounds/rnd_1/update", restarted)
    data = (np.zeros((16, 2), np.float32), np.arange(16, dtype=np.int64) % 2)
    report = take_part(data)
    assert [round_.uploaded for round_ in report.rounds] == [False, False, True, True]


def test_a_beat_counts_passes_as_long_as_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.5, 13.0])
    monkeypatch.setattr("client_sdk.heartbeat.time.monotonic", lambda: next(clock))
    heartbeats = Heartbeats(Ear().client, assignment(1), DATA)
    heartbeats.expect(1.0)
    assert heartbeats.beat() == Heartbeat(epoch=0, step=0, of=9), (
        "the model is on its way: nothing moves, nothing hangs"
    )
    heartbeats.passing()
    assert heartbeats.beat() == Heartbeat(epoch=0, step=0, of=9, passes=1, pass_seconds=1.0)
    heartbeats.passing()
    heartbeats.passing()
    assert heartbeats.beat() == Heartbeat(epoch=0, step=0, of=9, passes=3, pass_seconds=2.5)
    heartbeats.rest()
    assert heartbeats.beat() == Heartbeat(epoch=0, step=0, of=9)


def test_a_device_beats_while_its_update_is_on_its_way(service: Any, take_part: Any) -> None:
    """A link on which an update takes longer than the silence that makes a device lost."""
    service.heartbeat_seconds = 0
    heard = threading.Event()

    def slow(request: httpx.Request) -> httpx.Response:
        before = len(service.beats)
        deadline = 60.0
        while len(service.beats) < before + 2 and deadline > 0:
            heard.wait(0.05)
            deadline -= 0.05
        assert "passes" not in service.beats[-1]
        return httpx.Response(503)

    service.fault("PUT", "/v1/rounds/rnd_1/update", slow)
    data = (np.zeros((16, 2), np.float32), np.arange(16, dtype=np.int64) % 2)
    assert take_part(data, rounds=1).rounds_trained == 1
    asked = service.sent("GET", "/v1/assignment")[0]
    assert asked.url.params["heartbeats"] == "true"
