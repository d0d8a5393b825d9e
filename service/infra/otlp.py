"""The metrics of one API process by OTLP: the same registry as `/metrics` shows, read every so often and sent.

Loaded only where OpenTelemetry's variables name where to, see `contract.traces`. There is no second set of instruments:
what is counted is counted once, in `service.infra.metrics`.
"""

import os
from collections.abc import Iterator

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from contract import __version__, otel
from service.infra import clock

_EVERY_SECONDS = 60.0
_SO_FAR = AggregationTemporality.CUMULATIVE
_NANOSECONDS = 1e9
_Labels = tuple[tuple[str, str], ...]


def every_seconds() -> float:
    """Return how often metrics are sent: OTEL_METRIC_EXPORT_INTERVAL, in milliseconds, or once a minute."""
    try:
        said = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")) / 1000
    except ValueError:
        return _EVERY_SECONDS
    return said if said > 0 else _EVERY_SECONDS


class Sending:
    """Sends what a registry has; called every so often."""

    def __init__(self, registry: CollectorRegistry):
        self._registry, self._began = registry, clock.wall()
        self._exporter = OTLPMetricExporter(timeout=otel.patience("METRICS"))
        self._resource = otel.resource()

    def __call__(self) -> None:
        """Read everything now, and send it."""
        found = list(metrics_of(self._registry, self._began, clock.wall()))
        scope = ScopeMetrics(InstrumentationScope("potstill", __version__), found, "")
        self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))

    def close(self) -> None:
        """Send what there is at the end, and let the connection go."""
        self()
        self._exporter.shutdown()


def metrics_of(registry: CollectorRegistry, began: float, now: float) -> Iterator[Metric]:
    """Yield a registry's metrics as OTLP has them, by the names and labels of Prometheus' text; units stand in names.

    Args:
        began: when counting began, of what does not say it itself.
        now: the moment that they are of; both in seconds since 1970.
    """
    for family in registry.collect():
        data: Gauge | Sum | Histogram
        if family.type == "histogram":
            data = Histogram(list(_histograms(family, now)), _SO_FAR)
        elif family.type == "counter":
            data = Sum(_numbers(family, "_total", began, now), _SO_FAR, is_monotonic=True)
        else:
            data = Gauge(_numbers(family, "", began, now))
        if data.data_points:
            yield Metric(family.name, family.documentation, "", data)


def _numbers(family: Family, ending: str, began: float, now: float) -> list[NumberDataPoint]:
    since = {_labels(each): each.value for each in family.samples if each.name == f"{family.name}_created"}
    return [
        NumberDataPoint(dict(each.labels), _moment(since.get(_labels(each), began)), _moment(now), each.value)
        for each in family.samples
        if each.name == family.name + ending
    ]


def _histograms(family: Family, now: float) -> Iterator[HistogramDataPoint]:
    """Yield a point for each set of labels; Prometheus' buckets count all up to a bound, OTLP's those between two."""
    parts: dict[_Labels, dict[str, float]] = {}
    for each in family.samples:
        name = each.labels.get("le") or each.name.removeprefix(f"{family.name}_")
        parts.setdefault(_labels(each), {})[name] = each.value
    for labels, found in parts.items():
        upto = {float(name): value for name, value in found.items() if name not in ("count", "sum", "created")}
        bounds = sorted(upto)
        counts = [int(upto[bound]) for bound in bounds]
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=_moment(found["created"]),
            time_unix_nano=_moment(now),
            count=int(found["count"]),
            sum=found["sum"],
            bucket_counts=[count - before for count, before in zip(counts, [0, *counts[:-1]], strict=True)],
            explicit_bounds=bounds[:-1],  # the last one is infinite
            min=None,  # type: ignore[arg-type]  # nobody has kept it, and the wire does without
            max=None,  # type: ignore[arg-type]
        )


def _labels(sample: Sample) -> _Labels:
    return tuple((name, value) for name, value in sorted(sample.labels.items()) if name != "le")


def _moment(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)
