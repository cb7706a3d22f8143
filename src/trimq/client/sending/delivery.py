"""One message, or one batch, on its way to a broker: chooses the queue, sends, and tries again within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trimq.client.errors import (
    Attempt,
    BadMessage,
    ClientError,
    Closed,
    ConnectionLost,
    Refused,
    SendFailed,
    SendTimedOut,
    TimedOut,
    Unsupported,
)
from trimq.client.link import Link, Outcome, SentAnswer, SentFields
from trimq.client.messages import Message, MessageQueue, SendStatus, Sent
from trimq.client.sending.choosing import Choice
from trimq.client.sending.encoding import encode_send, send_fields
from trimq.client.timing import pause
from trimq.wire.remoting import BadHeader, Command, encode_request
from trimq.wire.remoting_codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from trimq.client.sending.sender import Sender

STATUSES = {
    0: SendStatus.OK,
    10: SendStatus.FLUSH_DISK_TIMEOUT,
    11: SendStatus.SLAVE_NOT_AVAILABLE,
    12: SendStatus.FLUSH_SLAVE_TIMEOUT,
}

RETRIED_CODES = frozenset(
    (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    )
)
_BUSY_CODES = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE))
_OUTDATED_ROUTE_CODES = frozenset((ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION))
_BUSY_WAIT_MS = 20

BATCH_CODE = RequestCode.SEND_BATCH_MESSAGE
V2_CODE = RequestCode.SEND_MESSAGE_V2


class DroppedBusy(ClientError):
    """The broker was busy, and the message has too low a priority to wait."""


class SendPlan:
    """Plan of the tries of a message: their number, whether on the same broker, and the choice of the queue."""

    __slots__ = (
        "choice",
        "is_ordered",
        "is_same_broker",
        "may_batch",
        "must_be_stored",
        "needs",
        "retries",
        "sys_flag",
    )

    def __init__(
        self,
        choice: Choice,
        retries: int,
        is_same_broker: bool = False,
        must_be_stored: bool = False,
        is_ordered: bool = False,
        sys_flag: int = 0,
        needs: tuple[str, ...] = (),
        may_batch: bool = False,
    ) -> None:
        self.choice = choice
        self.retries = retries
        self.is_same_broker = is_same_broker
        self.must_be_stored = must_be_stored
        self.is_ordered = is_ordered
        self.sys_flag = sys_flag
        self.needs = needs
        """Features that the broker must have."""
        self.may_batch = may_batch


class Delivery:
    """`done` is called once, with a `Sent` or the reason why there is none."""

    __slots__ = (
        "_attempts", "_avoided", "_began_ms", "_deadline_ms", "_done", "_is_batch", "_plan", "_properties", "_queue",
        "_sender", "_tries_left", "body", "id", "message", "topic",
    )  # fmt: skip

    def __init__(
        self,
        sender: Sender,
        topic: str,
        message: Message,
        body: bytes,
        id: str,
        properties: str,
        plan: SendPlan,
        deadline_ms: int,
        done: Callable[[Sent | Exception], object],
        is_batch: bool = False,
        queue: MessageQueue | None = None,
    ) -> None:
        self._sender = sender
        self.topic = topic
        self.message = message
        self.body = body
        self.id = id
        self._properties = properties
        self._plan = plan
        self._deadline_ms = deadline_ms
        self._done: Callable[[Sent | Exception], object] | None = done
        self._is_batch = is_batch
        self._queue = queue
        self._avoided: MessageQueue | None = None
        self._tries_left = plan.retries + 1
        self._attempts: Sequence[Attempt] = ()
        self._began_ms = 0

    # -- one try

    def start(self) -> None:
        """Sends now if the route is known and the connection open; otherwise a task does so when they are."""
        sender = self._sender
        route = sender.routes.find(self.topic)
        if route is None or not route.writable:
            sender.spawn(self._prepare())
            return
        queue = self._queue
        if queue is None:
            try:
                queue = self._queue = self._plan.choice.choose(
                    route.writable, self.message, sender.health, self._avoided
                )
            except BadMessage as error:
                self._end(error)
                return
        if self._plan.is_ordered and not sender.lanes.may_pass(queue, self):
            return
        address = route.master(queue.broker)
        link = None if address is None else sender.links.find(address)
        if address is None or link is None or (self._plan.needs and not sender.has(address, self._plan.needs)):
            sender.spawn(self._prepare())
        else:
            self._send(link)

    async def _prepare(self) -> None:
        """Gets route and connection, then sends."""
        sender = self._sender
        try:
            route = await sender.routes.get(self.topic, self._left_ms(), may_create=True)
            if not route.writable:
                route = await sender.routes.refresh(self.topic, self._left_ms(), may_create=True)
            if not route.writable:
                raise Refused(ResponseCode.NO_PERMISSION, f"topic {self.topic} has no writable queue", "the route")
            queue = self._queue
            if queue is None or queue not in route.writable:
                queue = self._plan.choice.choose(route.writable, self.message, sender.health, self._avoided)
                self._queue = queue
            if self._plan.is_ordered and not sender.lanes.may_pass(queue, self):
                return
            address = route.master(queue.broker)
            if address is None:
                raise ConnectionLost(f"the route of {self.topic} names no master of broker {queue.broker}")
            self._began_ms = sender.timeline.now_ms()
            link = await sender.connect(address, self._try_ms())
            for need in self._plan.needs:
                await sender.instance.peers.require(address, need, self._try_ms())
        except (BadMessage, Unsupported) as error:
            self._end(error)
        except ClientError as error:
            self._failed(error)
        else:
            self._send(link)

    def _left_ms(self) -> int:
        return max(self._deadline_ms - self._sender.timeline.now_ms(), 0)

    def _try_ms(self) -> int:
        """Time of one try: an equal share of what is left."""
        return max(self._left_ms() // self._tries_left, 1)

    def _send(self, link: Link) -> None:
        sender, queue, plan = self._sender, self._queue, self._plan
        assert queue is not None
        self._began_ms = now_ms = sender.timeline.now_ms()
        due_ms = now_ms + (self._deadline_ms - now_ms) // self._tries_left
        opaque = link.next_opaque()
        born_ms = sender.wall.now_ms()
        size = len(self.body)
        if sender.links.credentials is None:
            head = encode_send(
                sender.group, self.topic, queue.id, self._properties, size, opaque, born_ms,
                sys_flag=plan.sys_flag, is_batch=self._is_batch,
            )  # fmt: skip
        else:
            fields = send_fields(
                sender.group, self.topic, queue.id, self._properties, born_ms,
                sys_flag=plan.sys_flag, is_batch=self._is_batch,
            )  # fmt: skip
            signed = sender.links.signed(fields, self.body)
            head = encode_request(BATCH_CODE if self._is_batch else V2_CODE, opaque, 0, signed, "PYTHON", size)
        link.send(opaque, head, self.body, due_ms, self._answered)

    # -- the outcome

    def _answered(self, outcome: Outcome) -> None:
        sender, queue = self._sender, self._queue
        assert queue is not None
        if isinstance(outcome, Exception):
            self._failed(outcome)
            return
        now_ms = sender.timeline.now_ms()
        sender.health.record(queue.broker, now_ms - self._began_ms, now_ms)
        if isinstance(outcome, SentAnswer):
            self._end(self._sent(outcome.extFields, SendStatus.OK))
            return
        status = STATUSES.get(outcome.code)
        if status is None:
            self._refused(outcome)
        elif status is not SendStatus.OK and self._plan.must_be_stored and self._may_retry():
            self._retry(Refused(outcome.code, status.value, queue.broker))
        else:
            try:
                self._end(self._sent(outcome.read(SentFields), status))
            except BadHeader as error:
                self._end(ClientError(f"malformed response to a send: {error}"))

    def _sent(self, fields: SentFields, status: SendStatus) -> Sent:
        queue = self._queue
        assert queue is not None
        if fields.queueId != queue.id:
            queue = queue._replace(id=fields.queueId)
        return Sent(self.id, queue, fields.queueOffset, status, fields.msgId, fields.recallHandle)

    def _refused(self, answer: Command) -> None:
        queue = self._queue
        assert queue is not None
        route = self._sender.routes.find(self.topic)
        address = route.master(queue.broker) if route is not None else None
        error = Refused(answer.code, answer.remark, address or queue.broker)
        if answer.code in _OUTDATED_ROUTE_CODES:
            self._sender.routes.doubt(self.topic)
        sender, is_busy = self._sender, answer.code in _BUSY_CODES
        if is_busy and sender.drops_below is not None and self.message.priority < sender.drops_below:
            self._end(DroppedBusy(str(error)))
        elif is_busy and not sender.waits_when_busy:
            self._end(error)
        elif is_busy and self._left_ms() > _BUSY_WAIT_MS and not self._plan.is_ordered:
            # A busy broker costs time, not tries.
            self._note(error)
            self._sender.spawn(self._wait_for_busy())
        elif answer.code in RETRIED_CODES and self._may_retry():
            self._retry(error)
        else:
            self._end(error)

    async def _wait_for_busy(self) -> None:
        count = len(self._attempts)
        await pause(self._sender.timeline, min(_BUSY_WAIT_MS * 2 ** min(count, 6), max(self._left_ms() - 1, 0)))
        self._choose_anew()
        self.start()

    def _failed(self, error: Exception) -> None:
        """The try ended without a response."""
        sender = self._sender
        if self._queue is not None:
            sender.health.failed(self._queue.broker)
            sender.routes.doubt(self.topic)
        if not isinstance(error, Closed) and self._may_retry():
            self._retry(error)
        else:
            self._note(error)
            self._end(self._failure(error))

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, Closed) or self._queue is None:
            return error
        kind = SendTimedOut if isinstance(error, TimedOut) else SendFailed
        return kind(self.topic, tuple(self._attempts))

    def _may_retry(self) -> bool:
        return self._tries_left > 1 and self._left_ms() > 0

    def _note(self, error: Exception) -> None:
        queue = self._queue
        if queue is not None:
            took_ms = self._sender.timeline.now_ms() - self._began_ms
            self._attempts = (*self._attempts, Attempt(queue.broker, queue.id, error, took_ms))

    def _retry(self, error: Exception) -> None:
        self._note(error)
        self._tries_left -= 1
        self._choose_anew()
        self.start()

    def _choose_anew(self) -> None:
        if not self._plan.is_same_broker:
            self._avoided, self._queue = self._queue, None

    def _end(self, result: Sent | Exception) -> None:
        done, self._done = self._done, None
        if self._plan.is_ordered and self._queue is not None:
            self._sender.lanes.leave(self._queue, self)
        if done is not None:
            done(result)

    def abandon(self) -> None:
        self._end(Closed("the client was closed before the message was sent"))


class Lanes:
    """Sends with `ordered=True`: one under way per queue, the others behind it in order."""

    def __init__(self) -> None:
        self._waiting: dict[MessageQueue, list[Delivery]] = {}

    def may_pass(self, queue: MessageQueue, delivery: Delivery) -> bool:
        """Returns whether this is the delivery whose turn it is; otherwise it is started later."""
        lane = self._waiting.setdefault(queue, [])
        if delivery not in lane:
            lane.append(delivery)
        return lane[0] is delivery

    def leave(self, queue: MessageQueue, delivery: Delivery) -> None:
        lane = self._waiting.get(queue)
        if lane is None or delivery not in lane:
            return
        lane.remove(delivery)
        if not lane:
            del self._waiting[queue]
        else:
            asyncio.get_running_loop().call_soon(lane[0].start)
