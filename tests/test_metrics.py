"""Metrics: counting is cheap, and the output is correct."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from trimq.metrics import CONTENT_TYPE, Counter, Histogram, Metrics


def samples_of(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Scraped samples, by name and labels."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_counter_is_shown_with_prefix_suffix_and_help() -> None:
    metrics = Metrics()
    appended = metrics.counter("appended_records", "Records that were appended.")
    appended.value += 2
    appended.add()
    appended.add(4)
    page = metrics.render().decode()
    assert "# HELP trimq_appended_records_total Records that were appended.\n" in page
    assert "# TYPE trimq_appended_records_total counter\n" in page
    assert "trimq_appended_records_total 7.0\n" in page


def test_a_counter_that_never_counted_is_shown_as_zero() -> None:
    metrics = Metrics()
    metrics.counter("refused", "Refused requests.")
    assert samples_of(metrics) == {("trimq_refused_total", ()): 0.0}


def test_each_combination_of_labels_has_its_own_number() -> None:
    metrics = Metrics()
    requests = metrics.counters("requests", "Requests.", ("protocol", "name"))
    requests.labelled("kafka", "Produce").add(2)
    requests.labelled("kafka", "Fetch").add()
    assert requests.labelled("kafka", "Fetch") is requests.labelled("kafka", "Fetch")
    assert samples_of(metrics) == {
        ("trimq_requests_total", (("name", "Produce"), ("protocol", "kafka"))): 2.0,
        ("trimq_requests_total", (("name", "Fetch"), ("protocol", "kafka"))): 1.0,
    }


def test_a_removed_metric_is_no_longer_shown() -> None:
    metrics = Metrics()
    sizes = metrics.gauges("topic_bytes", "Size.", ("topic",))
    sizes.labelled("orders").value = 10
    sizes.labelled("gone").value = 10
    sizes.forget("gone")
    sizes.forget("never there")
    assert samples_of(metrics) == {("trimq_topic_bytes", (("topic", "orders"),)): 10.0}


@given(st.text())
def test_any_label_value_comes_back_as_it_was(value: str) -> None:
    metrics = Metrics()
    metrics.counters("requests", "Requests.", ("client",)).labelled(value).add()
    assert samples_of(metrics) == {("trimq_requests_total", (("client", value),)): 1.0}


def test_a_gauge_goes_up_and_down() -> None:
    metrics = Metrics()
    connections = metrics.gauge("connections", "Open connections.")
    connections.value += 3
    connections.value -= 1
    assert samples_of(metrics) == {("trimq_connections", ()): 2.0}


def test_a_gauge_may_be_read_only_when_it_is_asked_for() -> None:
    metrics = Metrics()
    readings: list[int] = []

    def read() -> float:
        readings.append(1)
        return 4.5

    metrics.gauge_from("free_bytes", "Room on the disk.", read)
    metrics.gauges_from("end", "End of each stream.", ("topic",), lambda: [(("a",), 1), (("b",), 2)])
    metrics.counters_from("moves", "Moves of each group.", ("group",), lambda: [(("g",), 7)])
    assert readings == []
    assert samples_of(metrics) == {
        ("trimq_free_bytes", ()): 4.5,
        ("trimq_moves_total", (("group", "g"),)): 7.0,
        ("trimq_end", (("topic", "a"),)): 1.0,
        ("trimq_end", (("topic", "b"),)): 2.0,
    }
    assert readings == [1]


@given(st.lists(st.floats(min_value=0, max_value=100)))
def test_a_bucket_counts_all_measures_up_to_its_bound(measures: list[float]) -> None:
    metrics = Metrics()
    bounds = (1.0, 10.0, 50.0)
    took = metrics.histogram("took_seconds", "How long it took.", bounds)
    for measure in measures:
        took.observe(measure)
    samples = samples_of(metrics)
    for bound in bounds:
        expected = sum(measure <= bound for measure in measures)
        assert samples["trimq_took_seconds_bucket", (("le", str(bound)),)] == expected
    assert samples["trimq_took_seconds_bucket", (("le", "+Inf"),)] == len(measures)
    assert samples["trimq_took_seconds_count", ()] == len(measures)
    assert samples["trimq_took_seconds_sum", ()] == pytest.approx(sum(measures))


def test_histograms_take_labels_too() -> None:
    metrics = Metrics()
    took = metrics.histograms("took_seconds", "How long.", ("name",))
    took.labelled("Fetch").observe(0.3)
    assert samples_of(metrics)["trimq_took_seconds_bucket", (("le", "0.5"), ("name", "Fetch"))] == 1.0


def test_a_metric_is_declared_once() -> None:
    metrics = Metrics()
    metrics.counter("requests", "Requests.")
    with pytest.raises(ValueError, match="declared twice"):
        metrics.gauge("requests", "Requests.")


@pytest.mark.parametrize("name", ["", "Requests", "a-b", "1a", "trimq requests"])
def test_a_name_that_prometheus_would_not_read_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name"):
        Metrics().counter(name, "Help.")
    with pytest.raises(ValueError, match="is not a valid name"):
        Metrics().counters("requests", "Help.", (name,))


def test_the_prefix_is_not_given_twice() -> None:
    with pytest.raises(ValueError, match="leave out the prefix"):
        Metrics().counter("trimq_requests", "Requests.")


def test_labels_must_be_as_many_as_were_declared() -> None:
    with pytest.raises(ValueError, match="labels"):
        Metrics().counters("requests", "Help.", ("a", "b")).labelled("x")


@pytest.mark.parametrize("bounds", [(), (2.0, 1.0), (1.0, 1.0)])
def test_the_bounds_of_a_histogram_must_grow(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must be an increasing sequence"):
        Metrics().histogram("took", "Help.", bounds)


def test_two_brokers_in_one_process_share_nothing() -> None:
    first, second = Metrics(), Metrics()
    first.counter("requests", "Requests.").add()
    second.counter("requests", "Requests.")
    assert samples_of(second) == {("trimq_requests_total", ()): 0.0}


def test_the_content_type_is_that_of_the_text_format() -> None:
    assert CONTENT_TYPE == prometheus_client.CONTENT_TYPE_LATEST


class Reference:
    """The same numbers as objects of Prometheus' own library, which writes the page that ours has to equal."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families

    def page(self) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def numbers() -> st.SearchStrategy[float]:
    whole = st.integers(min_value=-(2**70), max_value=2**70)
    return st.one_of(whole, st.floats(), st.floats(min_value=1e5, max_value=1e8))


@given(st.text(), st.text(), st.text(), numbers())
def test_the_page_is_the_one_that_prometheus_would_write(help: str, first: str, second: str, number: float) -> None:
    metrics = Metrics()
    counters = metrics.counters("requests", help, ("topic", "client"))
    counters.labelled(first, second).value = number  # type: ignore[assignment]
    counters.labelled("b", "a").add(3)
    metrics.gauges_from("lag", help, ("zone", "group"), lambda: [((first, second), number), None])
    metrics.gauge("free", help).value = number
    metrics.gauges("nothing", help, ("topic",))
    took = metrics.histograms("took_seconds", help, ("zone", "api"), (0.5, 2.0, 1e7)).labelled(first, second)
    for measure in (0.5, 3.0, 1e9):
        took.observe(measure)

    counted = CounterMetricFamily("trimq_requests", help, labels=("topic", "client"))
    counted.add_metric((first, second), number)
    if (first, second) == ("b", "a"):
        counted = CounterMetricFamily("trimq_requests", help, labels=("topic", "client"))
        counted.add_metric((first, second), number + 3)
    else:
        counted.add_metric(("b", "a"), 3)
    lag = GaugeMetricFamily("trimq_lag", help, labels=("zone", "group"))
    lag.add_metric((first, second), number)
    free = GaugeMetricFamily("trimq_free", help, value=number)
    nothing = GaugeMetricFamily("trimq_nothing", help, labels=("topic",))
    timed = HistogramMetricFamily("trimq_took_seconds", help, labels=("zone", "api"))
    buckets = [("0.5", 1.0), ("2.0", 1.0), ("10000000.0", 2.0), ("+Inf", 3.0)]
    timed.add_metric((first, second), buckets, took.total)
    assert metrics.render() == Reference(counted, lag, free, nothing, timed).page()


def test_a_long_page_is_made_in_short_pieces() -> None:
    metrics = Metrics()
    ends = metrics.gauges("end", "End.", ("topic",))
    for number in range(5000):
        ends.labelled(f"t-{number}").value = number
    silent = iter([None] * 1000)
    metrics.gauges_from("slow", "Slow.", (), lambda: silent)
    pieces = list(metrics.render_pieces())
    assert max(piece.count(b"\n") for piece in pieces) <= 101
    assert len(pieces) >= 60  # time that brings no line ends a piece too
    assert b"".join(pieces) == metrics.render()


def test_numbers_may_come_and_go_between_two_pieces() -> None:
    metrics = Metrics()
    ends = metrics.gauges("end", "End.", ("topic",))
    for number in range(500):
        ends.labelled(f"t-{number}").value = number
    pieces = metrics.render_pieces()
    next(pieces)
    ends.labelled("new").value = 1
    ends.forget("t-400")
    rest = b"".join(pieces)
    assert rest.endswith(b'trimq_end{topic="t-499"} 499.0\n')
    assert b"t-400" not in rest


def steps(statement: str, names: dict[str, object]) -> int:
    """Bytecode instructions that a statement executes in all functions that it calls, plus calls of C functions.
    Measured instead of time, which depends on the load of the machine."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., object]:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "c_call"

    def run() -> None:
        exec(code, names)

    code = compile(statement, "<statement>", "exec")
    run()  # warms up caches
    tracing, profiling = sys.gettrace(), sys.getprofile()
    sys.setprofile(profile)
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(tracing)
        sys.setprofile(profiling)
    return count


def test_steps_include_called_functions() -> None:
    def slow() -> None:
        for _ in range(1000):
            abs(1)

    assert steps("slow()", {"slow": slow}) > 1000 + steps("quick()", {"quick": lambda: None})


def test_counting_costs_no_more_than_a_few_plain_additions() -> None:
    class Bare:
        def __init__(self) -> None:
            self.number = 0

    names = {"counter": Counter(), "bare": Bare(), "histogram": Histogram((0.1, 1.0, 10.0))}
    nothing = steps("pass", names)

    def cost(statement: str) -> int:
        return steps(statement, names) - nothing

    floor = cost("bare.number += 1")
    assert cost("counter.value += 1") == floor
    assert cost("counter.add()") < 4 * floor
    assert cost("histogram.observe(0.3)") < 8 * floor
