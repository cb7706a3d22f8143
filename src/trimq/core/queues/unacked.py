"""Unacked deliveries of one queue and their delivery timeouts. All have the same timeout and end in the order of
delivery, so one timer for the first is enough; those of the few consumers with `x-consumer-timeout` are checked one by
one. Does not requeue messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from trimq.core.queues.backlog import Backlog, DeliveryCounts
from trimq.formats.amqp_content.content import Content, StoredContent
from trimq.formats.amqp_content.field_tables import BadField, FieldTable
from trimq.formats.amqp_content.property_list import read_headers, replace

if TYPE_CHECKING:
    from trimq.core.queues.consumers import Consumer
    from trimq.core.queues.queue import Queue


# Longer bodies are not kept in memory until the client acknowledges them.
SHORT_BODY = 4096


class Delivery:
    """One delivery to a consumer, or by basic.get (`consumer` None). `header` has the properties to send."""

    __slots__ = (
        "_dropped_body_bytes",
        "backlog",
        "consumer",
        "delivered_ms",
        "delivery_counts",
        "get_number",
        "header",
        "queue",
        "redelivered",
        "stored",
    )

    def __init__(
        self,
        queue: Queue,
        backlog: Backlog | None,
        stored: StoredContent,
        consumer: Consumer | None,
        header: bytes,
        delivery_counts: DeliveryCounts,
        delivered_ms: int,
    ) -> None:
        self.queue = queue
        self.backlog = backlog
        self.stored = stored
        self.consumer = consumer
        self.header = header
        self.delivery_counts = delivery_counts
        self.delivered_ms = delivered_ms
        self.redelivered = delivery_counts.acquired > 0
        self._dropped_body_bytes = 0
        self.get_number = 0  # among the receivers of the queue, if it was delivered by basic.get

    @property
    def receiver_number(self) -> int:
        """Place of its receiver in the order in which those of the queue subscribed or asked."""
        return self.get_number if self.consumer is None else self.consumer.number

    @property
    def receiver_tag(self) -> str:
        """Tag of its consumer; empty if it was delivered by basic.get."""
        return "" if self.consumer is None else self.consumer.tag

    def drop_body(self) -> None:
        """Frees a long body once it is sent; the log still has it. So a client that never acknowledges uses little
        memory."""
        stored = self.stored
        size = len(stored.content.body)
        if size > SHORT_BODY and self.backlog is not None:
            self._dropped_body_bytes = size
            self.stored = stored._replace(content=stored.content._replace(body=b""))

    def with_body(self) -> StoredContent:
        """Returns the message with its body, reading it from the log if it was dropped."""
        return (
            self.stored if not self._dropped_body_bytes or self.backlog is None else self.backlog.log.peek(self.offset)
        )

    @property
    def body_bytes(self) -> int:
        return self._dropped_body_bytes or len(self.stored.content.body)

    @property
    def message(self) -> Content:
        return self.stored.content

    @property
    def offset(self) -> int:
        return self.stored.offset


SetDeadlineTimer = Callable[[int | None], None]


class UnackedDeliveries:
    """Calls `watch(due_ms)` when the earliest deadline changes. `timeout_ms` 0: no timeout."""

    def __init__(self, timeout_ms: int, watch: SetDeadlineTimer) -> None:
        self.timeout_ms = timeout_ms
        self._watch = watch
        self._watched_ms: int | None = None
        self._unacked: dict[Delivery, None] = {}
        self._own_deadlines: dict[Delivery, int | None] = {}  # of consumers with `x-consumer-timeout`

    def __len__(self) -> int:
        return len(self._unacked)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(tuple(self._unacked))

    def offsets_in(self, backlog: Backlog) -> set[int]:
        return {delivery.offset for delivery in self._unacked if delivery.backlog is backlog}

    def bytes_in(self, backlog: Backlog) -> int:
        """Returns the size of the unacked messages of one backlog."""
        own = [delivery for delivery in self._unacked if delivery.backlog is backlog]
        return sum([delivery.body_bytes + backlog.property_bytes(delivery.stored.content) for delivery in own])

    def grant(self, deliveries: Sequence[Delivery]) -> None:
        """Adds one or more deliveries of one consumer that are made at the same time."""
        self._unacked.update(dict.fromkeys(deliveries))
        consumer, delivered_ms = deliveries[0].consumer, deliveries[0].delivered_ms
        if consumer is not None and consumer.timeout_ms is not None:
            due_ms = delivered_ms + consumer.timeout_ms if consumer.timeout_ms else None
            self._own_deadlines.update(dict.fromkeys(deliveries, due_ms))
            if due_ms is not None and (self._watched_ms is None or due_ms < self._watched_ms):
                self._watch_until(due_ms)
        elif self._watched_ms is None and self.timeout_ms:
            self._watch_until(delivered_ms + self.timeout_ms)

    def _watch_until(self, due_ms: int) -> None:
        self._watched_ms = due_ms
        self._watch(due_ms)

    def settle(self, delivery: Delivery) -> bool:
        """Removes a delivery. Returns False if it was not in flight any more."""
        out = self._unacked
        if delivery not in out:
            return False
        del out[delivery]
        if self._own_deadlines:
            self._own_deadlines.pop(delivery, None)
        return True

    def settle_all(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Removes deliveries. Returns those that were in flight."""
        out = self._unacked
        found = [delivery for delivery in deliveries if out.pop(delivery, delivery) is None]
        for delivery in found if self._own_deadlines else ():
            self._own_deadlines.pop(delivery, None)
        return found

    def overdue(self, now_ms: int) -> list[Delivery]:
        """Returns deliveries that exceeded their timeout; they stay in flight. Must be called at the watched time."""
        found: list[Delivery] = []
        later_ms = [due_ms for due_ms in self._own_deadlines.values() if due_ms is not None and due_ms > now_ms]
        for delivery in self._unacked if self.timeout_ms else ():
            if delivery in self._own_deadlines:
                continue
            due_ms = delivery.delivered_ms + self.timeout_ms
            if due_ms > now_ms:
                later_ms.append(due_ms)
                break
            found.append(delivery)
        found += [
            delivery for delivery, due_ms in self._own_deadlines.items() if due_ms is not None and due_ms <= now_ms
        ]
        self._watched_ms = None
        if later_ms:
            self._watch_until(min(later_ms))
        return found


def with_delivery_counts(header: bytes, delivery_counts: DeliveryCounts) -> bytes:
    """Returns the properties with `x-acquired-count` and `x-delivery-count` added. As in RabbitMQ, a message that no
    consumer of this queue had has the number of failed deliveries as both."""
    counts: FieldTable = {"x-acquired-count": delivery_counts.acquired or delivery_counts.failed}
    if delivery_counts.failed:
        counts["x-delivery-count"] = delivery_counts.failed
    try:
        return replace(header, headers={**read_headers(header), **counts})
    except BadField:
        return header
