"""Messages of delayed exchanges: kept in a log of their own until their time has come, then published. The log is the
durable truth; the timers are an index of it that is built again after a start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.exchanges import Exchange, Exchanges
from trimq.core.publishing import JointTicket, Published, Publishing
from trimq.core.queue_arguments import MAX_MILLISECONDS
from trimq.core.routing import copied_keys
from trimq.core.timers import Pending, TimerEntry, Timers
from trimq.errors import ColdRead, DamagedSegment, Refusal, WriteFailed
from trimq.formats.content import TRANSIENT, Content, seal
from trimq.formats.field_tables import BadField, Value
from trimq.formats.property_list import FLAGS, flags_of, read_headers, replace
from trimq.model import StreamId
from trimq.offload import Offload
from trimq.storage.passes import Passes, Ticket
from trimq.storage.queue_log import QueueLog

log = logging.getLogger(__name__)

_DELAY = "x-delay"
_AGAIN_MS = 1000  # after which what could not be written is tried again


class Delays:
    """`make_log` gives the log of delayed messages of this broker, `id` is its name. It is made when it is first
    needed."""

    def __init__(
        self,
        exchanges: Exchanges,
        publishing: Publishing,
        passes: Passes,
        timeline: Timeline,
        id: UUID,
        make_log: Callable[[], QueueLog],
        offload: Offload,
    ) -> None:
        self._exchanges = exchanges
        self._offload = offload
        self._publishing = publishing
        self._passes = passes
        self._timeline = timeline
        self._id = id
        self._make_log = make_log
        self._log: QueueLog | None = None
        self._timed_to = 0
        self._timers = Timers(timeline, self._fire)

    @property
    def logs(self) -> list[QueueLog]:
        return [] if self._log is None else [self._log]

    def __len__(self) -> int:
        return 0 if self._log is None else self._log.live

    def open(self, found: QueueLog | None) -> None:
        """After a start: what waits is timed again when it is readable."""
        if found is not None:
            self._take_log(found)

    def _take_log(self, taken: QueueLog) -> None:
        self._log = taken
        taken.grown = self._time_new
        self._timed_to = taken.segments[0].base
        self._time_new()

    def hold(self, exchange: Exchange, key: str, header: bytes, body: bytes) -> Published | None:
        """Keep a message back as long as it asks for. None: it does not."""
        delay_ms = _delay_of(header)
        if delay_ms <= 0:
            return None
        facts = self._publishing.facts_of(header)
        if facts.has_copies:
            copied_keys(read_headers(header))  # InvalidHeader: it could not be routed when its time has come
        if self._log is None:
            self._take_log(self._make_log())
        assert self._log is not None
        now_ms = self._timeline.now_ms()
        name = f"{exchange.namespace}\0{exchange.name}".encode("utf-8", "surrogateescape")
        if len(name) > 255:
            raise WriteFailed("the names of the namespace and the exchange are too long for a delayed message")
        content = Content(name, key.encode("utf-8", "surrogateescape"), header, body, now_ms)
        published = Published(True)
        flags = TRANSIENT if facts.is_transient else 0
        published.add(self._log.append(seal(content), now_ms + delay_ms, flags), not facts.is_transient)
        return published

    def _time_new(self) -> None:
        """What has become readable gets its timers."""
        if self._log is None:
            return
        offset = self._log.next_live(self._timed_to)
        while offset is not None:
            self._timed_to = offset + 1
            try:
                due_ms = self._log.expiry_ms(offset)
            except DamagedSegment as damage:
                log.error("a delayed message is left out: %s", damage)
            else:
                self._timers.schedule(due_ms, TimerEntry(StreamId(self._id, 0), offset))
            offset = self._log.next_live(offset + 1)

    def _fire(self, pending: Pending, may_wait: bool = False) -> None:
        """Publish, and settle when that is durable. A crash between the two publishes it again."""
        held, offset = self._log, pending.entry.position
        if held is None or not held.is_live(offset):
            return
        try:
            content = held.take(offset, may_wait).content
        except ColdRead as cold:
            self._offload(cold.warm, lambda _, error: self._fire_warm(pending))
        except DamagedSegment as damage:
            log.error("a delayed message is left out: %s", damage)
        else:
            self._publish(held, content, pending)

    def _fire_warm(self, pending: Pending) -> None:
        try:
            self._fire(pending, may_wait=True)
        except Refusal as refusal:
            log.warning("a delayed message is tried again: %s", refusal)
            self._try_later(pending)

    def _try_later(self, pending: Pending) -> None:
        self._timers.schedule(self._timeline.now_ms() + _AGAIN_MS, pending.entry)

    def _publish(self, held: QueueLog, content: Content, pending: Pending) -> None:
        offset = pending.entry.position
        namespace, _, name = content.exchange.decode("utf-8", "surrogateescape").partition("\0")
        exchange = self._exchanges.find(namespace, name)
        if exchange is None:
            held.settle(offset)  # its exchange is gone: it is routed nowhere
            return
        header = _after_delay(content.header)
        published = self._publishing.publish(
            exchange, content.key.decode("utf-8", "surrogateescape"), header, content.body
        )
        if not published.tickets:
            held.settle(offset)
            return

        def done(ticket: Ticket) -> None:
            if ticket.refusal is None:
                held.settle(offset)
            else:
                self._try_later(pending)

        self._passes.afterwards(JointTicket(published.tickets), done)


def _delay_of(header: bytes) -> int:
    if not flags_of(header) & FLAGS["headers"] or b"x-delay" not in header:
        return 0
    try:
        delay = read_headers(header).get(_DELAY)
    except BadField:
        return 0
    if isinstance(delay, str) and delay.isascii() and delay.isdigit():
        delay = int(delay)
    if isinstance(delay, bool) or not isinstance(delay, int):
        return 0
    return min(int(delay), MAX_MILLISECONDS)


def _after_delay(header: bytes) -> bytes:
    """As the plugin has it, the header is negative from now on: it has been waited for."""
    headers = read_headers(header)
    delay = headers[_DELAY]
    waited: Value = f"-{delay}" if isinstance(delay, str) else delay
    if isinstance(delay, int):
        waited = type(delay)(-delay)
    return replace(header, headers={**headers, _DELAY: waited})
