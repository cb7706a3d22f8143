"""Messages of one queue that are out for delivery, with the same time to settle each. Leases of the plainest kind:
since all last equally long they end in the order in which they were granted, so one timer watches the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trimq.core.backlog import Backlog, Tries
from trimq.formats.content import Content, Stored

if TYPE_CHECKING:
    from trimq.core.any_queue import AnyQueue
    from trimq.core.consumers import Consumer


class Delivery:
    """One message on its way to a consumer, or to somebody who asked for it (`consumer` None). `header` is what to send
    as its properties."""

    __slots__ = ("backlog", "consumer", "granted_ms", "header", "queue", "stored", "tries")

    def __init__(
        self,
        queue: AnyQueue,
        backlog: Backlog | None,
        stored: Stored,
        consumer: Consumer | None,
        header: bytes,
        tries: Tries,
        granted_ms: int,
    ) -> None:
        self.queue = queue
        self.backlog = backlog
        self.stored = stored
        self.consumer = consumer
        self.header = header
        self.tries = tries
        self.granted_ms = granted_ms

    @property
    def message(self) -> Content:
        return self.stored.content

    @property
    def offset(self) -> int:
        return self.stored.offset

    @property
    def redelivered(self) -> bool:
        return self.tries.taken > 0


Watch = Callable[[int | None], None]


class Deliveries:
    """`watch(due_ms)` is called when the earliest deadline has changed; None: there is none."""

    def __init__(self, timeout_ms: int, watch: Watch) -> None:
        self.timeout_ms = timeout_ms
        self._watch = watch
        self._watched = False
        self._out: dict[Delivery, None] = {}

    def __len__(self) -> int:
        return len(self._out)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(tuple(self._out))

    def grant(self, delivery: Delivery) -> None:
        self._out[delivery] = None
        if not self._watched and self.timeout_ms:
            self._watched = True
            self._watch(delivery.granted_ms + self.timeout_ms)

    def settle(self, delivery: Delivery) -> bool:
        """It is no longer out. False: it was not, any more."""
        out = self._out
        if delivery not in out:
            return False
        del out[delivery]
        return True

    def overdue(self, now_ms: int) -> list[Delivery]:
        """Those whose time is over; they stay out. To be called when the watched time has come."""
        found: list[Delivery] = []
        self._watched = False
        for delivery in self._out:
            due_ms = delivery.granted_ms + self.timeout_ms
            if due_ms > now_ms:
                self._watched = True
                self._watch(due_ms)
                break
            found.append(delivery)
        return found

    def clear(self) -> None:
        self._out.clear()
