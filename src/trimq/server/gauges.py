"""Gauges of a running broker: connections, passes, topics, lag and disk space, computed at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from trimq.core.api.commit_log_group_admin import CommitLogGroupAdmin
from trimq.core.api.group_lag import GroupLagApi
from trimq.core.api.groups import GroupApi
from trimq.core.groups.rebalances import RebalanceSummary
from trimq.core.partitions.topics import Topics
from trimq.metrics import LabelValues, Metrics
from trimq.model import SYSTEM
from trimq.server.connection.listener import AnyListener
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import Files

_Numbers = Iterator[tuple[LabelValues, float] | None]


def expose_listeners(metrics: Metrics, listeners: Mapping[str, AnyListener]) -> None:
    def connections() -> list[tuple[LabelValues, float]]:
        return [((name,), listener.connections) for name, listener in listeners.items()]

    metrics.gauges_from("connections", "Open connections.", ("listener",), connections)


def expose_passes(metrics: Metrics, passes: Passes) -> None:
    # Metrics are read in slices, in this order: the durable pass never exceeds the written one.
    metrics.gauge_from("passes_durable", "Number of the last pass that is durable.", lambda: passes.durable)
    metrics.gauge_from("passes_written", "Number of the last pass that was written.", lambda: passes.written)


def expose_topics(metrics: Metrics, topics: Topics) -> None:
    def streams() -> _Numbers:
        total = 0
        for topic in list(topics):
            total += len(topic.streams)
            yield None
        yield (), total

    def stored_bytes() -> _Numbers:
        total = 0
        for topic in list(topics):
            for stream in list(topic.streams):
                total += stream.log.size_bytes
                yield None
        yield (), total

    metrics.gauge_from("topics", "Topics.", lambda: len(topics))
    metrics.gauges_from("streams", "Streams (Kafka: partitions) of all topics.", (), streams)
    metrics.gauges_from("stored_bytes", "Bytes of stored messages.", (), stored_bytes)


def expose_lag(
    metrics: Metrics, group_api: GroupApi, lag_api: GroupLagApi, group_admin: CommitLogGroupAdmin | None
) -> None:
    def lag() -> _Numbers:
        found: dict[LabelValues, float] = {}
        for group in group_api.iterate(SYSTEM):
            yield None
            if group is not None:
                for at in lag_api.streams(SYSTEM, group):
                    found[group.name, at.topic] = found.get((group.name, at.topic), 0) + at.lag
                    yield None
        shared: dict[LabelValues, float] = {}
        if group_admin is not None:
            for summary in group_admin.iterate(SYSTEM):
                yield None
                if summary is not None:
                    _add_commit_log_lag(shared, group_admin, summary.name)
        yield from (found | shared).items()

    metrics.gauges_from("group_lag", "Messages that a group has not consumed yet.", ("group", "topic"), lag)


def expose_rebalances(metrics: Metrics, group_api: GroupApi) -> None:
    def expose(name: str, help: str, number: Callable[[RebalanceSummary], float]) -> None:
        def numbers() -> _Numbers:
            for found in group_api.iterate_rebalances(SYSTEM):
                yield None if found is None else ((found[0],), number(found[1]))

        metrics.counters_from(name, help, ("group",), numbers)

    expose("group_rebalances", "Rebalances that ended with an assignment.", lambda found: found.completed)
    expose("group_rebalance_seconds", "Duration of these rebalances.", lambda found: found.total_ms / 1000)
    expose("group_moved_streams", "Streams that moved to another member.", lambda found: found.total_moved)
    expose("group_rebalance_arrivals", "Messages that arrived during rebalances.", lambda found: found.total_arrived)


def _add_commit_log_lag(found: dict[LabelValues, float], group_admin: CommitLogGroupAdmin, group: str) -> None:
    for queue in group_admin.consume_progress(SYSTEM, group):
        found[group, queue.topic] = found.get((group, queue.topic), 0) + queue.lag


def expose_disk(metrics: Metrics, files: Files) -> None:
    def free_bytes() -> list[tuple[LabelValues, float]]:
        try:
            return [((), files.space().free_bytes)]
        except OSError:
            return []  # unknown is not zero

    metrics.gauges_from("disk_free_bytes", "Free space on the disk of the data folder.", (), free_bytes)
