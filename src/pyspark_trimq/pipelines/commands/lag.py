"""Pipeline `lag`: measures the lag of groups in messages and seconds, their rates, the end-to-end latency, the time to
drain the backlog, and the capacity for a peak."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.lag_samples import Sample, Samples, sample_groups
from pyspark_trimq.pipelines.reports.outcome import Outcome, Plot, Table
from pyspark_trimq.pipelines.runner.checkpoint import open_checkpoint
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.runner import read_current
from pyspark_trimq.pipelines.runner.topics import topic_ends
from trimq.client.planning import capacity, seconds_to_drain
from trimq.errors import StartupError

RECORD_SCHEMA = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
COMMITTED_RANGES_SCHEMA = "group STRING, topic STRING, partition INT, first BIGINT, after BIGINT, at_ms BIGINT"


class Load(NamedTuple):
    """Input of the capacity sheet: cores of one machine, T1 and T2 per message. A rate of 0 means: use the measured
    one."""

    cores: int
    busy_ms: float
    waiting_ms: float
    peak_rate: float = 0.0
    node_rate: float = 0.0


@plain_errors()
def lag(
    groups: Sequence[str] = (),
    *,
    topics: Sequence[str] = (),
    seconds: float = 10.0,
    every_s: float = 1.0,
    window: str = "5s",
    load: Load | None = None,
    context: PipelineContext = DEFAULT_CONTEXT,
) -> Outcome:
    """Samples groups (all if none is given) for so many seconds and reports their lag. With a checkpoint the samples
    are kept, and the next run adds to them. The end-to-end latency of a message is the time from its timestamp to the
    first sample in which its group has committed it."""
    window_ms = parse_duration(window)
    settings: dict[str, Any] = {
        "bootstrap": context.bootstrap,
        "groups": list(groups) or "all",
        "topics": list(topics) or "all",
        "window": window,
    }
    with contextlib.ExitStack() as stack:
        file = None
        if context.checkpoint is not None:
            signature = {"bootstrap": context.bootstrap, "groups": list(groups), "topics": list(topics)}
            file = (
                stack.enter_context(open_checkpoint(Path(context.checkpoint), "lag", signature)).folder
                / "samples.jsonl"
            )
        samples = Samples(file)
        sample_groups(context, samples, groups, topics, seconds, every_s)
        taken = samples.all
    records = _records(context, taken)
    latencies = _latencies(context, records, taken, window_ms)
    return _outcome(settings, taken, _oldest_unread(records, taken), latencies, window_ms, load)


# --- records in the topics --------------------------------------------------------------------------------------------


def _records(context: PipelineContext, samples: Sequence[Sample]) -> DataFrame:
    """Returns offset and timestamp of each message, from the first that any group had not read to the last sampled
    one."""
    starts: dict[str, dict[int, int]] = defaultdict(dict)
    ends: dict[str, dict[int, int]] = defaultdict(dict)
    for topic in {sample.topic for sample in samples}:
        for partition, now in topic_ends(context, topic).items():
            own = [sample for sample in samples if (sample.topic, sample.partition) == (topic, partition)]
            first = min((sample.offset for sample in own), default=now.end)
            starts[topic][partition] = min(max(first, now.start), now.end)
            ends[topic][partition] = min(max([starts[topic][partition], *(sample.end for sample in own)]), now.end)
    bounds = {"startingOffsets": _offsets(starts), "endingOffsets": _offsets(ends)}
    return read_current(context, {"subscribe": ",".join(starts)}, RECORD_SCHEMA, failOnDataLoss="false", **bounds)


def _offsets(by_topic: Mapping[str, Mapping[int, int]]) -> str:
    return json.dumps({topic: {str(number): at for number, at in places.items()} for topic, places in by_topic.items()})


def committed_ranges(samples: Sequence[Sample]) -> list[tuple[str, str, int, int, int, int]]:
    """Returns the offsets that each group committed between two samples, as rows of COMMITTED_RANGES_SCHEMA."""
    found = []
    before: dict[tuple[str, str, int], Sample] = {}
    for sample in samples:
        place = sample[1:4]
        if (last := before.get(place)) is not None and sample.offset > last.offset:
            found.append((*place, last.offset, sample.offset, sample.at_ms))
        before[place] = sample
    return found


def _latencies(
    context: PipelineContext, records: DataFrame, samples: Sequence[Sample], window_ms: int
) -> list[tuple[str, int, int, float, float]]:
    """Returns group, window, messages, and the exact median and 99th percentile in ms."""
    read = committed_ranges(samples)
    if not read:
        return []
    moved = F.broadcast(context.session().createDataFrame(read, COMMITTED_RANGES_SCHEMA).alias("step"))
    within = (
        "r.topic = step.topic AND r.partition = step.partition AND r.offset >= step.first AND r.offset < step.after"
    )
    latency = F.greatest(F.col("at_ms") - F.unix_millis("timestamp"), F.lit(0)).alias("latency")
    matched = (
        records.alias("r")
        .join(moved, F.expr(within))
        .select("group", F.floor(F.col("at_ms") / window_ms).alias("window"), latency)
    )
    rows = (
        matched.groupBy("group", "window")
        .agg(F.count("*").alias("n"), F.expr("percentile(latency, array(0.5, 0.99))").alias("p"))
        .orderBy("group", "window")
        .collect()
    )
    return [(row["group"], row["window"] * window_ms, row["n"], row["p"][0], row["p"][1]) for row in rows]


def _oldest_unread(records: DataFrame, samples: Sequence[Sample]) -> dict[tuple[str, str, int], int]:
    """Returns the timestamp in ms of the first unread message, by group, topic and partition."""
    found = {}
    last = {sample[1:4]: sample for sample in samples}
    behind = [sample for sample in last.values() if sample.end > sample.offset]
    for sample in behind:
        own = (F.col("topic") == sample.topic) & (F.col("partition") == sample.partition)
        first = (
            records.where(own & (F.col("offset") >= sample.offset))
            .agg(F.min_by(F.unix_millis("timestamp"), "offset").alias("at"))
            .first()
        )
        if first is not None and first["at"] is not None:
            found[sample[1:4]] = first["at"]
    return found


# --- results ----------------------------------------------------------------------------------------------------------


class _GroupLag(NamedTuple):
    group: str
    lag: int
    lag_s: float
    arrival_rate: float
    read_rate: float
    drain_s: float | None


def group_lags(samples: Sequence[Sample], oldest: Mapping[tuple[str, str, int], int]) -> list[_GroupLag]:
    """Returns the lag and rates of each group over all its topics."""
    found = []
    for group in sorted({sample.group for sample in samples}):
        own = [sample for sample in samples if sample.group == group]
        first: dict[tuple[str, int], Sample] = {}
        last: dict[tuple[str, int], Sample] = {}
        for sample in own:
            first.setdefault((sample.topic, sample.partition), sample)
            last[sample.topic, sample.partition] = sample
        now_ms = max(sample.at_ms for sample in own)
        seconds = max((now_ms - min(sample.at_ms for sample in own)) / 1000, 0.001)
        behind = sum(max(sample.end - sample.offset, 0) for sample in last.values())
        ages = [now_ms - at for (of, *_), at in oldest.items() if of == group]
        arrived = sum(last[place].end - first[place].end for place in last) / seconds
        read = sum(last[place].offset - first[place].offset for place in last) / seconds
        found.append(
            _GroupLag(group, behind, max([0, *ages]) / 1000, arrived, read, seconds_to_drain(behind, read, arrived))
        )
    return found


def _outcome(
    settings: dict[str, Any],
    samples: Sequence[Sample],
    oldest: Mapping[tuple[str, str, int], int],
    latencies: Sequence[tuple[str, int, int, float, float]],
    window_ms: int,
    load: Load | None,
) -> Outcome:
    found = group_lags(samples, oldest)
    outcome = Outcome("lag", settings, found=sum(pace.lag for pace in found))
    outcome.figures = {
        "groups": len(found),
        "lag (messages)": sum(pace.lag for pace in found),
        "lag (seconds)": max((pace.lag_s for pace in found), default=0.0),
        "arriving (messages/s)": max((pace.arrival_rate for pace in found), default=0.0),
        "read (messages/s)": sum(pace.read_rate for pace in found),
        "p50 latency (ms)": max((row[3] for row in latencies), default=None),
        "p99 latency (ms)": max((row[4] for row in latencies), default=None),
    }
    columns = ("group", "lag", "lag (s)", "arriving/s", "read/s", "drained in (s)")
    outcome.tables.append(Table("Groups", columns, found, drain_note(found)))
    start_ms = min(sample.at_ms for sample in samples)
    windows = [(group, (at - start_ms) / 1000, count, p50, p99) for group, at, count, p50, p99 in latencies]
    outcome.tables.append(
        Table("End-to-end latency", ("group", "from (s)", "messages", "p50 (ms)", "p99 (ms)"), windows)
    )
    outcome.tables.append(_partitions(samples))
    outcome.plots += [
        _lag_plot(samples, start_ms),
        *_rate_plots(samples, start_ms, window_ms),
        *_latency_plots(windows),
    ]
    if load is not None:
        _add_capacity(outcome, load, samples, window_ms)
    return outcome


def drain_note(found: Sequence[_GroupLag]) -> str:
    """Explains groups whose backlog does not shrink: messages arrive too fast, or nothing was read at all."""
    stuck = [pace for pace in found if pace.drain_s is None]
    notes = []
    if any(pace.arrival_rate > 0 for pace in stuck):
        notes.append("No time to drain: messages arrive at least as fast as they are read.")
    if any(pace.arrival_rate <= 0 for pace in stuck):
        notes.append("The backlog stays: nothing was read during the measurement.")
    return " ".join(notes)


def _partitions(samples: Sequence[Sample]) -> Table:
    last = {sample[1:4]: sample for sample in samples}
    rows = [
        (*place, sample.offset, sample.end, max(sample.end - sample.offset, 0))
        for place, sample in sorted(last.items())
    ]
    return Table("Partitions", ("group", "topic", "partition", "offset", "end", "lag"), rows)


def _lag_plot(samples: Sequence[Sample], start_ms: int) -> Plot:
    behind: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for sample in samples:
        behind[sample.group][sample.at_ms] += max(sample.end - sample.offset, 0)
    series = {
        group: [((at - start_ms) / 1000, float(n)) for at, n in sorted(points.items())]
        for group, points in behind.items()
    }
    return Plot("Lag", "line", "seconds", "messages behind", series)


def rates(samples: Sequence[Sample], window_ms: int) -> dict[str, list[tuple[int, float]]]:
    """Returns messages per second by window: arrived, and read by each group."""
    arrived: dict[int, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    read: dict[str, dict[int, dict[tuple[str, int], list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    before: dict[tuple[str, str, int], Sample] = {}
    for sample in samples:
        window, place = sample.at_ms // window_ms, (sample.topic, sample.partition)
        # Starts at the last sample of the previous window: messages between two windows count for the later one.
        last = before.get(sample[1:4], sample)
        arrived[window][place] += [last.end, sample.end]
        read[sample.group][window][place] += [last.offset, sample.offset]
        before[sample[1:4]] = sample

    def per_second(by_window: Mapping[int, Mapping[tuple[str, int], list[int]]]) -> list[tuple[int, float]]:
        return [
            (window * window_ms, sum(max(at) - min(at) for at in places.values()) * 1000 / window_ms)
            for window, places in sorted(by_window.items())
        ]

    return {
        "arriving": per_second(arrived),
        **{f"read by {group}": per_second(windows) for group, windows in read.items()},
    }


def _rate_plots(samples: Sequence[Sample], start_ms: int, window_ms: int) -> list[Plot]:
    series = {
        name: [((at - start_ms) / 1000, rate) for at, rate in points]
        for name, points in rates(samples, window_ms).items()
    }
    return [Plot("Throughput", "line", "seconds", "messages/s", series)] if len(series["arriving"]) > 1 else []


def _latency_plots(windows: Sequence[tuple[str, float, int, float, float]]) -> list[Plot]:
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for group, at, _, p50, p99 in windows:
        series[f"{group} p50"].append((at, p50))
        series[f"{group} p99"].append((at, p99))
    return [Plot("End-to-end latency", "line", "seconds", "ms", series)] if windows else []


def _add_capacity(outcome: Outcome, load: Load, samples: Sequence[Sample], window_ms: int) -> None:
    measured = rates(samples, window_ms)
    peak = load.peak_rate or max((rate for _, rate in measured["arriving"]), default=0.0)
    try:
        sheet = capacity(load.cores, load.busy_ms, load.waiting_ms, peak, load.node_rate)
    except ValueError as error:
        raise StartupError(str(error)) from None
    rows = [
        ("cores of one node, C", sheet.cores),
        ("busy per message, T1 (ms)", sheet.busy_ms),
        ("waiting per message, T2 (ms)", sheet.waiting_ms),
        ("threads, C * (T1 + T2) / T1", sheet.threads),
        ("rate of one node (messages/s)" + ("" if load.node_rate else ", C / T1"), sheet.node_rate),
        ("peak (messages/s)" + ("" if load.peak_rate else ", measured"), sheet.peak_rate),
        ("nodes, peak / rate of one node", sheet.nodes),
    ]
    outcome.tables.insert(1, Table("Capacity", ("figure", "value"), rows))
    outcome.figures |= {"threads": sheet.threads, "nodes": sheet.nodes}
