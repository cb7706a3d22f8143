"""Metrics of the broker. Counting is an addition to a plain number; the Prometheus format is computed only on request.
One `Metrics` per broker, passed down; there is no global registry."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "trimq_"
SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BYTES_BUCKETS = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0, 67108864.0)

_NAME = re.compile(r"[a-z][a-z0-9_]*")
LabelValues = tuple[str, ...]


class Counter:
    """Number that only grows. A hot path adds to `value` itself. Only one thread may write: an addition is not
    atomic."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount


class Gauge:
    """Number that rises and falls."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Histogram:
    """Counts of measurements per bucket: `counts[i]` up to `bounds[i]`, the last one above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def observe(self, measure: float) -> None:
        self.counts[bisect_left(self.bounds, measure)] += 1
        self.total += measure


T = TypeVar("T", Counter, Gauge, Histogram)


class Family(Generic[T]):
    """One metric with labels: one number for each combination of label values."""

    __slots__ = ("_make", "help", "label_names", "members", "name")

    def __init__(self, name: str, help: str, label_names: Sequence[str], make: Callable[[], T]) -> None:
        self.name = name
        self.help = help
        self.label_names = tuple(label_names)
        self.members: dict[LabelValues, T] = {}
        self._make: Callable[[], T] = make

    def labelled(self, *values: str) -> T:
        """Returns the number for these label values, created at first use. A hot path keeps the result."""
        member = self.members.get(values)
        if member is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, got {len(values)} values")
            member = self.members[values] = self._make()
        return member

    def forget(self, *values: str) -> None:
        """Removes the number for these label values, for example after the topic was deleted."""
        self.members.pop(values, None)


ReadGauge = Callable[[], float]
ReadGauges = Callable[[], Iterable[tuple[LabelValues, float]]]
_Expose = Callable[[], "Metric"]


class Metrics:
    """All metrics of one broker. Each is declared once, with its help text; names get the prefix `trimq_`."""

    def __init__(self) -> None:
        self._exposed: dict[str, _Expose] = {}

    def counter(self, name: str, help: str) -> Counter:
        return self.counters(name, help, ()).labelled()

    def counters(self, name: str, help: str, label_names: Sequence[str]) -> Family[Counter]:
        """Exposed to Prometheus as `trimq_<name>_total`."""
        family = Family(name, help, label_names, Counter)
        self._declare(name, label_names, lambda: _counter_metric(family))
        return family

    def gauge(self, name: str, help: str) -> Gauge:
        return self.gauges(name, help, ()).labelled()

    def gauges(self, name: str, help: str, label_names: Sequence[str]) -> Family[Gauge]:
        family = Family(name, help, label_names, Gauge)
        self.gauges_from(name, help, label_names, lambda: [(k, g.value) for k, g in family.members.items()])
        return family

    def gauge_from(self, name: str, help: str, read: ReadGauge) -> None:
        """Declares a gauge whose value is read from `read` at each collection."""
        self.gauges_from(name, help, (), lambda: [((), read())])

    def gauges_from(self, name: str, help: str, label_names: Sequence[str], read: ReadGauges) -> None:
        """As `gauge_from`, with labels: `read` returns every combination of label values with its number."""
        self._declare(name, label_names, lambda: _gauge_metric(name, help, label_names, read()))

    def histogram(self, name: str, help: str, bounds: Sequence[float] = SECONDS_BUCKETS) -> Histogram:
        return self.histograms(name, help, (), bounds).labelled()

    def histograms(
        self, name: str, help: str, label_names: Sequence[str], bounds: Sequence[float] = SECONDS_BUCKETS
    ) -> Family[Histogram]:
        if list(bounds) != sorted(set(bounds)) or not bounds:
            raise ValueError(f"the bounds of {name} must be an increasing sequence")
        family = Family(name, help, label_names, lambda: Histogram(bounds))
        self._declare(name, label_names, lambda: _histogram_metric(family))
        return family

    def _declare(self, name: str, label_names: Sequence[str], expose: _Expose) -> None:
        for word in (name, *label_names):
            if not _NAME.fullmatch(word):
                raise ValueError(f"{word!r} is not a valid name of a metric or label")
        if name.startswith(PREFIX):
            raise ValueError(f"{name}: leave out the prefix trimq_, it is added automatically")
        if name in self._exposed:
            raise ValueError(f"the metric {name} is declared twice")
        self._exposed[name] = expose

    def collect(self) -> Iterator[Metric]:
        """Yields the current values of all metrics as objects of `prometheus_client`."""
        return (expose() for expose in self._exposed.values())

    def render(self) -> bytes:
        """Returns the page that Prometheus scrapes. Its media type is `content_type()`."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def load_renderer() -> None:
    """Imports the library that `render` needs. Takes 0.2 s once, so do it off the event loop after the start."""
    import prometheus_client  # noqa: F401


def content_type() -> str:
    """Returns the media type of `render`'s result, for the HTTP header."""
    from prometheus_client import CONTENT_TYPE_LATEST

    return CONTENT_TYPE_LATEST


def _counter_metric(family: Family[Counter]) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily

    metric = CounterMetricFamily(PREFIX + family.name, family.help, labels=family.label_names)
    for values, counter in family.members.items():
        metric.add_metric(values, counter.value)
    return metric


def _gauge_metric(
    name: str, help: str, label_names: Sequence[str], numbers: Iterable[tuple[LabelValues, float]]
) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily

    metric = GaugeMetricFamily(PREFIX + name, help, labels=label_names)
    for values, number in numbers:
        metric.add_metric(values, number)
    return metric


def _histogram_metric(family: Family[Histogram]) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    metric = HistogramMetricFamily(PREFIX + family.name, family.help, labels=family.label_names)
    for values, histogram in family.members.items():
        metric.add_metric(values, _cumulate(histogram), histogram.total)
    return metric


def _cumulate(histogram: Histogram) -> list[tuple[str, float]]:
    """Returns the buckets in the cumulative form of Prometheus: each includes all smaller ones."""
    buckets: list[tuple[str, float]] = []
    seen = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        seen += count
        buckets.append((bound, seen))
    return buckets
