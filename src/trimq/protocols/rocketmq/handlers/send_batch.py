"""Code 310 for messages that came together, on one connection: those that ask for nothing but to be stored are read,
stored and answered in one step, which takes a third of the time. Whatever is special about one is left to `sending`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from trimq.core.commit_log.stream import SharedStream
from trimq.core.commit_log.topics import WRITABLE, SharedTopic
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.batch_encoder import Lane, Message, checksum
from trimq.formats.rocketmq_unit.unit import BORN_HOST_V6, LONGEST_SENT_PROPERTIES, STORE_HOST_V6, TRANSACTION_BITS
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.message_ttl import limits_all
from trimq.protocols.rocketmq.state.system_topics import FORBIDDEN, RETRY_PREFIX
from trimq.protocols.rocketmq.wire.codes import Code, Request
from trimq.protocols.rocketmq.wire.headers import SendRequest
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_answer
from trimq.protocols.rocketmq.wire.responses import SENT_FIELDS, Asked, answer_run, with_handle

SEND = Request.SEND_MESSAGE_V2

# As clients begin their headers, with and without blanks.
BEGINS = (b'{"code":%d,' % SEND, b'{"code": %d,' % SEND)

# More than these are better shared out among the passes; longer ones gain nothing. With the longest properties, one of
# them fits into the shortest file that a commit log may have.
_MOST_MESSAGES = 64
_LONGEST_BODY = 16 * 1024

# What is known of so many queues is kept for the next turn.
_MOST_WAYS = 256

_V4_BYTES = 8
_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6

decode_request = msgspec.json.Decoder(SendRequest, strict=False).decode


_Way = tuple[SharedTopic, SharedStream, Lane]
"""Where the messages for one queue go."""


class SendRuns:
    """Of one connection: takes messages until there are no more, or one is special; then `send` stores them."""

    __slots__ = (
        "_context",
        "_keys",
        "_longest",
        "_messages",
        "_more_keys",
        "_read_properties",
        "_revision",
        "_sharing",
        "_used",
        "_ways",
        "asked",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sharing = context.sharing
        self._read_properties = context.shared.shapes.read
        self._longest = 0
        self._ways: dict[tuple[str, int], _Way] = {}
        self._revision = -1
        self._begin()

    def _begin(self) -> None:
        self._used: dict[tuple[str, int | SharedStream], _Way] = {}
        """By the topic that messages are for, and their queue; or, of those that are delayed, where they wait."""
        self._messages: list[Message] = []
        self._keys: list[str] = []
        self._more_keys: dict[int, str] = {}
        self.asked: list[Asked] = []
        """What each answer needs, in the order of the messages."""

    def take(self, request: SendRequest, body: memoryview) -> bool:
        """Whether the message is one of those that may be stored together."""
        asked = self.asked
        if not asked:
            self._look_around()
        header = request.extFields
        if (
            request.flag
            or header.batch
            or header.sysFlag & TRANSACTION_BITS
            or request.code != SEND
            or not 0 < len(body) <= self._longest
            or len(asked) >= _MOST_MESSAGES
        ):
            return False
        properties = self._read_properties(header.properties)
        if properties is None:
            return self._take_delayed(request, body)
        unique, written, code, more_keys = properties
        if len(written) > LONGEST_SENT_PROPERTIES:
            return False
        topic, number = place = header.topic, header.queueId
        way = self._ways.get(place) or self._find_way(topic, number)
        if way is None:
            return False
        self._used[place] = way
        if more_keys is not None:
            self._more_keys[len(asked)] = more_keys
        flags = header.sysFlag & ~_HOST_BITS
        facts = header.flag, flags, header.bornTimestamp, header.reconsumeTimes
        self._messages.append((way[2], body, written, *facts, code, checksum(body), self._context.host))
        self._keys.append(unique)
        asked.append((request.opaque, number, unique, topic))
        return True

    def _take_delayed(self, request: SendRequest, body: memoryview) -> bool:
        """Whether it is one that has to wait, and nothing else is special about it."""
        asked, header = self.asked, request.extFields
        topic, number = place = header.topic, header.queueId
        way = self._ways.get(place) or self._find_way(topic, number)
        if way is None:
            return False
        found = self._context.shared.delayed.read(way[0], number, header.properties)
        if found is None or len(found.written) > LONGEST_SENT_PROPERTIES:
            return False
        waiting, unique, written, more_keys = found
        lane = waiting.stream.lane
        self._used[topic, waiting.stream] = way[0], waiting.stream, lane
        if more_keys is not None:
            self._more_keys[len(asked)] = more_keys
        flags = header.sysFlag & ~_HOST_BITS
        facts = header.flag, flags, header.bornTimestamp, header.reconsumeTimes
        self._messages.append((lane, body, written, *facts, waiting.code, checksum(body), self._context.host))
        self._keys.append(unique)
        asked.append((request.opaque, number, with_handle(unique, waiting.handle), topic))
        return True

    def _look_around(self) -> None:
        """What may have changed since the last run."""
        self._longest = min(_LONGEST_BODY, self._sharing.message_bytes)
        if self._revision != self._sharing.revision:
            self._revision = self._sharing.revision
            self._ways.clear()

    def _find_way(self, topic: str, number: int) -> _Way | None:
        """None: something must be looked at, made or refused first."""
        way = None
        with suppress(Refusal):  # `sending` will hear it too, and tell
            way = self._look_for_way(topic, number)
        if way is not None:
            if len(self._ways) >= _MOST_WAYS:
                self._ways.clear()
            self._ways[topic, number] = way
        return way

    def _look_for_way(self, name: str, number: int) -> _Way | None:
        context = self._context
        shared, sharing = context.shared, context.sharing
        if not len(context.host) == len(shared.identity.store_host) == _V4_BYTES or shared.repeats.is_on:
            return None
        if name.startswith(RETRY_PREFIX) or name in FORBIDDEN:
            return None
        topic = sharing.find(context.caller, name)
        if topic is None or topic.creation is not None or not sharing.may_write(context.caller, topic):
            return None
        definition = topic.definition
        if not definition.permissions & WRITABLE or not definition.write_streams:
            return None
        if limits_all(definition):
            return None
        if not 0 <= number < max(definition.read_streams, definition.write_streams):
            return None
        stream = topic.stream(number)
        return topic, stream, stream.lane

    def send(self) -> Reply:
        context, asked, messages = self._context, self.asked, self._messages
        used, keys, more_keys = self._used, self._keys, self._more_keys
        shared = context.shared
        store_host = shared.identity.store_host
        self._begin()
        try:
            placed = self._sharing.append_run(context.caller, used.values(), messages, keys, more_keys, store_host)
        except Refusal as refusal:
            return _counted(Reply.now(self._refuse(asked, refusal), UNORDERED), asked)
        places, store_ms, ticket, refusal_of_rest = placed
        refused: Parts = ()
        if refusal_of_rest is not None:
            refused = self._refuse(asked[len(places) :], refusal_of_rest)
        self._count(asked[: len(places)], messages, store_ms, len(used) == 1)

        def build() -> Parts:
            if ticket.refusal is not None:
                return _refusals(asked, ticket.refusal)
            return [answer_run(asked, places, store_host, Code.SUCCESS), *refused]

        def late() -> Parts:
            return [answer_run(asked, places, store_host, Code.FLUSH_DISK_TIMEOUT), *refused]

        reply = _counted(Reply(UNORDERED, None, build, ticket.number), asked)
        return shared.flushes.watch(ticket, reply, late)

    def _refuse(self, asked: Sequence[Asked], refusal: Refusal) -> Parts:
        for _ in asked:
            self._context.shared.counts.refused_write(type(refusal).__name__)
        return _refusals(asked, refusal)

    def _count(self, asked: Sequence[Asked], messages: Sequence[Message], store_ms: int, is_one_topic: bool) -> None:
        count_sent = self._context.shared.traffic.count_sent
        if is_one_topic and asked:
            count_sent(asked[0][3], store_ms, sum([len(message[1]) for message in messages[: len(asked)]]), len(asked))
            return
        sizes: dict[str, list[int]] = {}
        for (_, _, _, topic), message in zip(asked, messages, strict=False):
            sizes.setdefault(topic, []).append(len(message[1]))
        for topic, each in sizes.items():
            count_sent(topic, store_ms, sum(each), len(each))


def _counted(reply: Reply, asked: Sequence[Asked]) -> Reply:
    reply.count = len(asked)
    return reply


def _refusals(asked: Sequence[Asked], refusal: Refusal) -> Parts:
    return [part for opaque, *_ in asked for part in refused_answer(opaque, refusal, SENT_FIELDS)]
