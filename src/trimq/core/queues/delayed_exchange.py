"""Delayed messages of `x-delayed-message` exchanges: stored in a queue log until they are due, then published. The log
is authoritative; the timers are an index in memory that a start rebuilds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.queues.publisher import DELAY, Publisher
from trimq.core.routing.exchanges import Exchange, Exchanges
from trimq.core.scheduling.timers import PendingTimer, TimerEntry, Timers
from trimq.errors import ColdRead, DamagedSegment, Refusal, WriteFailed
from trimq.formats.amqp_content.content import (
    DEAD_LETTER,
    PRIVATE_HEADERS,
    REDELIVERED,
    TRANSIENT,
    Content,
    StoredContent,
    encode_content,
)
from trimq.formats.amqp_content.field_tables import Value
from trimq.formats.amqp_content.private_headers import BLIND_COPIES, IGNORES_COPIES
from trimq.formats.amqp_content.property_list import read_headers_leniently, replace
from trimq.model import StreamId
from trimq.offload import Offload
from trimq.storage.group_commit.passes import JointTicket, Passes, Ticket
from trimq.storage.queue_log.log import QueueLog

log = logging.getLogger(__name__)

_SCHEDULED_PER_TURN = 5000
_RETRY_MS = 1000  # after a failed write


class DelayedMessageStore:
    """`make_log` creates the log of this broker's delayed messages when it is first needed; `id` identifies it."""

    def __init__(
        self,
        exchanges: Exchanges,
        publisher: Publisher,
        passes: Passes,
        timeline: Timeline,
        id: UUID,
        make_log: Callable[[], QueueLog],
        offload: Offload,
    ) -> None:
        self._exchanges = exchanges
        self._offload = offload
        self._publisher = publisher
        self._passes = passes
        self._timeline = timeline
        self._id = id
        self._make_log = make_log
        self._log: QueueLog | None = None
        self._scheduled_end = 0
        self._is_scheduling = False
        self._timers = Timers(timeline, self._fire)

    @property
    def logs(self) -> list[QueueLog]:
        return [] if self._log is None else [self._log]

    def __len__(self) -> int:
        return 0 if self._log is None else self._log.live

    def open(self, found: QueueLog | None) -> None:
        """Takes over the log found at start. Its messages are scheduled once they are readable."""
        if found is not None:
            self._use_log(found)

    def _use_log(self, taken: QueueLog) -> None:
        self._log = taken
        taken.on_readable = self._schedule_new
        self._scheduled_end = taken.segments[0].base
        self._schedule_new()

    def delay_message(
        self, exchange: Exchange, content: Content, delay_ms: int, is_transient: bool, flags: int = 0
    ) -> Ticket:
        """Stores a message that was routed to `exchange`. `content.exchange` is the exchange that the client published
        to, which may be another. `flags`: DEAD_LETTER."""
        if self._log is None:
            self._use_log(self._make_log())
        assert self._log is not None
        now_ms = self._timeline.now_ms()
        name = f"{exchange.namespace}\0{exchange.name}".encode("utf-8", "surrogateescape")
        if content.exchange != exchange.encoded_name:
            name += b"\0" + content.exchange
        if len(name) > 255:
            raise WriteFailed(
                "namespace and exchange names of a delayed message are longer than 255 bytes together; shorten them"
            )
        held = content._replace(exchange=name, published_ms=now_ms)
        return self._log.append(encode_content(held), now_ms + delay_ms, flags | TRANSIENT if is_transient else flags)

    def _schedule_new(self) -> None:
        """Sets timers for messages that became readable, a bounded number in each turn of the loop."""
        if self._log is None or self._is_scheduling:
            return
        stream = StreamId(self._id, 0)
        found = list(islice(self._log.expiries(self._scheduled_end), _SCHEDULED_PER_TURN))
        for offset, due_ms in found:
            self._timers.schedule(due_ms, TimerEntry(stream, offset))
        if len(found) < _SCHEDULED_PER_TURN:
            self._scheduled_end = max(self._scheduled_end, self._log.readable_end)
        else:
            self._scheduled_end = found[-1][0] + 1
            self._is_scheduling = True
            self._passes.call_soon(self._schedule_more)

    def _schedule_more(self) -> None:
        self._is_scheduling = False
        self._schedule_new()

    def _fire(self, pending: PendingTimer, may_wait: bool = False) -> None:
        """Publishes a due message, and acknowledges it in the log once that is durable. A crash in between publishes it
        again."""
        held, offset = self._log, pending.entry.position
        if held is None or not held.segments.is_live(offset):
            return
        try:
            stored = held.take(offset, may_wait)
        except ColdRead as cold:
            self._offload(cold.warm, lambda _, error: self._fire_warm(pending))
        except DamagedSegment as damage:
            log.error("delayed message skipped: %s", damage)
        else:
            self._publish(held, stored, pending)

    def _fire_warm(self, pending: PendingTimer) -> None:
        try:
            self._fire(pending, may_wait=True)
        except Refusal as refusal:
            log.warning("delayed message could not be published, will retry: %s", refusal)
            self._retry_later(pending)

    def _retry_later(self, pending: PendingTimer) -> None:
        self._timers.schedule(self._timeline.now_ms() + _RETRY_MS, pending.entry)

    def _publish(self, held: QueueLog, stored: StoredContent, pending: PendingTimer) -> None:
        offset, content = pending.entry.position, stored.content
        namespace, name, *origin = content.exchange.split(b"\0", 2)
        exchange = self._exchanges.find(_text(namespace), _text(name))
        if exchange is None:
            held.acks.ack(offset)  # the exchange was deleted: the message is unroutable
            return
        header = _after_delay(content.header)
        said = origin[0] if origin else None
        flags = stored.flags & (DEAD_LETTER | REDELIVERED | PRIVATE_HEADERS)
        published = self._publisher.publish(exchange, _text(content.key), header, content.body, said, flags)
        if not published.tickets:
            held.acks.ack(offset)
            return

        def done(ticket: Ticket) -> None:
            if ticket.refusal is None:
                held.acks.ack(offset)
            else:
                self._retry_later(pending)

        self._passes.on_durable(JointTicket(published.tickets), done)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _after_delay(header: bytes) -> bytes:
    """Returns the header with `x-delay` negated, as RabbitMQ's plugin does: the message is not delayed again."""
    headers = read_headers_leniently(header)
    if headers.pop(IGNORES_COPIES, False):
        headers = {name: value for name, value in headers.items() if name not in ("CC", BLIND_COPIES)}
    delay = headers[DELAY]
    waited: Value = f"-{delay}" if isinstance(delay, str) else delay
    if isinstance(delay, int):
        waited = type(delay)(-delay)
    return replace(header, headers={**headers, DELAY: waited})
