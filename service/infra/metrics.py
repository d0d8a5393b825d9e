"""Prometheus metrics of one API process. No label names a client, a federation or an id: their values are few.

What the process itself sees is counted here; what the database knows is read when somebody scrapes, so every replica
says the same of it.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FRESH_SECONDS = 1.0
GONE = "client_gone"


@dataclass(frozen=True)
class State:
    """What the database knows at a moment: name -> value, or (label, label value) -> count by state."""

    federations: dict[str, int] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)
    stored_bytes: dict[str, int] = field(default_factory=dict)
    clients: int = 0
    workers: int = 0
    oldest_queued_seconds: float = 0.0
    heartbeat_age_seconds: float | None = None
    events: int = 0


@dataclass(frozen=True)
class Gauges:
    """What the process is asked for at a scrape."""

    state: Callable[[], State]
    free_bytes: Callable[[], int]
    long_polls: Callable[[], int]
    streams: Callable[[], int]
    pool: Callable[[], tuple[int, int]]


class Metrics:
    """Counters of requests and, at a scrape, the state of the service.

    Args:
        gauges: how to find out what is not counted.
        version: of the program.
    """

    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, gauges: Gauges, version: str):
        self.version = version
        self.registry = CollectorRegistry()
        for kind in (ProcessCollector, PlatformCollector, GCCollector):
            kind(registry=self.registry)
        labels = ["method", "route", "status"]
        self._requests = self._counter("http_requests", "requests answered", labels)
        self._problems = self._counter("problems", "answers that are problems, by kind", ["route", "kind"])
        self._received = self._counter("received_bytes", "bytes of bodies that arrived", ["route"])
        self._alone = self._counter("rates_alone", "times that rates could not be shared: Redis did not answer", [])
        self._seconds = Histogram(
            "potstill_http_request_seconds",
            "seconds from a request's head to the end of its answer",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        info = Gauge("potstill_build_info", "1; the labels say what runs", ["version"], registry=self.registry)
        info.labels(version).set(1)
        self.registry.register(_Asked(gauges))

    def rates_alone(self) -> None:
        """Count a time at which Redis did not answer and rates were counted by this process alone."""
        self._alone.inc()

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(f"potstill_{name}", text, labels, registry=self.registry)

    def request(self, method: str, route: str, status: str, seconds: float, problem: str | None, received: int) -> None:
        """Count one request.

        Args:
            route: the path as the router knows it, with names for its parts.
            status: HTTP status, or `client_gone` when nobody was left to be answered.
            problem: kind of the problem that was answered.
            received: bytes of its body.
        """
        method = method if method in _METHODS else "other"
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)
        if problem is not None and status != GONE:
            self._problems.labels(route, problem).inc()
        if received:
            self._received.labels(route).inc(received)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


def _family(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(f"potstill_{name}", text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


class _Asked(Collector):
    """Asks for the state at a scrape, at most once a second however many scrape."""

    def __init__(self, gauges: Gauges):
        self._gauges = gauges
        self._state, self._at = State(), -_FRESH_SECONDS

    def describe(self) -> Iterable[Metric]:
        """Say nothing: registering must not read the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        now = time.monotonic()
        if now - self._at >= _FRESH_SECONDS:
            self._state, self._at = self._gauges.state(), now
        yield from _of_state(self._state)
        busy, size = self._gauges.pool()
        single = {
            "disk_free_bytes": ("free space where the weights are", self._gauges.free_bytes()),
            "long_polls": ("devices that wait for an assignment, here", self._gauges.long_polls()),
            "event_streams": ("open event streams, here", self._gauges.streams()),
            "database_connections_in_use": ("connections of this process's pool that are in use", busy),
            "database_connections_most": ("connections that the pool may open", size),
        }
        for name, (text, value) in single.items():
            yield GaugeMetricFamily(f"potstill_{name}", text, value)


def _of_state(state: State) -> Iterator[Metric]:
    yield _family("federations", "federations by state", "state", state.federations)
    yield _family("rounds", "rounds by state", "state", state.rounds)
    yield _family("jobs", "jobs by state", "state", state.jobs)
    yield _family("stored_bytes", "bytes that rows name, by what they are", "what", state.stored_bytes)
    single = {
        "clients": ("enrolled clients", state.clients),
        "workers": ("workers that are alive", state.workers),
        "oldest_queued_job_seconds": ("age of the oldest job that waits for a worker", state.oldest_queued_seconds),
        "last_event_sequence": ("number of the newest event", state.events),
    }
    for name, (text, value) in single.items():
        yield GaugeMetricFamily(f"potstill_{name}", text, value)
    if state.heartbeat_age_seconds is not None:
        text = "seconds since a worker was last heard; absent before the first"
        yield GaugeMetricFamily("potstill_worker_heartbeat_age_seconds", text, state.heartbeat_age_seconds)
