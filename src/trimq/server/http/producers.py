"""Producers in JSON under /api/producers: connected producers of RocketMQ, and the idempotent and transactional
producers of Kafka that partitions remember. AMQP publishers are connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trimq.core.api.broker import Broker
from trimq.core.api.commit_log_group_admin import CommitLogGroupAdmin
from trimq.core.partitions.stream import Stream
from trimq.model import Caller, Layout
from trimq.server.http.responses import DeferredResponse, HttpResponse, not_allowed
from trimq.server.http.slices import SliceRunner, list_response


class ProducersApi:
    """`group_admin`: None if RocketMQ is off."""

    def __init__(self, broker: Broker, group_admin: CommitLogGroupAdmin | None, slices: SliceRunner) -> None:
        self._broker = broker
        self._group_admin = group_admin
        self._slices = slices

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        if list(words) != ["api", "producers"]:
            return None
        if method != "GET":
            return not_allowed(method, "GET, HEAD")
        self._broker.require_administrator(caller)
        return self._slices.respond("GET /api/producers", list_response("producers", self._list(caller)))

    def _list(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        for producer in () if self._group_admin is None else self._group_admin.producers(caller):
            yield {"protocol": "rocketmq"} | producer._asdict()
        transactional_ids = {found.producer_id: name for name, found in self._broker.transactions.all(caller)}
        for topic in self._broker.topics.iterate(caller):
            if topic is None or topic.layout is not Layout.PARTITION_LOG:
                yield None
                continue
            for stream in list(topic.streams):
                yield None
                yield from _remembered(topic.name.name, stream, transactional_ids)


def _remembered(topic: str, stream: Stream, transactional_ids: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    for id, state in stream.log.producers.items():
        yield {
            "protocol": "kafka",
            "producer_id": id,
            "epoch": state.epoch,
            "transactional_id": transactional_ids.get(id),
            "topic": topic,
            "stream": stream.id.number,
            "last_ms": state.last_timestamp_ms if state.last_timestamp_ms >= 0 else None,
            "open_from": state.open_from if state.open_from >= 0 else None,
        }
