"""Spans by OpenTelemetry, sent by OTLP over HTTP. Loaded only where they are wanted, see `contract.traces`.

By hand and not by its packages for FastAPI, httpx and SQLAlchemy, nor by FastAPI itself: these tell addresses, queries,
statements and what exceptions say, make a span for each piece of an upload's body, and are betas.
"""

import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from contract import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

_KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "consumer": SpanKind.CONSUMER}
Value = str | int | float | bool
_LOCK = threading.Lock()
_OWN: "list[TracerProvider]" = []
_PATIENCE = 3.0
"""Seconds that a batch is tried to be sent where OTEL_EXPORTER_OTLP_TIMEOUT says nothing: a program that ends waits."""


class Made:
    """A span that is recorded, or that a sampler left out.

    Attributes:
        traceparent: of what it causes.
    """

    def __init__(self, span: trace.Span):
        self._span, found = span, span.get_span_context()
        self.traceparent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Note attributes."""
        for name, value in attributes.items():
            if value is not None:
                self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Give it another name."""
        self._span.update_name(name)

    def fail(self, why: str) -> None:
        """Say that it failed, and of what."""
        self._span.set_attribute("error.type", why)
        self._span.set_status(Status(StatusCode.ERROR))


@contextmanager
def span(
    name: str, attributes: Mapping[str, Value | None], kind: str, caller: str | None, links: Sequence[str]
) -> Iterator[Made]:
    """Do work in a span, below `caller` or else the span at hand; see `contract.traces.span`."""
    context = None if caller is None else trace.set_span_in_context(trace.NonRecordingSpan(_context_of(caller)))
    linked = [Link(_context_of(each)) for each in links]
    with _tracer().start_as_current_span(
        name, context, _KINDS[kind], links=linked, record_exception=False, set_status_on_exception=False
    ) as begun:
        made = Made(begun)
        made.set(attributes)
        try:
            yield made
        except BaseException as error:
            made.fail(type(error).__name__)
            raise


def _context_of(traceparent: str) -> SpanContext:
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def is_set_up() -> bool:
    """Whether the program that we are a part of has set up tracing by itself; its spans and ours go one way."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _tracer() -> trace.Tracer:
    provider = trace.get_tracer_provider() if is_set_up() else _own()
    return provider.get_tracer("potstill", __version__)


def _own() -> "TracerProvider":
    """Return the provider of a program that has set up none; it is ours alone, and sends what is left at exit."""
    with _LOCK:
        if not _OWN:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            made = TracerProvider(resource=resource())
            made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=patience("TRACES"))))
            _OWN.append(made)
        return _OWN[0]


def close() -> None:
    """Send what is waiting, and begin anew when the next span does."""
    while _OWN:
        _OWN.pop().shutdown()


def patience(signal: str) -> float | None:
    """Return the seconds that sending may take; None where the variables say it."""
    names = (f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
    return None if any(name in os.environ for name in names) else _PATIENCE


def resource() -> "Resource":
    """Return what this process is called: as OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say, else by what it is."""
    from opentelemetry.sdk.resources import Resource

    said = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    ours = {"service.version": __version__, "service.instance.id": uuid.uuid4().hex}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        ours["service.name"] = "potstill-device"
    return Resource.create({name: value for name, value in ours.items() if f"{name}=" not in said})
