"""Spans of what a device does, and the caller's trace, which goes along with requests (W3C Trace Context)."""

import sys
from contextlib import AbstractContextManager

from contract import traces
from contract.wire.devices import DiscriminatorAssignment, TrainAssignment, TrainGanAssignment


def span(
    name: str, work: TrainAssignment | TrainGanAssignment | DiscriminatorAssignment
) -> AbstractContextManager[traces.Span]:
    """Do a piece of a device's work in a span of its own; it tells ids of the service, and nothing of the data."""
    about: dict[str, traces.Value | None] = {"potstill.federation_id": work.federation_id}
    if isinstance(work, TrainAssignment):
        about |= {"potstill.round_id": work.round.id, "potstill.round": work.round.index}
    return traces.span(name, about)


def trace_headers() -> dict[str, str]:
    """Return `traceparent` and `tracestate` of the span that this program is in; nothing where it does not trace.

    OpenTelemetry is never loaded for that: a program that traces has done so. No baggage goes along.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(found)
    return found
