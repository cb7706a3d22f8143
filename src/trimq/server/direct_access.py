"""Topics, queues, groups and messages of a running node without a client, for programs that embed a broker. Knows all
three layouts; every write is returned with its ticket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimq.core.api.commit_log import CommitLogApi
from trimq.core.api.records import ReadPosition
from trimq.core.queues.arguments import priority_of_level
from trimq.core.queues.queue import Queue
from trimq.errors import UnknownStream
from trimq.formats.amqp_content import content
from trimq.formats.amqp_content.property_list import write_properties
from trimq.formats.rocketmq_unit import records as units
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.properties import TAGS, tags_code
from trimq.formats.rocketmq_unit.unit import iterate_units
from trimq.model import SYSTEM, Caller, Layout, Record
from trimq.server.front_ends import record_reader_of
from trimq.server.http.commit_log_topics import CommitLogTopicsApi
from trimq.server.node import Node
from trimq.storage.group_commit.passes import Ticket

_PERSISTENT = 2
_READ_BYTES = 1 << 20
_NO_HOST = pack_host("127.0.0.1", 0)


class DirectAccess:
    """`vhost` of an operation: the AMQP virtual host; the topics of Kafka and RocketMQ are in `/`."""

    def __init__(self, node: Node) -> None:
        self._core = node.core
        self._broker = node.core.broker

    # -- definitions

    def create_topic(self, name: str, streams: int, layout: Layout, settings: Mapping[str, str]) -> tuple[None, Ticket]:
        if layout is Layout.PARTITION_LOG:
            _, ticket = self._broker.topics.create(SYSTEM, name, layout, streams, settings)
        elif layout is Layout.COMMIT_LOG:
            _, ticket = self._commit_log_topics().create(SYSTEM, name, streams, settings)
        else:
            raise ValueError("an AMQP queue is no topic: use create_queue")
        return None, ticket

    def create_queue(
        self, name: str, vhost: str, is_durable: bool, arguments: Mapping[str, Any]
    ) -> tuple[str, Ticket | None]:
        """Returns the name, which the broker chooses if it is empty."""
        made = self._broker.queues.declare_queue(_caller(vhost), name, is_durable, False, False, dict(arguments), None)
        return made.queue.name, made.ticket

    def create_group(self, name: str, is_orderly: bool, retry_limit: int) -> tuple[None, Ticket]:
        return None, self._commit_log_topics().define_group(SYSTEM, name, is_orderly, retry_limit)

    def _commit_log_topics(self) -> CommitLogTopicsApi:
        commit_log = self._commit_log()
        return CommitLogTopicsApi(commit_log.topics, commit_log.groups, lambda name: False)

    def _commit_log(self) -> CommitLogApi:
        service = self._core.commit_log_service
        if service is None:
            raise RuntimeError("this broker has no commit log: all RocketMQ listeners are off")
        return service.commit_log

    # -- messages

    def send(self, name: str, number: int, vhost: str, record: Record) -> tuple[int, Ticket | None]:
        """Returns the offset of the record in its stream."""
        queue = self._broker.queues.find(_caller(vhost), name)
        if queue is not None:
            return self._publish(queue, number, vhost, record)
        if self._is_commit_log_topic(name):
            return self._append_unit(name, number, record)
        topic = self._broker.topics.get(SYSTEM, name, Layout.PARTITION_LOG)
        appended = self._broker.partitions.append_records(SYSTEM, topic, topic.stream(number), [record])
        return appended.base_offset, appended.ticket

    def _publish(self, queue: Queue, number: int, vhost: str, record: Record) -> tuple[int, Ticket | None]:
        """Publishes to the default exchange. A key has no place in an AMQP message."""
        _require_single_stream(queue, number)
        if record.key is not None:
            raise TypeError(f"{queue.name} is an AMQP queue, whose messages have no key")
        offset = queue.numbered_logs()[0].end
        properties = write_properties(delivery_mode=_PERSISTENT, headers=dict(record.headers) or None)
        result = self._broker.exchanges.publish(_caller(vhost), "", queue.name, properties, record.body or b"")
        if result.is_refused:
            raise RuntimeError(f"the queue {queue.name} is full and rejects the message")
        return offset, result.tickets[-1] if result.tickets else None

    def _append_unit(self, name: str, number: int, record: Record) -> tuple[int, Ticket]:
        commit_log = self._commit_log()
        topic = commit_log.topics.get(SYSTEM, name)
        address = self._core.cluster.me.addresses.get("rocketmq_broker")
        host = _NO_HOST if address is None else pack_host("127.0.0.1", address.port)
        tags = dict(record.headers).get(TAGS) or b""
        draft = units.from_record(record, topic.raw_name, number, host)
        code = tags_code(tags.decode())
        appended = commit_log.messages.append(SYSTEM, topic, topic.stream(number), draft, code, host)
        return appended.queue_offset, appended.ticket

    def records(self, name: str, number: int, vhost: str) -> Iterator[Record]:
        """Every record that is stored and readable. Of an AMQP queue, those of the highest priority first, whether
        ready or unacked."""
        queue = self._broker.queues.find(_caller(vhost), name)
        if queue is not None:
            _require_single_stream(queue, number)
            yield from _contents(queue)
        elif self._is_commit_log_topic(name):
            yield from self._units(name, number)
        else:
            topic = self._broker.topics.get(SYSTEM, name, Layout.PARTITION_LOG)
            yield from self._broker.partitions.read(SYSTEM, topic, number, topic.stream(number).start)

    def _is_commit_log_topic(self, name: str) -> bool:
        service = self._core.commit_log_service
        return service is not None and service.commit_log.topics.find(SYSTEM, name) is not None

    def _units(self, name: str, number: int) -> Iterator[Record]:
        topic = record_reader_of(self._core).topic(SYSTEM, name)
        ends = topic.ends(number)
        offset = ends.start
        while offset < ends.end:
            found = topic.read(ReadPosition(number, offset, _READ_BYTES), may_wait=True)
            for part in found.parts:
                yield from map(units.to_record, iterate_units(part))
            offset = found.next_offset


def _contents(queue: Queue) -> Iterator[Record]:
    logs = queue.numbered_logs()
    for level in sorted(logs, key=lambda level: -priority_of_level(level, queue.settings)):
        log = logs[level]
        offset = log.next_live(log.segments[0].base)
        while offset is not None:
            yield content.to_record(log.peek(offset).content, offset)
            offset = log.next_live(offset + 1)


def _require_single_stream(queue: Queue, number: int) -> None:
    if number:
        raise UnknownStream(queue.name, number)


def _caller(vhost: str) -> Caller:
    namespace = "" if vhost == "/" else vhost
    return Caller(SYSTEM.principal, SYSTEM.client_id, SYSTEM.address, SYSTEM.protocol, namespace)
