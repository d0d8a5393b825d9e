"""A collector of OTLP over HTTP, as small as can be: it decodes what comes by OpenTelemetry's own messages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Seen(NamedTuple):
    """A span that came; ids are hexadecimal, `links` are ids of spans."""

    program: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool
    links: list[str]


class Collector:
    """What has come so far.

    Attributes:
        metrics: name -> labels -> the newest number, or the count of a histogram.
        bodies: everything, as it came.
    """

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.metrics: dict[str, dict[tuple[tuple[str, Any], ...], float]] = {}
        self.bodies: list[bytes] = []
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        """Decode a request's body."""
        self.bodies.append(body)
        if path == "/v1/traces":
            for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                program = str(_values(each.resource.attributes)["service.name"])
                self.spans += [_seen(program, span) for scope in each.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for of in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in of.scope_metrics for metric in scope.metrics):
                    kind = metric.WhichOneof("data")
                    self.metrics[metric.name] = {
                        tuple(sorted(_values(point.attributes).items())): (
                            point.count if kind == "histogram" else point.as_double or point.as_int
                        )
                        for point in getattr(metric, str(kind)).data_points
                    }


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _seen(program: str, span: Any) -> Seen:
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    links = [each.span_id.hex() for each in span.links]
    return Seen(program, span.name, *ids, _values(span.attributes), span.status.code == 2, links)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
