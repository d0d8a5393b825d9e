"""Whose trace work belongs to, with OpenTelemetry and without."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler

from contract import otel, traces

CALLER = f"00-{0xABC:032x}-{0xDEF:016x}-01"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment in which nothing is said of traces yet, and is read anew."""
    traces.wanted.cache_clear()
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    traces.wanted.cache_clear()


def set_up(patch: pytest.MonkeyPatch, sampler: Sampler | None = None) -> InMemorySpanExporter:
    """Have the program trace by itself; return where its spans go."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(sampler) if sampler else TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    patch.setattr(trace, "get_tracer_provider", lambda: provider)
    return kept


@pytest.mark.parametrize(
    ("environment", "signals"),
    [
        ({}, set()),
        (ENDPOINT, {"traces", "metrics"}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, {"traces"}),
        (ENDPOINT | {"OTEL_METRICS_EXPORTER": "none"}, {"traces"}),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "true"}, set()),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, {"traces", "metrics"}),
    ],
)
def test_the_variables_of_opentelemetry_say_what_is_sent(
    asked: pytest.MonkeyPatch, environment: dict[str, str], signals: set[str]
) -> None:
    for name, value in environment.items():
        asked.setenv(name, value)
    assert {each for each in ("traces", "metrics") if traces.wanted(each)} == signals


def test_a_protocol_that_is_not_spoken_is_said(asked: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).items():
        asked.setenv(name, value)
    assert not traces.wanted() and not traces.wanted()
    assert caplog.messages == ["no traces are sent: OTEL_EXPORTER_OTLP_PROTOCOL is grpc; set it to http/protobuf"]


def test_without_the_extra_work_is_done_and_one_line_says_so(
    asked: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked.setenv(*next(iter(ENDPOINT.items())))
    asked.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with caplog.at_level(logging.WARNING), traces.below(CALLER), traces.span("work") as span:
        span.set({"potstill.kind": "round"})
        span.fail("internal")
        assert traces.current() == CALLER
    assert caplog.messages == [
        "no traces are sent to http://127.0.0.1:4318: install the extra `otel`, or unset the endpoint"
    ]


def test_what_a_caller_tells_goes_on_without_a_span() -> None:
    assert (traces.current(), traces.known()) == (None, {})
    with traces.below(CALLER), traces.span("work"):
        assert traces.current() == CALLER
        assert traces.known() == {"trace_id": f"{0xABC:032x}", "parent_span_id": f"{0xDEF:016x}"}
        with traces.below(None):
            assert traces.current() is None
    assert traces.current() is None


@pytest.mark.parametrize(
    "header", ["", "x", CALLER.replace("00-", "ff-", 1), f"00-{0:032x}-{1:016x}-01", f"00-{1:032x}-{0:016x}-01"]
)
def test_a_header_that_says_nothing_is_no_caller(header: str) -> None:
    assert traces.read(header) is None


def test_a_later_version_is_kept_as_the_first() -> None:
    assert traces.read(CALLER.replace("00-", "01-", 1) + "-more") == CALLER
    assert len(CALLER) == 55, "what the column has room for"


def named(kept: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {each.name: each for each in kept.get_finished_spans()}


def test_spans_of_a_program_that_traces_by_itself_are_among_its_own(asked: pytest.MonkeyPatch) -> None:
    kept = set_up(asked)
    with (
        trace.get_tracer_provider().get_tracer("theirs").start_as_current_span("theirs") as theirs,
        traces.span("round", {"potstill.round": 3, "potstill.client": None}),
        traces.span("train"),
    ):
        known = traces.known()
    spans = named(kept)
    round_, train = spans["round"], spans["train"]
    assert round_.parent == theirs.get_span_context() and train.parent == round_.context
    assert dict(round_.attributes or {}) == {"potstill.round": 3}
    assert train.context is not None and known["span_id"] == f"{train.context.span_id:016x}"


def test_a_caller_s_span_is_the_parent_and_others_are_linked(asked: pytest.MonkeyPatch) -> None:
    kept = set_up(asked)
    other = CALLER.replace("def", "fed")
    with traces.below(CALLER), traces.span("job", kind="consumer", links=[other]) as span:
        span.rename("job round")
        assert traces.at_hand() is span
    (job,) = kept.get_finished_spans()
    assert job.parent is not None and (job.parent.trace_id, job.parent.span_id) == (0xABC, 0xDEF)
    assert (job.name, [each.context.span_id for each in job.links]) == ("job round", [0xFED])


def test_a_failure_tells_its_kind_and_nothing_of_its_message(asked: pytest.MonkeyPatch) -> None:
    kept = set_up(asked)
    with pytest.raises(ValueError, match="secret"), traces.span("train"):
        raise ValueError("secret")
    (span,) = kept.get_finished_spans()
    assert dict(span.attributes or {}) == {"error.type": "ValueError"} and not span.status.is_ok
    assert not span.events and "secret" not in span.to_json()


def test_what_a_sampler_leaves_out_says_so_to_what_it_causes(asked: pytest.MonkeyPatch) -> None:
    kept = set_up(asked, ALWAYS_OFF)
    with traces.span("work"):
        flags = int((traces.current() or "1").rpartition("-")[2], 16)
        assert not flags & 1, "it is not sampled"
    assert not kept.get_finished_spans()


def test_a_program_is_called_by_its_surroundings_first(asked: pytest.MonkeyPatch) -> None:
    assert otel.resource().attributes["service.name"] == "potstill-device"
    asked.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs")
    traces.name_program("potstill-api")
    assert otel.resource().attributes["service.name"] == "theirs"
    asked.setenv("OTEL_SERVICE_NAME", "ours")
    assert otel.resource().attributes["service.name"] == "ours"


PROGRAM = """
import sys
import client_sdk.runner, service.app, worker.runner
from contract import traces
service.app.create_app()
with traces.below({caller!r}), traces.span("work") as span:
    span.set({{"a": 1}})
    assert not traces.wanted("metrics") and traces.current() == {caller!r}
heavy = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto", "google", "requests")
print([name for name in sys.modules if name.startswith(heavy)])
"""


def test_nothing_is_loaded_where_nobody_asks(
    asked: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked.setenv("POTSTILL_HOME", str(tmp_path_factory.mktemp("home")))
    code = PROGRAM.format(caller=CALLER)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["[]"]), done.stderr
