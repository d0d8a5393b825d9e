"""Whose trace a piece of work belongs to (W3C Trace Context), and spans of it by OpenTelemetry where those are wanted.

They are wanted where OpenTelemetry's own variables name an endpoint and the extra `otel` is installed; nothing of it is
loaded before. Without, a trace that a caller tells of still goes with its work: into the log, and on to jobs.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from functools import lru_cache
from importlib import import_module
from typing import Literal, NamedTuple, Protocol

log = logging.getLogger(__name__)
Kind = Literal["internal", "server", "consumer"]
Signal = Literal["traces", "metrics"]
Value = str | int | float | bool
_HEADER = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
"""`traceparent`: version, trace, span, flags; later versions may have more."""
_SPOKEN = "http/protobuf"


class Span(Protocol):
    """One piece of work with a name, a beginning and an end."""

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Note what has become known of it: ids, kinds and counts, never what people call or keep secret."""

    def rename(self, name: str) -> None:
        """Give it the name that is known by now."""

    def fail(self, why: str) -> None:
        """Say that it failed: a stable code, no message that may quote somebody's data."""


class _Off:
    """A span that nobody wants."""

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Note nothing."""

    def rename(self, name: str) -> None:
        """Keep no name."""

    def fail(self, why: str) -> None:
        """Tell nobody."""


_OFF = _Off()


class _Place(NamedTuple):
    """Where work is: in a span of ours, or, where that is None, below a caller's."""

    traceparent: str
    span: Span | None


_AT: ContextVar[_Place | None] = ContextVar("potstill_trace", default=None)


def read(header: str) -> str | None:
    """Return a header `traceparent` as version 00 has it; None where it says nothing that can be gone by."""
    found = _HEADER.fullmatch(header)
    return None if found is None else f"00-{found[1]}-{found[2]}-{found[3]}"


def current() -> str | None:
    """Return the `traceparent` of what is caused here: by the span at hand, or by the caller's where we make none."""
    place = _AT.get()
    return None if place is None else place.traceparent


def known() -> dict[str, str]:
    """Return the ids of the trace and span at hand, as a log tells them."""
    place = _AT.get()
    if place is None:
        return {}
    _, trace, span, _ = place.traceparent.split("-")
    return {"trace_id": trace, "parent_span_id" if place.span is None else "span_id": span}


def at_hand() -> Span:
    """Return the span that this work is in, to say more of it; one that nobody sees where there is none."""
    place = _AT.get()
    return _OFF if place is None or place.span is None else place.span


@lru_cache(maxsize=2)
def wanted(signal: Signal = "traces") -> bool:
    """Whether this process is to send spans, or metrics: as OpenTelemetry's variables say when it is first asked."""
    name = signal.upper()
    endpoint = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    exporter = os.environ.get(f"OTEL_{name}_EXPORTER", "").strip().lower()
    if not endpoint or exporter == "none" or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", _SPOKEN):
        log.warning("no %s are sent: OTEL_EXPORTER_OTLP_PROTOCOL is %s; set it to %s", signal, protocol, _SPOKEN)
        return False
    if not _is_installed():
        log.warning("no %s are sent to %s: install the extra `otel`, or unset the endpoint", signal, endpoint)
        return False
    return True


def name_program(name: str) -> None:
    """Say what this program is called in traces, unless its surroundings do; load what they need before it works."""
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", name)
    wanted()


def _is_installed() -> bool:
    try:
        import_module("opentelemetry.exporter.otlp.proto.http")
    except ImportError:
        return False
    return True


def close() -> None:
    """Send what waits: a server that is told to end by a signal dies of it, and does nothing at its exit."""
    if wanted():
        from contract import otel

        otel.close()


def _is_on() -> bool:
    """Whether spans are made: they are wanted, or the program that we are a part of traces by itself."""
    if wanted():
        return True
    if "opentelemetry.trace" not in sys.modules:
        return False
    from contract import otel

    return otel.is_set_up()


@contextmanager
def below(parent: str | None) -> Iterator[None]:
    """Do work for a caller: what is done is below its span; `parent` is its `traceparent`, None where it has none."""
    before = _AT.set(None if parent is None else _Place(parent, None))
    try:
        yield
    finally:
        _left(before)


def _left(before: Token[_Place | None]) -> None:
    """Go back to where work was; what is thrown away unfinished ends in another context, which has nothing to undo."""
    with suppress(ValueError):
        _AT.reset(before)


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, Value | None] | None = None,
    *,
    kind: Kind = "internal",
    links: Sequence[str] = (),
) -> Iterator[Span]:
    """Do work in a span, below the one at hand; where none are wanted, just do it.

    What raises fails its span by the name of its class.

    Args:
        attributes: what is known of it from the start; see `Span.set`.
        links: `traceparent` of what also had a part in it.
    """
    if not _is_on():
        yield _OFF
        return
    from contract import otel

    place = _AT.get()
    caller = None if place is None or place.span is not None else place.traceparent
    with otel.span(name, attributes or {}, kind, caller, links) as made:
        before = _AT.set(_Place(made.traceparent, made))
        try:
            yield made
        finally:
            _left(before)
