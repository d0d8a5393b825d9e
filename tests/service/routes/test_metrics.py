"""Metrics: who may read them, what counts, and that no name of a client becomes a label."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.operations.store import workers
from tests.service.conftest import SettingsMaker

from ..world import World

ROOT = Path(__file__).parents[3]


def scrape(world: World) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return name -> labels -> value."""
    for collector in list(world.services.metrics.registry._collector_to_names):
        if hasattr(collector, "_at"):
            collector._at = float("-inf")  # what was read within the last second is read again
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(world.op("GET", "/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def requests(world: World, status: str) -> float:
    counted = scrape(world)["potstill_http_requests_total"]
    return sum(value for labels, value in counted.items() if dict(labels)["status"].startswith(status))


def test_who_may_read(world: World, make_settings: SettingsMaker, world_of: type[World]) -> None:
    fed = world.create()
    device = world.enrol(fed, "d")
    viewer = world.ok("POST", "/v1/tokens", json={"name": "v", "role": "viewer"})["token"]
    assert world.site.request("GET", "/metrics").status_code == 401
    assert world.site.request("GET", "/metrics", token=device.token).status_code == 403
    answer = world.site.request("GET", "/metrics", token=viewer)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    head = world.site.request("HEAD", "/metrics", token=viewer)
    assert head.status_code == 200


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.1", {}, 403),
        ("test", {}, 401),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.1"}, 401),
        ("127.0.0.1", {"Authorization": "Bearer x"}, 401),
    ],
)
def test_the_same_machine_where_the_settings_say_so(
    make_settings: SettingsMaker, world_of: type[World], address: str, headers: dict[str, str], status: int
) -> None:
    world = world_of(make_settings(metrics_open=True))
    app = world.site.app

    async def from_there(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "client": (address, 1)}, receive, send)

    world.site.app = from_there
    try:
        assert world.site.request("GET", "/metrics", headers=headers).status_code == status
    finally:
        world.close()


def test_a_client_that_leaves_in_the_middle_is_no_server_error(world: World) -> None:
    """C01: one line, no traceback, no 5xx."""
    fed = world.running(["a"])
    body = world.update(fed)
    for _ in range(5):
        world.push(fed, "a", [body[: len(body) // 2]], hang_up=True)
    assert requests(world, "5") == 0
    assert requests(world, "client_gone") == 5
    assert world.round(fed)["answered"] == 0
    assert world.push(fed, "a", body).status_code == 201


def test_faults_and_refusals_are_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = world.running(["a"])
    assert world.push(fed, "a", b"no file").status_code == 422
    assert world.op("GET", "/no/such/path").status_code == 404
    monkeypatch.setattr("service.operations.store.workers.listing", lambda session: 1 / 0)
    assert world.op("GET", "/v1/workers", fail=True).status_code == 500
    found = scrape(world)
    assert requests(world, "5") == 1
    refused = {dict(labels)["kind"]: value for labels, value in found["potstill_problems_total"].items()}
    assert refused["invalid-container"] == refused["not-found"] == 1
    received = {dict(labels)["route"]: value for labels, value in found["potstill_received_bytes_total"].items()}
    assert received["/v1/rounds/{round_id}/update"] == len(b"no file")


def test_the_state_of_the_service(world: World) -> None:
    before = scrape(world)
    assert before["potstill_jobs"][(("state", "failed"),)] == 0
    assert "potstill_worker_heartbeat_age_seconds" not in before
    fed = world.running(["a", "b"])
    with world.store.write() as session:
        workers.heartbeat(session, "wrk_1", "host", 1, "cpu", None)
    world.push(fed, "a")
    world.push(fed, "b")
    found = scrape(world)
    assert found["potstill_rounds"][(("state", "aggregating"),)] == 1
    assert found["potstill_jobs"][(("state", "queued"),)] == 1
    assert found["potstill_oldest_queued_job_seconds"][()] > 0
    assert found["potstill_worker_heartbeat_age_seconds"][()] < 60
    assert found["potstill_workers"][()] == 1
    assert found["potstill_clients"][()] == 2
    assert found["potstill_disk_free_bytes"][()] > 0
    assert found["potstill_database_connections_most"][()] >= 8
    assert found["potstill_last_event_sequence"][()] > 5
    assert next(iter(found["potstill_build_info"].values())) == 1
    assert found["process_resident_memory_bytes"][()] > 1e6


def test_labels_are_few_whatever_people_call_things(world: World) -> None:
    """Ids, names and made-up paths and methods make no new series."""

    def series() -> int:
        return sum(len(values) for values in scrape(world).values())

    def use(number: int) -> None:
        fed = world.running([f"client-{number}"])
        world.push(fed, f"client-{number}")
        world.finish(world.claim(), {"main": world.forge.arrays(5)})
        for path in (f"/v1/models/mdl_{number}", f"/{number}/x", f"/static/{number}.js", f"/v1/jobs/{number}"):
            world.op("GET", path)
        world.op(f"METHOD{number}", "/v1/jobs")

    for number in range(2):
        use(number)
        series()
    before = series()
    for number in range(2, 5):
        use(number)
    assert series() == before
    text = world.op("GET", "/metrics").text
    assert "client-" not in text and "mdl_" not in text and "METHOD" not in text


def test_the_alerts_name_metrics_that_exist(world: World) -> None:
    with world.store.write() as session:
        workers.heartbeat(session, "wrk_1", "host", 1, "cpu", None)
    world.op("GET", "/nothing")
    known = set(scrape(world))
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        named = set(rule["expr"].replace("(", " ").replace("{", " ").replace(")", " ").split())
        assert {word for word in named if word.startswith("potstill_")} <= known, rule["alert"]
        assert rule["annotations"]["action"]
    scrapes = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert scrapes[0]["metrics_path"] == "/metrics"
