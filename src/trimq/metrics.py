"""Metrics of the broker. Counting is an addition to a plain number; the Prometheus format is computed only on request.
One `Metrics` per broker, passed down; there is no global registry."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
"""Media type of the page that Prometheus scrapes."""

PREFIX = "trimq_"
SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BYTES_BUCKETS = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0, 67108864.0)

# Lines of the page per piece: a piece takes far less than a millisecond.
_LINES = 100

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

    def present(self) -> Iterator[tuple[LabelValues, T]]:
        """Yields the numbers that exist now, less those that are forgotten meanwhile."""
        for values in list(self.members):  # not `items`: thirty thousand new pairs take 8 ms
            member = self.members.get(values)
            if member is not None:
                yield values, member

    def forget(self, *values: str) -> None:
        """Removes the number for these label values, for example after the topic was deleted."""
        self.members.pop(values, None)


ReadGauge = Callable[[], float]
ReadGauges = Callable[[], Iterable[tuple[LabelValues, float] | None]]
"""Returns every combination of label values with its number. None: nothing yet, the work takes long."""

Lines = Iterable[str | None]
"""Lines of the page. None: no line yet."""


class Sample(NamedTuple):
    """Value of one counter or gauge. `labels`: in the order of their declaration."""

    name: str
    labels: LabelValues
    value: float


class Metrics:
    """All metrics of one broker. Each is declared once, with its help text; names get the prefix `trimq_`."""

    def __init__(self) -> None:
        self._exposed: dict[str, tuple[frozenset[str], Callable[[], Lines]]] = {}
        self._numbers: dict[str, ReadGauges] = {}

    def counter(self, name: str, help: str) -> Counter:
        return self.counters(name, help, ()).labelled()

    def counters(self, name: str, help: str, label_names: Sequence[str]) -> Family[Counter]:
        """Exposed to Prometheus as `trimq_<name>_total`."""
        family = Family(name, help, label_names, Counter)
        self._declare(name, label_names, lambda: _counter_lines(family))
        self._numbers[name] = lambda: ((values, counter.value) for values, counter in family.present())
        return family

    def gauge(self, name: str, help: str) -> Gauge:
        return self.gauges(name, help, ()).labelled()

    def gauges(self, name: str, help: str, label_names: Sequence[str]) -> Family[Gauge]:
        family = Family(name, help, label_names, Gauge)
        self.gauges_from(name, help, label_names, lambda: ((values, gauge.value) for values, gauge in family.present()))
        return family

    def gauge_from(self, name: str, help: str, read: ReadGauge) -> None:
        """Declares a gauge whose value is read from `read` at each collection."""
        self.gauges_from(name, help, (), lambda: [((), read())])

    def gauges_from(self, name: str, help: str, label_names: Sequence[str], read: ReadGauges) -> None:
        """As `gauge_from`, with labels: `read` returns every combination of label values with its number."""
        self._declare(name, label_names, lambda: _read_lines(name, "gauge", help, label_names, read()))
        self._numbers[name] = read

    def counters_from(self, name: str, help: str, label_names: Sequence[str], read: ReadGauges) -> None:
        """As `gauges_from`, for numbers that only grow; exposed as `trimq_<name>_total`."""
        self._declare(name, label_names, lambda: _read_lines(f"{name}_total", "counter", help, label_names, read()))
        self._numbers[name] = read

    def histogram(self, name: str, help: str, bounds: Sequence[float] = SECONDS_BUCKETS) -> Histogram:
        return self.histograms(name, help, (), bounds).labelled()

    def histograms(
        self, name: str, help: str, label_names: Sequence[str], bounds: Sequence[float] = SECONDS_BUCKETS
    ) -> Family[Histogram]:
        if list(bounds) != sorted(set(bounds)) or not bounds:
            raise ValueError(f"the bounds of {name} must be an increasing sequence")
        family = Family(name, help, label_names, lambda: Histogram(bounds))
        self._declare(name, label_names, lambda: _histogram_lines(family))
        return family

    def _declare(self, name: str, label_names: Sequence[str], expose: Callable[[], Lines]) -> None:
        for word in (name, *label_names):
            if not _NAME.fullmatch(word):
                raise ValueError(f"{word!r} is not a valid name of a metric or label")
        if name.startswith(PREFIX):
            raise ValueError(f"{name}: leave out the prefix trimq_, it is added automatically")
        if name in self._exposed:
            raise ValueError(f"the metric {name} is declared twice")
        self._exposed[name] = frozenset(label_names), expose

    def read(self, names: Iterable[str]) -> Iterator[Sample | None]:
        """Yields the values of these counters and gauges, and None where the broker may work in between. Names that
        are not declared have no values: not every broker has all listeners."""
        for name in names:
            read = self._numbers.get(name)
            for found in () if read is None else read():
                yield None if found is None else Sample(name, *found)

    def render(self) -> bytes:
        """Returns the page that Prometheus scrapes. Its media type is `CONTENT_TYPE`."""
        return b"".join(self.render_pieces())

    def render_pieces(self, without: Iterable[str] = ()) -> Iterator[bytes]:
        """Yields the page of `render` in pieces, some of them empty: the broker may work between two of them. Leaves
        out metrics with any of the labels `without`."""
        left_out = frozenset(without)
        lines: list[str] = []
        count = 0
        for label_names, expose in list(self._exposed.values()):
            if label_names & left_out:
                continue
            for line in expose():
                if line is not None:
                    lines.append(line)
                count += 1
                if count % _LINES == 0:
                    yield "".join(lines).encode("utf-8", "replace")
                    lines.clear()
        yield "".join(lines).encode("utf-8", "replace")


def _head(name: str, kind: str, help: str) -> str:
    text = help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _counter_lines(family: Family[Counter]) -> Lines:
    name = f"{PREFIX}{family.name}_total"
    yield _head(name, "counter", family.help)
    write = _LabelWriter(family.label_names).write
    for values, counter in family.present():
        yield f"{name}{write(values)} {_number(counter.value)}\n"


def _read_lines(
    name: str, kind: str, help: str, label_names: Sequence[str], numbers: Iterable[tuple[LabelValues, float] | None]
) -> Lines:
    name = PREFIX + name
    yield _head(name, kind, help)
    write = _LabelWriter(label_names).write
    for found in numbers:
        yield None if found is None else f"{name}{write(found[0])} {_number(found[1])}\n"


def _histogram_lines(family: Family[Histogram]) -> Lines:
    """Yields all lines of one histogram together, so that they agree. Buckets are cumulative: each includes all
    smaller ones."""
    name = PREFIX + family.name
    yield _head(name, "histogram", family.help)
    write = _LabelWriter(family.label_names).write
    write_bucket = _LabelWriter((*family.label_names, "le")).write
    for values, histogram in family.present():
        lines: list[str] = []
        seen = 0
        for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
            seen += count
            lines.append(f"{name}_bucket{write_bucket((*values, bound))} {_number(seen)}\n")
        lines.append(f"{name}_count{write(values)} {_number(seen)}\n")
        lines.append(f"{name}_sum{write(values)} {_number(histogram.total)}\n")
        yield "".join(lines)


class _LabelWriter:
    """Writes label values with their names, sorted by name."""

    def __init__(self, names: Sequence[str]) -> None:
        self._order = sorted(range(len(names)), key=names.__getitem__)
        self._starts = [f'{names[index]}="' for index in self._order]

    def write(self, values: LabelValues) -> str:
        if not self._starts:
            return ""
        written = [f'{start}{_escape(values[index])}"' for start, index in zip(self._starts, self._order, strict=True)]
        return "{" + ",".join(written) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    """Writes a number as Go does, which uses exponents from a million on."""
    text = repr(float(value))
    point = text.find(".")
    if value > 0 and point > 6:
        mantissa = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{point - 1:02d}"
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)
