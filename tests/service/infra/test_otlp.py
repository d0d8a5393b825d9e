"""By OTLP leaves what `/metrics` shows: each number, by its name and labels."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, PlatformCollector

from service.infra import otlp


@pytest.fixture
def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    GCCollector(made)
    PlatformCollector(made)
    counter = Counter("answers", "answers", ["route"], registry=made)
    counter.labels("/a").inc(3)
    counter.labels("/b").inc()
    Gauge("free_bytes", "free", registry=made).set(2.5)
    Gauge("nobody", "of whom there is none", ["who"], registry=made)
    seconds = Histogram("seconds", "seconds", ["route"], buckets=(0.1, 1), registry=made)
    for value in (0.05, 0.06, 0.5, 7):
        seconds.labels("/a").observe(value)
    return made


def test_every_number_of_the_registry_leaves(registry: CollectorRegistry) -> None:
    found: dict[str, Any] = {each.name: each.data for each in otlp.metrics_of(registry, 5.0, 9.0)}
    text = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith(("_created", "_bucket", "_sum", "_count"))
    }
    sent = {
        (
            name + ("_total" if hasattr(data, "is_monotonic") else ""),
            tuple(sorted(point.attributes.items())),
        ): point.value
        for name, data in found.items()
        for point in data.data_points
        if hasattr(point, "value")
    }
    assert sent == text and ("answers_total", (("route", "/a"),)) in sent and ("free_bytes", ()) in sent
    assert "nobody" not in found, "a metric without a point is none that a collector takes"
    assert {point.time_unix_nano for data in found.values() for point in data.data_points} == {9_000_000_000}
    assert found["python_gc_collections"].data_points[0].start_time_unix_nano == 5_000_000_000
    assert found["answers"].is_monotonic


def test_buckets_count_what_lies_between_two_bounds(registry: CollectorRegistry) -> None:
    """Prometheus counts 2, 3, 4 up to 0.1, 1 and infinity."""
    found: dict[str, Any] = {each.name: each.data for each in otlp.metrics_of(registry, 5.0, 9.0)}
    (point,) = found["seconds"].data_points
    assert (point.bucket_counts, point.explicit_bounds) == ([2, 1, 1], [0.1, 1])
    assert (point.count, point.sum, point.attributes) == (4, pytest.approx(7.61), {"route": "/a"})


@pytest.mark.parametrize(("said", "seconds"), [("500", 0.5), ("", 60), ("x", 60), ("0", 60)])
def test_how_often_is_opentelemetry_s_variable(monkeypatch: pytest.MonkeyPatch, said: str, seconds: float) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", said)
    assert otlp.every_seconds() == seconds
