"""SEND_MESSAGE_V2 (310): fast path of `send` for messages that arrive together on one connection. Decodes, stores and
answers plain messages in one step, in a third of the time. Falls back to `send` for every message that is not plain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, QueueTarget, checksum
from trimq.formats.rocketmq_unit.unit import BORN_HOST_V6, LONGEST_SENT_PROPERTIES, STORE_HOST_V6, TRANSACTION_BITS
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.send_target import TargetCache, queue_count, resolve_plain
from trimq.protocols.rocketmq.state.callers import CommandCallers
from trimq.protocols.rocketmq.wire.codes import RequestCode, ResponseCode
from trimq.protocols.rocketmq.wire.headers import SendCommand, SendV2Header, SignedSendCommand
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_answer
from trimq.protocols.rocketmq.wire.responses import SENT_FIELDS, PendingSend, encode_send_responses, with_recall_handle

SEND_CODE = RequestCode.SEND_MESSAGE_V2

# Starts of the headers that clients send, with and without blanks.
SEND_HEADER_PREFIXES = (b'{"code":%d,' % SEND_CODE, b'{"code": %d,' % SEND_CODE)

# Larger batches are better split among several passes; longer bodies gain nothing. With the longest properties, one
# such message fits into the smallest file that a commit log may have.
_MAX_MESSAGES = 64
_LONGEST_BODY = 16 * 1024

_MAX_TARGETS = 256
_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6

decode_request = msgspec.json.Decoder(SendCommand, strict=False).decode
decode_signed_request = msgspec.json.Decoder(SignedSendCommand, strict=False).decode
_decode_header = msgspec.json.Decoder(SendV2Header, strict=False).decode
_decode_fields = msgspec.json.Decoder(dict[str, str]).decode


_Target = tuple[CommitLogTopic, MessageQueue, QueueTarget]
"""Topic, queue and append target of the messages of one queue."""


class SendBatcher:
    """Batch of one connection: takes messages until a message is not plain or none is left; then `send` stores them."""

    __slots__ = (
        "_context",
        "_keys",
        "_longest",
        "_message_api",
        "_messages",
        "_more_keys",
        "_read_properties",
        "_targets",
        "_topic_api",
        "_used",
        "asked",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topic_api = context.commit_log.topics
        self._message_api = context.commit_log.messages
        self._read_properties = context.services.sending.property_templates.read
        self._longest = 0
        self._targets: TargetCache[tuple[str, int], _Target] = TargetCache(_MAX_TARGETS)
        self._begin()

    def _begin(self) -> None:
        self._used: dict[tuple[str, int | MessageQueue], _Target] = {}
        """By topic and queue of the messages; for delayed messages, by topic and schedule queue."""
        self._messages: list[BatchMessage] = []
        self._keys: list[str] = []
        self._more_keys: dict[int, str] = {}
        self.asked: list[PendingSend] = []
        """Data for each response, in the order of the messages."""

    def take(self, request: SendCommand, body: memoryview) -> bool:
        """Adds a message to the batch. Returns False if `send` must handle it alone."""
        asked = self.asked
        if not asked:
            self._refresh()
        header = request.extFields
        if (
            request.flag
            or header.batch
            or header.sysFlag & TRANSACTION_BITS
            or request.code != SEND_CODE
            or not 0 < len(body) <= self._longest
            or len(asked) >= _MAX_MESSAGES
        ):
            return False
        properties = self._read_properties(header.properties)
        if properties is None:
            return self._take_delayed(request, body)
        unique, written, code, more_keys = properties
        if len(written) > LONGEST_SENT_PROPERTIES:
            return False
        topic, number = place = header.topic, header.queueId
        target = self._targets.get(place) or self._find_target(topic, number)
        if target is None:
            return False
        self._used[place] = target
        if more_keys is not None:
            self._more_keys[len(asked)] = more_keys
        flags = header.sysFlag & ~_HOST_BITS
        facts = header.flag, flags, header.bornTimestamp, header.reconsumeTimes
        self._messages.append((target[2], body, written, *facts, code, checksum(body), self._context.host))
        self._keys.append(unique)
        asked.append((request.opaque, number, unique, topic))
        return True

    def take_signed(self, signed: SignedSendCommand, body: memoryview, callers: CommandCallers) -> bool:
        """Same as `take` for a message that its sender has signed, which becomes the caller. All messages of a batch
        have the same."""
        context = self._context
        try:
            header = _decode_header(signed.extFields)
            caller = callers.signer(_decode_fields(signed.extFields), body, context.caller.client_id)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if caller is None or (self.asked and caller.principal != context.caller.principal):
            return False
        context.caller = caller
        return self.take(SendCommand(signed.code, header, signed.opaque, signed.flag), body)

    def _take_delayed(self, request: SendCommand, body: memoryview) -> bool:
        """Adds a delayed message. Returns False if it is not delayed or is special in another way."""
        asked, header = self.asked, request.extFields
        topic, number = place = header.topic, header.queueId
        target = self._targets.get(place) or self._find_target(topic, number)
        if target is None:
            return False
        found = self._context.services.sending.delayed_templates.read(target[0], number, header.properties)
        if found is None or len(found.written) > LONGEST_SENT_PROPERTIES:
            return False
        waiting, unique, written, more_keys = found
        lane = waiting.stream.lane
        self._used[topic, waiting.stream] = target[0], waiting.stream, lane
        if more_keys is not None:
            self._more_keys[len(asked)] = more_keys
        flags = header.sysFlag & ~_HOST_BITS
        facts = header.flag, flags, header.bornTimestamp, header.reconsumeTimes
        self._messages.append((lane, body, written, *facts, waiting.code, checksum(body), self._context.host))
        self._keys.append(unique)
        asked.append((request.opaque, number, with_recall_handle(unique, waiting.handle), topic))
        return True

    def _refresh(self) -> None:
        """Updates the values that may have changed since the last batch."""
        self._longest = min(_LONGEST_BODY, self._message_api.message_bytes)
        self._targets.refresh(self._topic_api.revision)

    def _find_target(self, topic: str, number: int) -> _Target | None:
        """Returns None if the topic must be created, checked or refused first."""
        found = None
        with suppress(Refusal):  # `send` raises it again and responds to it
            found = resolve_plain(self._context, topic)
        if found is None or not 0 <= number < queue_count(found.definition):
            return None
        queue = found.stream(number)
        target = self._targets[topic, number] = found, queue, queue.lane
        return target

    def send(self) -> Reply:
        context, asked, messages = self._context, self.asked, self._messages
        used, keys, more_keys = self._used, self._keys, self._more_keys
        services = context.services
        store_host = services.identity.store_host
        self._begin()
        try:
            placed = self._message_api.append_batch(
                context.caller, used.values(), messages, keys, more_keys, store_host
            )
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
            return [encode_send_responses(asked, places, store_host, ResponseCode.SUCCESS), *refused]

        def late() -> Parts:
            return [encode_send_responses(asked, places, store_host, ResponseCode.FLUSH_DISK_TIMEOUT), *refused]

        reply = _counted(Reply(UNORDERED, None, build, ticket.number), asked)
        return services.sending.flush_timeouts.watch(ticket, reply, late)

    def _refuse(self, asked: Sequence[PendingSend], refusal: Refusal) -> Parts:
        for _ in asked:
            self._context.services.counts.refused_write(type(refusal).__name__)
        return _refusals(asked, refusal)

    def _count(
        self, asked: Sequence[PendingSend], messages: Sequence[BatchMessage], store_ms: int, is_one_topic: bool
    ) -> None:
        count_sent = self._context.services.traffic.count_sent
        if is_one_topic and asked:
            count_sent(asked[0][3], store_ms, sum([len(message[1]) for message in messages[: len(asked)]]), len(asked))
            return
        sizes: dict[str, list[int]] = {}
        for (_, _, _, topic), message in zip(asked, messages, strict=False):
            sizes.setdefault(topic, []).append(len(message[1]))
        for topic, each in sizes.items():
            count_sent(topic, store_ms, sum(each), len(each))


def _counted(reply: Reply, asked: Sequence[PendingSend]) -> Reply:
    reply.count = len(asked)
    return reply


def _refusals(asked: Sequence[PendingSend], refusal: Refusal) -> Parts:
    return [part for opaque, *_ in asked for part in refused_answer(opaque, refusal, SENT_FIELDS)]
