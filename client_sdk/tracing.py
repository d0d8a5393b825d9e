"""The caller's trace, which goes along with requests: the service's log names it (W3C Trace Context)."""

import sys


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
