"""The caller's trace goes along with requests, and nothing else of it."""

import sys

import httpx
import pytest
from opentelemetry import baggage, context, trace

from client_sdk.connection import Connection
from client_sdk.transport import Transport

SPAN = trace.NonRecordingSpan(trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1)))
PARENT = f"00-{0xABC:032x}-{0xDEF:016x}-01"


def asked() -> httpx.Headers:
    """Return the headers of a request that the SDK makes now."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    Transport(Connection("http://potstill.test", transport=httpx.MockTransport(answer))).request("GET", "/healthz")
    return seen[0].headers


def test_a_request_says_which_span_it_is_of() -> None:
    token = context.attach(baggage.set_baggage("secret", "kept"))
    try:
        with trace.use_span(SPAN):
            headers = asked()
    finally:
        context.detach(token)
    assert headers["traceparent"] == PARENT and "baggage" not in headers
    assert "traceparent" not in asked(), "outside of any"


def test_a_program_that_does_not_trace_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with trace.use_span(SPAN):
        monkeypatch.delitem(sys.modules, "opentelemetry.trace")
        assert "traceparent" not in asked()
