"""Codes 11 and 361: messages of one queue from an offset on.

What matches is answered at once; where there is nothing yet, a client that allows it waits until something it wants
arrives or its time is over. Every answer tells the queue's ends."""

from __future__ import annotations

from functools import partial

from trimq.clock import Timer
from trimq.core.commit_log.stream import Fetched, Interest, SharedStream
from trimq.core.commit_log.topics import READABLE, SharedTopic
from trimq.core.scheduling.waiters import Watch
from trimq.errors import Refusal, UnknownTopic
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.clients.registry import BROADCASTING
from trimq.protocols.rocketmq.clients.subscriptions import read_interest
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.forbidden_topics import refuse_forbidden
from trimq.protocols.rocketmq.waiting.cold_reads import MOST_WARMINGS, answer_warm
from trimq.protocols.rocketmq.wire.codes import Code, Failure
from trimq.protocols.rocketmq.wire.headers import Pull
from trimq.protocols.rocketmq.wire.remoting import Command
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts
from trimq.protocols.rocketmq.wire.responses import answer_pulled

COMMITS, SUSPENDS, SUBSCRIBES = 1, 2, 4  # bits of the system flag

_MOST_MESSAGES = 32
_MOST_BYTES = 256 * 1024
_LEAST_WINDOW = 800  # messages that are looked at for one answer
_LEGAL_GROUP = frozenset("%|-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def pull(context: Context, command: Command) -> Reply:
    return _pull(context, command, command.read(Pull), is_new=True)


def _pull(context: Context, command: Command, header: Pull, is_new: bool, warmings: int = 0) -> Reply:
    """One that has waited looks at everything again, but neither commits nor waits another time. `warmings`: how often
    it has waited for the disk."""
    topic, stream = _find_stream(context, header)
    interest = _wanted(context, header)
    moved = context.shared.resets.take(header.consumerGroup, topic.id, header.queueId)
    if moved is not None and moved != header.queueOffset:
        found = Fetched([], 0, moved)
        parts = _answer(context, command, header, stream, Code.PULL_OFFSET_MOVED, "OFFSET_RESET", found)
        return Reply.now(parts, UNORDERED)
    if is_new and header.sysFlag & COMMITS and header.commitOffset >= 0:
        _commit(context, header, topic)
    if warmings < MOST_WARMINGS and (cold := stream.find_cold(header.queueOffset)) is not None:
        again = partial(_pull, context, command, header, False, warmings + 1)
        return answer_warm(context.sharing, cold, again, partial(refused_parts, command))
    code, remark, found = _look(stream, header, interest)
    waits = is_new and header.sysFlag & SUSPENDS and header.suspendTimeoutMillis > 0
    if code == Code.PULL_NOT_FOUND and waits:
        return _Held(context, command, header, stream, interest).reply
    return Reply.now(_answer(context, command, header, stream, code, remark, found), UNORDERED)


def _find_stream(context: Context, header: Pull) -> tuple[SharedTopic, SharedStream]:
    if not header.consumerGroup or not _LEGAL_GROUP.issuperset(header.consumerGroup):
        reason = f"subscription group [{header.consumerGroup[:200]}] does not exist"
        raise Failure(Code.SUBSCRIPTION_GROUP_NOT_EXIST, reason)
    group = context.known_group(header.consumerGroup)
    if not group.may_consume:
        reason = f"subscription group no permission, {group.name}"
        raise Failure(Code.NO_PERMISSION, reason, {"forbiddenType": "2"})
    refuse_forbidden(group, header.topic)
    members = context.shared.clients.group(header.consumerGroup)
    if members is not None and members.message_model == BROADCASTING and not group.may_broadcast:
        reason = f"the consumer group[{group.name}] can not consume by broadcast way"
        raise Failure(Code.NO_PERMISSION, reason, {"forbiddenType": "4"})
    try:
        topic = context.sharing.topic(context.caller, header.topic)
    except UnknownTopic:
        raise Failure(Code.TOPIC_NOT_EXIST, f"topic[{header.topic[:200]}] not exist, apply first please!") from None
    definition = topic.definition
    if not definition.permissions & READABLE:
        reason = f"the topic[{header.topic}] pulling message is forbidden"
        raise Failure(Code.NO_PERMISSION, reason, {"forbiddenType": "3"})
    if not 0 <= header.queueId < definition.read_streams:
        reason = f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] has {definition.read_streams} to read"
        raise Failure(Code.INVALID_PARAMETER, reason)
    return topic, context.sharing.readable(context.caller, topic, header.queueId)


def _wanted(context: Context, header: Pull) -> Interest | None:
    """By the request itself, or by what the group said in its last heartbeat."""
    if header.sysFlag & SUBSCRIBES:
        return read_interest(header.subscription, header.expressionType, context.filter_limits)
    group = context.shared.clients.group(header.consumerGroup)
    if group is None:
        raise Failure(Code.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
    subscription = group.subscriptions.get(header.topic)
    if subscription is None:
        raise Failure(Code.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
    if subscription.version < header.subVersion:
        raise Failure(Code.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    return subscription.interest(context.filter_limits)


def _commit(context: Context, header: Pull, topic: SharedTopic) -> None:
    known = context.sharing.cursor(context.caller, header.consumerGroup, topic, header.queueId)
    if known is None or known.offset != header.commitOffset:
        context.sharing.commit(context.caller, header.consumerGroup, topic, header.queueId, header.commitOffset)


def _look(stream: SharedStream, header: Pull, interest: Interest | None) -> tuple[Code, str, Fetched]:
    """What there is now: the code, its name at the genuine broker, and the messages with where to go on."""
    offset, start, end = header.queueOffset, stream.start, stream.readable_end
    if end == 0:
        code = Code.PULL_NOT_FOUND if offset == 0 else Code.PULL_OFFSET_MOVED
        return code, "NO_MESSAGE_IN_QUEUE", Fetched([], 0, 0)
    if offset < start:
        return Code.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", Fetched([], 0, start)
    if offset == end:
        return Code.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", Fetched([], 0, end)
    if offset > end:
        return Code.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", Fetched([], 0, end)
    count = min(max(header.maxMsgNums, 1), _MOST_MESSAGES)
    found = stream.read(offset, count, _MOST_BYTES, max(_LEAST_WINDOW, count), interest)
    if found.messages:
        return Code.SUCCESS, "FOUND", found
    return Code.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", found


def _answer(
    context: Context, command: Command, header: Pull, stream: SharedStream, code: Code, remark: str, found: Fetched
) -> Parts:
    end = stream.readable_end
    if found.messages:
        now_ms, size = context.shared.clock.message.now_ms(), sum(map(len, found.parts))
        context.shared.traffic.count_read(header.topic, header.consumerGroup, now_ms, found.messages, size)
    return answer_pulled(command.opaque, code, remark, found.next_offset, stream.start, end, found.parts)


class _Held:
    """A pull that waits: for a message that it wants, for its time to be over, or for its connection to end."""

    def __init__(
        self, context: Context, command: Command, header: Pull, stream: SharedStream, interest: Interest | None
    ) -> None:
        self._context = context
        self._counts = context.shared.counts
        self._command = command
        self._header = header
        self._stream = stream
        self._interest = interest
        self._seen = header.queueOffset
        liveness = context.shared.clock.liveness
        self._watch: Watch | None = stream.watch(self._grown)
        self._timer: Timer = liveness.call_at(liveness.now_ms() + header.suspendTimeoutMillis, self._finish)
        self._counts.waiting_reads.value += 1
        self._counts.held_reads.value += 1
        self.reply = Reply.later(UNORDERED, abandon=self._end, hurry=self._finish, turn_away=self._finish)

    def _grown(self) -> None:
        """Only what the client wants is worth an answer."""
        self._watch = None
        if self._is_worth_it():
            self._finish()
        else:
            self._seen = self._stream.readable_end
            self._watch = self._stream.watch(self._grown)

    def _is_worth_it(self) -> bool:
        stream, interest = self._stream, self._interest
        try:
            return interest is None or stream.is_gone or stream.has_wanted(self._seen, interest)
        except Exception:
            return True  # it fails again, where it is heard of

    def _finish(self) -> None:
        self._end()
        try:
            self.reply.become(_pull(self._context, self._command, self._header, is_new=False))
        except Refusal as refusal:
            self.reply.resolve(refused_parts(self._command, refusal))
        except Exception as error:
            self.reply.fail(error)

    def _end(self) -> None:
        self._timer.cancel()
        self._counts.waiting_reads.value -= 1
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
