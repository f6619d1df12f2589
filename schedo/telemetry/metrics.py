"""The metrics of GET /metrics in OpenTelemetry's data model: the same names, labels and buckets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, cast

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

from schedo.client.metrics import parse_labels
from schedo.protocol.prometheus import Family
from schedo.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_NS_PER_US = 1_000
_UNKNOWN = cast("float", None)  # a field that is left out
_UNITS = {"_seconds": "s", "_bytes": "By"}


def to_metrics_data(
    families: Iterable[Family], resource: Resource, began_at: int, now: int
) -> MetricsData:
    """Return the families as one export.

    began_at: since when the counters count; both instants are in microseconds.
    """
    times = began_at * _NS_PER_US, now * _NS_PER_US
    metrics = [_to_metric(family, times) for family in families if family.samples]
    scope = ScopeMetrics(InstrumentationScope("schedo", __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _to_metric(family: Family, times: tuple[int, int]) -> Metric:
    data: Histogram | Sum | Gauge
    if family.kind == "histogram":
        points = _histogram_points(family, times)
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    elif family.kind == "counter":
        data = Sum(_points(family, times), AggregationTemporality.CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(_points(family, times))
    plain = family.name.removesuffix("_total")
    unit = next((unit for suffix, unit in _UNITS.items() if plain.endswith(suffix)), "")
    return Metric(family.name, family.help, unit, data)


def _points(family: Family, times: tuple[int, int]) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(dict(parse_labels(sample.labels)), *times, sample.value)
        for sample in family.samples
    ]


def _histogram_points(family: Family, times: tuple[int, int]) -> list[HistogramDataPoint]:
    """Return a point for each set of labels; its samples follow each other, `_count` last."""
    points = []
    below: list[int] = [0]
    bounds: list[float] = []
    total = 0.0
    for value, labels, suffix in family.samples:
        found = dict(parse_labels(labels))
        if suffix == "_bucket":
            below.append(int(value))
            bounds.append(float(found["le"]))
        elif suffix == "_sum":
            total = value
        else:
            counts = [upto - before for before, upto in pairwise(below)]
            finite = [bound for bound in bounds if bound < math.inf]
            points.append(
                HistogramDataPoint(
                    found, *times, int(value), total, counts, finite, min=_UNKNOWN, max=_UNKNOWN
                )
            )
            below, bounds = [0], []
    return points
