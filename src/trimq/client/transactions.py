"""Transactional messages: a half message is stored first, and delivered when its producer commits it. Answers the
broker's check-backs about halves that nobody decided."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from types import TracebackType

from trimq.client.consuming.received import ReceivedFields
from trimq.client.errors import ClientError, Refused
from trimq.client.instance import Instance
from trimq.client.link import Link
from trimq.client.messages import MessageQueue, SendStatus, Sent
from trimq.client.sending.pipeline import Serializer
from trimq.formats.rocketmq_unit.dead_letters import PRODUCER_GROUP, TRANSACTIONAL
from trimq.formats.rocketmq_unit.hosts import BadMessageId, read_message_id
from trimq.formats.rocketmq_unit.properties import find_property
from trimq.formats.rocketmq_unit.unit import BadUnit, Unit, read_unit
from trimq.wire.remoting import BadHeader, Command
from trimq.wire.remoting_codes import RequestCode

log = logging.getLogger(__name__)

CHECK_AFTER_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""Property: the broker asks for the first time when the half message is that old."""

_TIMEOUT_MS = 3000
_MOST_CHECKS = 64


class Verdict(Enum):
    """Decision about a half message. UNKNOWN: the broker asks again later."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


class UndecidedHalf(ReceivedFields):
    """A half message about which the broker asks. It has the fields of a received message; `attempt` has no meaning."""

    __slots__ = ()

    def __init__(self, unit: Unit, broker: str, serializer: Serializer | None) -> None:
        ReceivedFields.__init__(self, unit, MessageQueue(unit.topic.decode(), broker, unit.queue_id), serializer)


Check = Callable[[UndecidedHalf], Awaitable[Verdict] | Verdict]


def half_properties(group: str, check_after_ms: int | None) -> tuple[tuple[str, str], ...]:
    """Returns the properties that make a message a half message of this producer group."""
    found: tuple[tuple[str, str], ...] = ((TRANSACTIONAL, "true"), (PRODUCER_GROUP, group))
    if check_after_ms is not None:
        found = (*found, (CHECK_AFTER_S, str(max(-(-check_after_ms // 1000), 1))))
    return found


class Half:
    """A stored half message: `id` is that of the message. Leaving the block commits it, an exception rolls it back."""

    def __init__(self, sent: Sent, topic: str, group: str) -> None:
        self.sent = sent
        self.id = sent.id
        self.topic = topic
        self.verdict = Verdict.COMMIT
        self._group = group

    def leave_undecided(self) -> None:
        """Leaves the decision to the check-back: the broker asks the producer group later."""
        self.verdict = Verdict.UNKNOWN

    def roll_back(self) -> None:
        """Discards the message at the end of the block, without an exception."""
        self.verdict = Verdict.ROLLBACK

    def end_fields(self, verdict: Verdict) -> dict[str, str]:
        try:
            position = read_message_id(self.sent.offset_id).position
        except BadMessageId as error:
            raise ClientError(f"the broker answered a half message with a malformed id: {error}") from None
        return end_fields(self.topic, self._group, self.sent.offset, position, self.id, verdict, is_checked=False)


def end_fields(
    topic: str, group: str, offset: int, position: int, id: str, verdict: Verdict, *, is_checked: bool
) -> dict[str, str]:
    return {
        "topic": topic,
        "producerGroup": group,
        "tranStateTableOffset": str(offset),
        "commitLogOffset": str(position),
        "commitOrRollback": str(verdict.value),
        "fromTransactionCheck": "true" if is_checked else "false",
        "msgId": id,
        "transactionId": id,
    }


class Transaction:
    """Result of `AsyncClient.transaction`, to be used with `async with`."""

    def __init__(self, instance: Callable[[], Instance], begin: Callable[[], Awaitable[Half]]) -> None:
        self._instance = instance
        self._begin = begin
        self._half: Half | None = None

    async def __aenter__(self) -> Half:
        self._half = half = await self._begin()
        if half.sent.status is not SendStatus.OK:
            await self._end(half, Verdict.ROLLBACK)
            raise ClientError(f"half message {half.id} is not safely stored: {half.sent.status.value}")
        return half

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        half = self._half
        assert half is not None
        verdict = half.verdict if error is None else Verdict.ROLLBACK
        if verdict is Verdict.UNKNOWN:
            return
        try:
            await self._end(half, verdict)
        except ClientError as failure:
            if error is not None or (not isinstance(failure, Refused) and self._has_check(half)):
                log.warning("half message %s: %s not confirmed (%s)", half.id, verdict.name.lower(), failure)
                return  # the broker asks
            raise

    def _has_check(self, half: Half) -> bool:
        return self._instance().part(CheckBacks).has(half._group)

    async def _end(self, half: Half, verdict: Verdict) -> None:
        instance = self._instance()
        route = await instance.routes.get(half.topic, _TIMEOUT_MS, may_create=True)
        address = route.master(half.sent.queue.broker)
        if address is None:
            raise ClientError(f"the route of {half.topic} names no master of broker {half.sent.queue.broker}")
        fields = half.end_fields(verdict)
        await instance.links.ask(address, RequestCode.END_TRANSACTION, fields, timeout_ms=_TIMEOUT_MS)


class CheckBacks:
    """Check functions of the producer groups of one instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._checks: dict[str, tuple[Check, Serializer | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        instance.handlers[RequestCode.CHECK_TRANSACTION_STATE, ""] = self._asked

    def has(self, group: str) -> bool:
        return group in self._checks

    def add(self, group: str, check: Check, serializer: Serializer | None) -> None:
        self._checks[group] = check, serializer

    def remove(self, group: str, check: Check) -> None:
        if self.has(group) and self._checks[group][0] is check:
            del self._checks[group]

    def _asked(self, link: Link, command: Command) -> None:
        """Handles the broker's question. A group without a check function leaves it to other processes of the group,
        and so does one that has too many questions under way."""
        try:
            unit = read_unit(command.body)
            fields = command.fields
            offset, position = int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"])
        except (BadUnit, BadHeader, KeyError, ValueError) as error:
            log.warning("%s: malformed check-back ignored (%s)", link.address, error)
            return
        group = find_property(unit.properties, PRODUCER_GROUP)
        known = None if group is None else self._checks.get(group)
        if group is None or known is None or len(self._tasks) >= _MOST_CHECKS:
            return
        check, serializer = known
        half = UndecidedHalf(unit, fields.get("bname", ""), serializer)
        task = asyncio.ensure_future(self._answer(link, group, check, half, offset, position))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, link: Link, group: str, check: Check, half: UndecidedHalf, offset: int, position: int
    ) -> None:
        try:
            found = check(half)
            verdict = await found if inspect.isawaitable(found) else found
            if not isinstance(verdict, Verdict):
                raise TypeError(f"a check returns a Verdict, not {verdict!r:.60}")
        except Exception:
            log.exception("half message %s: the check function failed, the broker will ask again", half.id)
            verdict = Verdict.UNKNOWN
        if not link.is_closed:
            fields = end_fields(half.topic, group, offset, position, half.id, verdict, is_checked=True)
            link.notify(RequestCode.END_TRANSACTION, self._instance.links.signed(fields, b""))

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
