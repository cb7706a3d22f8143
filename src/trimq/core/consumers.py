"""Those who take messages from one queue, and whose turn it is: by priority, then in turn, as far as each has room.
Knows neither messages nor the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trimq.formats.field_tables import Value

if TYPE_CHECKING:
    from trimq.core.any_queue import AnyQueue
    from trimq.core.deliveries import Delivery


class Receiver(Protocol):
    """Who is given the messages of one or more consumers: a channel of a front-end."""

    can_take: bool
    """False while its peer reads too slowly. Whoever sets it to True again calls `wake`."""

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Never called inside a verb."""

    def cancelled(self, consumer: Consumer) -> None:
        """The queue is gone, and the consumer with it."""

    def timed_out(self, consumer: Consumer, delivery: Delivery) -> None:
        """A message was out for too long. It is back in its queue, and the consumer is gone."""


class Subscription(NamedTuple):
    """`prefetch` 0: no limit. Who does not acknowledge has no limit at all."""

    tag: str
    receiver: Receiver
    prefetch: int = 0
    no_ack: bool = False
    is_exclusive: bool = False
    priority: int = 0
    arguments: Mapping[str, Value] = {}


class Consumer:
    __slots__ = (
        "arguments",
        "in_flight",
        "is_exclusive",
        "no_ack",
        "position",
        "prefetch",
        "priority",
        "queue",
        "receiver",
        "tag",
    )

    def __init__(self, queue: AnyQueue, subscription: Subscription) -> None:
        self.queue = queue
        self.tag = subscription.tag
        self.receiver = subscription.receiver
        self.prefetch = subscription.prefetch
        self.no_ack = subscription.no_ack
        self.is_exclusive = subscription.is_exclusive
        self.priority = subscription.priority
        self.arguments = subscription.arguments
        self.in_flight = 0
        self.position = 0  # of those who read without taking: the next offset

    @property
    def room(self) -> int:
        """How many more it takes now."""
        if not self.receiver.can_take:
            return 0
        if self.no_ack or not self.prefetch:
            return _NO_LIMIT
        return self.prefetch - self.in_flight


_NO_LIMIT = 1 << 30


class Consumers:
    def __init__(self, is_single_active: bool) -> None:
        self.is_single_active = is_single_active
        self._all: list[Consumer] = []  # in the order in which they came
        self._turns: dict[int, list[Consumer]] = {}  # by priority, highest first; each list is rotated

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(tuple(self._all))

    def __contains__(self, consumer: object) -> bool:
        return consumer in self._all

    @property
    def has_exclusive(self) -> bool:
        return any(consumer.is_exclusive for consumer in self._all)

    def add(self, consumer: Consumer) -> None:
        self._all.append(consumer)
        self._turns.setdefault(consumer.priority, []).append(consumer)
        self._turns = dict(sorted(self._turns.items(), reverse=True))

    def remove(self, consumer: Consumer) -> bool:
        if consumer not in self._all:
            return False
        self._all.remove(consumer)
        turns = self._turns[consumer.priority]
        turns.remove(consumer)
        if not turns:
            del self._turns[consumer.priority]
        return True

    def is_active(self, consumer: Consumer) -> bool:
        return not self.is_single_active or (bool(self._all) and self._all[0] is consumer)

    def next(self) -> tuple[Consumer, int] | None:
        """Whose turn it is, and for how many messages. None: nobody has room."""
        if self.is_single_active:
            first = self._all[0] if self._all else None
            return None if first is None or first.room <= 0 else (first, first.room)
        for turns in self._turns.values():
            for consumer in turns:
                room = consumer.room
                if room > 0:
                    # With others of its rank it takes one at a time.
                    return consumer, room if len(turns) == 1 else 1
        return None

    def served(self, consumer: Consumer) -> None:
        """It has had its turn; others of its rank are next."""
        turns = self._turns.get(consumer.priority)
        if turns is not None and len(turns) > 1 and not self.is_single_active:
            turns.remove(consumer)
            turns.append(consumer)
