"""State of one channel: consumers, unacked deliveries, mode (confirms or transactions) and limits. Knows neither bytes
nor the broker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from trimq.core.queues.consumers import SharedPrefetch
from trimq.core.queues.unacked import SHORT_BODY
from trimq.protocols.amqp.confirms import Confirms
from trimq.protocols.amqp.wire.codes import AmqpRefusal, Code
from trimq.protocols.amqp.wire.events import Publish

if TYPE_CHECKING:
    from trimq.core.queues.publisher import PublishRoute
    from trimq.core.queues.unacked import Delivery
    from trimq.protocols.amqp.deliveries import Subscriber


# Overhead per delivery, counted in addition to the body, so that a client cannot hold any number of empty messages.
_DELIVERY_BYTES = 400


def _size(deliveries: Collection[Delivery]) -> int:
    bodies = sum([len(delivery.stored.content.body) for delivery in deliveries])
    return bodies + _DELIVERY_BYTES * len(deliveries)


class Acknowledgement:
    """Ack, nack or reject of several deliveries; a transaction keeps it until tx.commit."""

    __slots__ = ("counts_as_attempt", "deliveries", "is_rejected", "is_requeued")

    def __init__(
        self, deliveries: list[Delivery], is_rejected: bool, is_requeued: bool, counts_as_attempt: bool
    ) -> None:
        self.deliveries = deliveries
        self.is_rejected = is_rejected
        self.is_requeued = is_requeued
        self.counts_as_attempt = counts_as_attempt


class Transaction:
    """Publishes and acknowledgements that wait for tx.commit. `acknowledged`: deliveries by tag that a rollback makes
    unacked again."""

    __slots__ = ("acknowledged", "acknowledgements", "held", "publishes")

    def __init__(self) -> None:
        self.publishes: list[tuple[Publish, PublishRoute | None]] = []
        """Each with its route; None for a direct reply."""
        self.held = 0
        """Bytes of the publishes, as counted for the connection."""
        self.acknowledgements: list[Acknowledgement] = []
        self.acknowledged: dict[int, Delivery] = {}


class Channel:
    __slots__ = (
        "confirms",
        "consumers",
        "is_full",
        "is_open",
        "is_refused",
        "last_queue",
        "last_tag",
        "number",
        "prefetch",
        "reply_address",
        "reply_tag",
        "shared_prefetch",
        "timed_out",
        "transaction",
        "unacked",
        "unacked_bytes",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_open = True
        self.is_refused = False
        self.consumers: dict[str, Subscriber] = {}
        self.unacked: dict[int, Delivery] = {}
        self.unacked_bytes = 0
        self.timed_out: set[int] = set()
        """Tags of deliveries that were requeued after the consumer timeout. A late acknowledgement of them is no
        error."""
        self.is_full = False
        """The channel reached its limit of unacked bytes: it gets no deliveries until the client acknowledges some."""
        self.last_tag = 0
        self.prefetch = 0
        self.shared_prefetch = SharedPrefetch()
        self.last_queue = ""
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.reply_address = ""
        """Address at which this channel receives direct replies; empty without a direct reply-to consumer."""
        self.reply_tag = ""

    def next_tags(self, count: int) -> range:
        """Assigns the next `count` delivery tags."""
        first = self.last_tag + 1
        self.last_tag += count
        return range(first, first + count)

    def add_unacked(self, tags: range, deliveries: Sequence[Delivery], longest: int) -> None:
        """Adds deliveries that were sent and must be acknowledged; no body is longer than `longest` bytes."""
        for delivery in deliveries if longest > SHORT_BODY else ():
            delivery.drop_body()
        self.unacked.update(zip(tags, deliveries, strict=True))
        self.unacked_bytes += _size(deliveries)

    def take(self, tags: Sequence[int]) -> tuple[list[Delivery], int | None]:
        """Removes the deliveries with these tags, up to the first unknown tag. Returns them and that tag, or None if
        all are known."""
        unacked = self.unacked
        taken: list[Delivery] = []
        unknown: int | None = None
        for tag in tags:
            delivery = unacked.pop(tag, None)
            if delivery is not None:
                taken.append(delivery)
            elif tag in self.timed_out:
                self.timed_out.remove(tag)
            else:
                unknown = tag
                break
        self.unacked_bytes -= _size(taken)
        return taken, unknown

    def take_timed_out(self, deliveries: Collection[Delivery]) -> None:
        """Removes deliveries that the queue took back after the consumer timeout."""
        back = set(deliveries)
        tags = [tag for tag, unacked in self.unacked.items() if unacked in back]
        self.take(tags)
        self.timed_out.update(tags)

    def take_unacked(self, tag: int, is_multiple: bool) -> list[Delivery]:
        """Removes the delivery with this tag, or all up to it if `is_multiple`. Refuses an unknown tag. In a
        transaction, a rollback can restore them."""
        if is_multiple and tag == 0:
            tags = list(self.unacked)
        elif tag not in self.unacked and tag not in self.timed_out:
            raise AmqpRefusal(Code.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        elif is_multiple:
            tags = list(takewhile(lambda unacked: unacked <= tag, self.unacked))  # dict order is tag order
        else:
            tags = [tag] if tag in self.unacked else []
        if self.timed_out:
            self.timed_out = (
                {timed_out for timed_out in self.timed_out if timed_out > tag > 0}
                if is_multiple
                else self.timed_out - {tag}
            )
        taken = {tag: self.unacked.pop(tag) for tag in tags}
        if self.transaction is None:
            self.unacked_bytes -= _size(taken.values())
        else:  # the transaction holds them until it ends
            self.transaction.acknowledged.update(taken)
        return list(taken.values())

    def restore_unacked(self, taken: dict[int, Delivery]) -> None:
        """Makes the deliveries unacked again, in tag order."""
        self.unacked = dict(sorted({**self.unacked, **taken}.items()))

    def commit_acknowledged(self, taken: dict[int, Delivery]) -> None:
        """Stops counting deliveries that a committed transaction acknowledged."""
        self.unacked_bytes -= _size(taken.values())

    def take_all_unacked(self) -> list[Delivery]:
        """Removes and returns all unacked deliveries."""
        taken = list(self.unacked.values())
        self.unacked.clear()
        self.unacked_bytes -= _size(taken)
        return taken

    def queue_name(self, name: str) -> str:
        """Returns `name`, or, if it is empty, the queue that was declared last on this channel."""
        if name:
            return name
        if not self.last_queue:
            raise AmqpRefusal(Code.NOT_FOUND, "no previously declared queue")
        return self.last_queue
