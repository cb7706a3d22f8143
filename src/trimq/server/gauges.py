"""Gauges of a running broker: connections, passes, topics, lag and disk space, computed at each scrape."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.api.commit_log_groups import CommitLogGroupAdmin
from trimq.core.api.group_lag import GroupLagApi
from trimq.core.api.groups import GroupApi
from trimq.core.partitions.topics import Topics
from trimq.metrics import LabelValues, Metrics
from trimq.model import SYSTEM
from trimq.server.connection.listener import AnyListener
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import Files


def expose_listeners(metrics: Metrics, listeners: Mapping[str, AnyListener]) -> None:
    def connections() -> list[tuple[LabelValues, float]]:
        return [((name,), listener.connections) for name, listener in listeners.items()]

    metrics.gauges_from("connections", "Open connections.", ("listener",), connections)


def expose_passes(metrics: Metrics, passes: Passes) -> None:
    metrics.gauge_from("passes_written", "Number of the last pass that was written.", lambda: passes.written)
    metrics.gauge_from("passes_durable", "Number of the last pass that is durable.", lambda: passes.durable)


def expose_topics(metrics: Metrics, topics: Topics) -> None:
    def streams() -> int:
        return sum(len(topic.streams) for topic in topics)

    def stored_bytes() -> int:
        return sum(stream.log.size_bytes for topic in topics for stream in topic.streams)

    metrics.gauge_from("topics", "Topics.", lambda: len(topics))
    metrics.gauge_from("streams", "Streams (Kafka: partitions) of all topics.", streams)
    metrics.gauge_from("stored_bytes", "Bytes of stored messages.", stored_bytes)


def expose_lag(
    metrics: Metrics, group_api: GroupApi, lag_api: GroupLagApi, group_admin: CommitLogGroupAdmin | None
) -> None:
    def lag() -> list[tuple[LabelValues, float]]:
        found: dict[LabelValues, float] = {}
        for group in group_api.groups(SYSTEM):
            for at in lag_api.streams(SYSTEM, group):
                found[group.name, at.topic] = found.get((group.name, at.topic), 0) + at.lag
        shared = {} if group_admin is None else _commit_log_lag(group_admin)
        return list((found | shared).items())

    metrics.gauges_from("group_lag", "Messages that a group has not consumed yet.", ("group", "topic"), lag)


def _commit_log_lag(group_admin: CommitLogGroupAdmin) -> dict[LabelValues, float]:
    found: dict[LabelValues, float] = {}
    for group in group_admin.groups(SYSTEM):
        for at in group_admin.consume_progress(SYSTEM, group.name):
            found[group.name, at.topic] = found.get((group.name, at.topic), 0) + at.lag
    return found


def expose_disk(metrics: Metrics, files: Files) -> None:
    def free_bytes() -> list[tuple[LabelValues, float]]:
        try:
            return [((), files.space().free_bytes)]
        except OSError:
            return []  # unknown is not zero

    metrics.gauges_from("disk_free_bytes", "Free space on the disk of the data folder.", (), free_bytes)
