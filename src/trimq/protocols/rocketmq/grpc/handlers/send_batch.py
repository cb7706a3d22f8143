"""Fast path of `send` for messages that arrive together on one connection. Decodes, stores and answers plain messages
in one step. Falls back to `send` for every message that is not plain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, QueueTarget, checksum
from trimq.formats.rocketmq_unit.dead_letters import PRODUCER_GROUP
from trimq.formats.rocketmq_unit.properties import KEYS, TAGS, UNIQUE_KEY, tags_code, write_properties
from trimq.formats.rocketmq_unit.unit import COMPRESSED, LONGEST_SENT_PROPERTIES
from trimq.protocols.contract import CallInfo, Parts, Reply
from trimq.protocols.rocketmq.grpc.clients.call import Call, refusal_status
from trimq.protocols.rocketmq.grpc.clients.message_view import BORN_HOST, BORN_MS, MESSAGE_GROUP, TRACE_CONTEXT
from trimq.protocols.rocketmq.grpc.clients.name_rules import check_topic
from trimq.protocols.rocketmq.grpc.clients.text_rules import is_blank
from trimq.protocols.rocketmq.grpc.handlers.route import accepted_type
from trimq.protocols.rocketmq.grpc.handlers.send import (
    LATEST_MS,
    MAX_PROPERTY_BYTES,
    add_labels,
    add_message_group,
    check_digest,
    flush_timeout_response,
    queue_of_group,
    user_properties,
)
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Encoding, MessageType
from trimq.protocols.rocketmq.grpc.wire.responses import LONGEST_TEXT, encode_send_responses
from trimq.protocols.rocketmq.handlers.send import SPECIAL_PROPERTIES, added_properties
from trimq.protocols.rocketmq.handlers.send_target import TargetCache, resolve_plain
from trimq.protocols.rocketmq.wire.replies import UNORDERED

# Larger batches are better split among several passes; longer bodies gain nothing. Without sync, the first messages are
# answered while the next are processed; with sync, each part would wait for a sync of its own, so the limit is higher.
_MAX_MESSAGES = 32
_MAX_SYNCED_MESSAGES = 64
_LONGEST_BODY = 16 * 1024
_LONGEST_REQUEST = 2 * _LONGEST_BODY

_MAX_TARGETS = 64
_TRANSACTION, _GZIP = int(MessageType.TRANSACTION), int(Encoding.GZIP)

read_request = wire.SendMessageRequest.FromString


class _TopicTarget(NamedTuple):
    """Target of the messages of one topic: accepted message type and writable queues. `fixed_properties` is part of the
    properties of every message."""

    kind: MessageType
    queues: Sequence[tuple[CommitLogTopic, MessageQueue, QueueTarget]]
    fixed_properties: str


class GrpcSendBatcher:
    """Batch of one connection: takes messages until a message is not plain or none is left; then `finish` stores them.
    `call_of` returns the caller of a call; `is_synced`: responses wait for the disk."""

    def __init__(self, call_of: Callable[[CallInfo], Call], is_synced: bool) -> None:
        self._call_of = call_of
        self.limit = _MAX_SYNCED_MESSAGES if is_synced else _MAX_MESSAGES
        self._targets: TargetCache[str, _TopicTarget] = TargetCache(_MAX_TARGETS)
        self._call: Call | None = None
        self._address = ""
        self._begin()

    def _begin(self) -> None:
        self._used: dict[MessageQueue, tuple[CommitLogTopic, MessageQueue, QueueTarget]] = {}
        self._messages: list[BatchMessage] = []
        self._topics: list[str] = []
        self._ids: list[str] = []
        self._more_keys: dict[int, str] = {}

    def take(self, call_info: CallInfo, raw: bytes) -> bool:
        """Adds a message to the batch. Returns False if `send` must handle it alone."""
        call = self._call_of(call_info)
        if call.login_refusal is not None:
            return False
        if not self._ids:
            self._start(call)
        elif call is not self._call and (self._call is None or call.caller != self._call.caller):
            return False
        if not call.client_id or call.client_id.isspace() or len(raw) > _LONGEST_REQUEST:
            return False
        try:
            messages = read_request(raw).messages
            is_short = len(messages) == 1 and len(raw) - len(messages[0].body) <= MAX_PROPERTY_BYTES
            return is_short and self._take(call, messages[0])
        except (DecodeError, Refusal):
            return False  # `send` raises it again and responds to it

    def _start(self, call: Call) -> None:
        services = call.services
        self._call = call
        self._address = call.caller.address
        self._longest = min(_LONGEST_BODY, services.commit_log.messages.message_bytes, services.settings.message_bytes)
        self._now_ms = services.clock.message.now_ms()
        self._added = added_properties(services.identity.cluster_name)
        self._targets.refresh(services.commit_log.topics.revision)

    def _take(self, call: Call, message: Any) -> bool:
        system, body, topic = message.system_properties, message.body, message.topic.name
        id = system.message_id
        if (
            not 0 < len(body) <= self._longest
            or not _is_plain(id)
            or system.message_type == _TRANSACTION
            or system.HasField("delivery_timestamp")
            or system.HasField("lite_topic")
            or system.HasField("priority")
        ):
            return False
        target = self._targets.get(topic) or self._find_target(call, topic)
        if target is None:
            return False
        if system.HasField("body_digest"):
            check_digest(system.body_digest, body)
        labels: dict[str, str] = {}
        add_labels(labels, system)
        if system.message_group:
            add_message_group(labels, system)
        born_ms = self._born_ms(system)
        properties = self._properties(message, system, target, id, born_ms, labels)
        group = labels.get(MESSAGE_GROUP)
        kind = MessageType.NORMAL if group is None else MessageType.FIFO
        if properties is None or kind is not target.kind or born_ms > LATEST_MS:
            return False
        queues = target.queues
        number = int(call.services.rng.random() * len(queues)) if group is None else queue_of_group(group, len(queues))
        queue = queues[number]
        flags = COMPRESSED if system.body_encoding == _GZIP else 0
        self._used[queue[1]] = queue
        code = tags_code(labels[TAGS]) if TAGS in labels else 0
        if KEYS in labels:
            self._more_keys[len(self._ids)] = labels[KEYS]
        self._messages.append((queue[2], body, properties, 0, flags, born_ms, 0, code, checksum(body), call.host))
        self._topics.append(topic)
        self._ids.append(id)
        return True

    def _born_ms(self, system: Any) -> int:
        born = system.born_timestamp
        return max(born.seconds * 1000 + born.nanos // 1_000_000, 0) or self._now_ms

    def _properties(
        self, message: Any, system: Any, target: _TopicTarget, id: str, born_ms: int, labels: dict[str, str]
    ) -> bytes | None:
        """Encodes the properties as `send` stores them. Returns None if `send` must check them."""
        host, trace = system.born_host, system.trace_context
        if not host or is_blank(host):
            host = self._address
        if not (host.isprintable() and trace.isprintable()):
            return None
        text = (
            f"{UNIQUE_KEY}\x01{id}\x02{target.fixed_properties}\x01{system.delivery_attempt}"
            f"\x02{BORN_MS}\x01{born_ms}\x02"
        )
        text += f"{BORN_HOST}\x01{host}\x02"
        if trace:
            text += f"{TRACE_CONTEXT}\x01{trace}\x02"
        for name, value in labels.items():
            text += f"{name}\x01{value}\x02"
        written = f"{text}{self._added}".encode()
        given = user_properties(message)
        if given:
            if MESSAGE_GROUP in given or not SPECIAL_PROPERTIES.isdisjoint(given):
                return None
            written = write_properties(given) + written
        return written if len(written) <= LONGEST_SENT_PROPERTIES else None

    def _find_target(self, call: Call, name: str) -> _TopicTarget | None:
        """Returns None if the topic must be checked or refused first."""
        check_topic(call, name)
        topic = resolve_plain(call, name)
        if topic is None:
            return None
        definition = topic.definition
        streams = [topic.stream(number) for number in range(definition.write_streams)]
        queues = [(topic, stream, stream.lane) for stream in streams]
        target = _TopicTarget(accepted_type(definition), queues, f"{PRODUCER_GROUP}\x01{name}\x02RECONSUME_TIME")
        self._targets[name] = target
        return target

    def finish(self) -> Reply:
        call, ids, topics, messages = self._call, self._ids, self._topics, self._messages
        assert call is not None
        services = call.services
        ways, more_keys = self._used.values(), self._more_keys
        self._begin()
        try:
            placed = call.commit_log.messages.append_batch(
                call.caller, ways, messages, ids, more_keys, services.identity.store_host
            )
        except Refusal as refusal:
            return Reply.now(_refuse(call, len(ids), refusal), UNORDERED)
        ticket, offsets = placed.ticket, [offset for offset, _ in placed.places]
        rest: Parts = () if placed.refusal is None else _refuse(call, len(ids) - len(offsets), placed.refusal)
        _count(call, topics, [len(message[1]) for message in messages[: len(offsets)]], placed.store_ms)

        def build() -> Parts:
            if ticket.refusal is not None:
                return _refusals(len(ids), ticket.refusal)
            return [*encode_send_responses(ids, offsets), *rest]

        def build_late() -> Parts:
            return [*flush_timeout_response(1)] * len(offsets) + [*rest]

        return services.sending.flush_timeouts.watch(
            ticket, Reply.when_durable(ticket.number, build, UNORDERED), build_late
        )


def _is_plain(id: str) -> bool:
    """Returns whether the id needs no escaping in properties and responses."""
    return 0 < len(id) <= LONGEST_TEXT and id.isascii() and (id.isalnum() or (id.isprintable() and not id.isspace()))


def _refuse(call: Call, count: int, refusal: Refusal) -> Parts:
    for _ in range(count):
        call.services.counts.refused_write(type(refusal).__name__)
    return _refusals(count, refusal)


def _refusals(count: int, refusal: Refusal) -> Parts:
    return [wire.SendMessageResponse(status=refusal_status(refusal)).SerializeToString()] * count


def _count(call: Call, topics: Iterable[str], sizes: Sequence[int], store_ms: int) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, size in zip(topics, sizes, strict=False):
        by_topic.setdefault(topic, []).append(size)
    for topic, each in by_topic.items():
        call.services.traffic.count_sent(topic, store_ms, sum(each), len(each))
