"""One trace from a device to the published model, over real sockets: the SDK's spans, the API's and the worker's."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import traces
from tests.collector import Collector, Seen, collecting
from tools.deployment import NAMES, Deployment, add_server_data, federation_request, run_federation, running, wait_for


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector, to which this process sends and those that it starts, as the environment says."""
    with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        traces.wanted.cache_clear()
        yield made
        traces.close()
        monkeypatch.undo()
        traces.wanted.cache_clear()


def test_one_trace_goes_from_a_device_to_the_published_model(collector: Collector, tmp_path: Path) -> None:
    made = Deployment(tmp_path / "home", POTSTILL_LOG_FORMAT="json")
    recipe = {"name": "feddf", "options": {"schedule": {"steps": 5}}}
    with running(made):
        add_server_data(made)
        request = federation_request("traced", recipe, rounds={"total": 1, "min_clients": 3, "min_updates": 3})
        federation, _ = run_federation(made, tmp_path / "devices", request)
        traces.close()
        wait_for(
            lambda: any(
                each.name == "publish" and parent(collector, each).name == "job round" for each in collector.spans
            )
        )
        wait_for(lambda: collector.metrics.get("potstill_federations", {}).get((("state", "finished"),)) == 1)
        shown = made.operator.rounds(federation.id).items[0]
        log = [json.loads(line) for line in made.log("worker").splitlines() if line.startswith("{")]

    (job,) = found(collector, "job round")
    assert job.program == "potstill-worker" and not job.failed
    assert job.attributes.items() >= {"potstill.round_id": shown.id, "potstill.kind": "round"}.items()
    sent = parent(collector, job)
    assert (sent.program, sent.name) == ("potstill-api", "PUT /v1/rounds/{round_id}/update")
    assert sent.attributes.items() >= {"potstill.round_id": shown.id, "http.response.status_code": 201}.items()
    upload = parent(collector, sent)
    round_ = parent(collector, upload)
    assert (upload.name, round_.name, round_.parent) == ("upload", "round", "")
    assert {upload.program, round_.program} == {"potstill-device"}
    assert {each.name for each in below(collector, round_)} >= {"fetch", "train", "upload"}
    phases = {each.name for each in below(collector, job)}
    assert phases >= {"average", "label", "distil", "evaluate", "inspect", "publish"}
    assert {each.trace for each in (round_, upload, sent, job, *below(collector, job))} == {round_.trace}

    others = [each for each in found(collector, sent.name) if each.id != sent.id]
    assert len(others) == len(NAMES) - 1 and set(job.links) == {each.id for each in others}
    (begun,) = found(collector, "job initialize")
    assert parent(collector, begun).name == "POST /v1/federations/{federation_id}/start"
    lines = [line for line in log if line.get("job_id") == job.attributes["potstill.job_id"]]
    assert lines and {(line["trace_id"], line["span_id"]) for line in lines} == {(job.trace, job.id)}
    requests = collector.metrics["potstill_http_requests"]
    put = (("method", "PUT"), ("route", "/v1/rounds/{round_id}/update"), ("status", "201"))
    assert requests[put] == len(NAMES) == collector.metrics["potstill_http_request_seconds"][put[:2]]
    assert made.token.encode() not in b"".join(collector.bodies)
    told = " ".join(str(value) for each in collector.spans for value in (each.name, *each.attributes.values()))
    assert not [name for name in (*NAMES, "traced", str(tmp_path)) if name in told], told


def found(collector: Collector, name: str) -> list[Seen]:
    return [each for each in collector.spans if each.name == name]


def parent(collector: Collector, span: Seen) -> Seen:
    (found_,) = (each for each in collector.spans if each.id == span.parent)
    return found_


def below(collector: Collector, span: Seen) -> list[Seen]:
    return [each for each in collector.spans if each.parent == span.id]
