"""Those who take messages from one queue, and whose turn it is: by priority, then in turn, as far as each has room.
Knows neither messages nor the wire."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trimq.formats.amqp_content.field_tables import Value

if TYPE_CHECKING:
    from trimq.core.queues.queue import AnyQueue
    from trimq.core.queues.unacked import Delivery


class Receiver(Protocol):
    """Who is given the messages of one or more consumers: a channel of a front-end."""

    can_take: bool
    """False while its peer reads too slowly. Whoever sets it to True again calls `wake`."""

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Never called inside a verb."""

    def cancelled(self, consumer: Consumer) -> None:
        """The queue is gone, and the consumer with it."""

    def timed_out(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Messages were out for too long. They are back in their queue, and the consumer is gone, if it was not before
        already."""


class Allowance:
    """How many messages several consumers may have unsettled together, whichever queues they take from. `most` 0: any
    number."""

    __slots__ = ("consumers", "in_flight", "most")

    def __init__(self) -> None:
        self.most = 0
        self.in_flight = 0
        self.consumers: set[Consumer] = set()

    @property
    def room(self) -> int:
        return self.most - self.in_flight if self.most else _NO_LIMIT

    def settle(self, count: int) -> Iterable[Consumer]:
        """One of them is done with so many messages. Those who may be given more now."""
        self.in_flight -= count
        return self.consumers if self.in_flight < self.most <= self.in_flight + count else ()


class Subscription(NamedTuple):
    """`prefetch` 0: no limit. Who does not acknowledge has no limit at all. `allowance`: a limit that it shares."""

    tag: str
    receiver: Receiver
    prefetch: int = 0
    no_ack: bool = False
    is_exclusive: bool = False
    priority: int = 0
    arguments: Mapping[str, Value] = {}
    allowance: Allowance | None = None


class Consumer:
    __slots__ = (
        "allowance",
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
        "timeout_ms",
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
        self.allowance = None if subscription.no_ack else subscription.allowance
        self.in_flight = 0
        self.timeout_ms: int | None = None  # None: the queue's
        self.position = 0  # of those who read without taking: the next offset

    @property
    def room(self) -> int:
        """How many more it takes now."""
        if not self.receiver.can_take:
            return 0
        room = _NO_LIMIT if self.no_ack or not self.prefetch else self.prefetch - self.in_flight
        if self.allowance is not None:
            room = min(room, self.allowance.room)
        return room


_NO_LIMIT = 1 << 30


class Consumers:
    """Who was found to have no room is not asked again before `resume`, so that thousands of busy ones cost nothing.

    Of those of whom one is active at a time, the next is the first of the highest priority. `takes_over`: it need not
    wait until the active one leaves, if its priority is higher, but only until that has settled what it has."""

    def __init__(self, is_single_active: bool, takes_over: bool) -> None:
        self.is_single_active = is_single_active
        self._takes_over = takes_over
        self._active: Consumer | None = None
        self._all: OrderedDict[Consumer, None] = OrderedDict()  # in the order in which they came
        self._turns: dict[int, OrderedDict[Consumer, None]] = {}  # by priority, highest first; each is rotated
        self._full: set[Consumer] = set()
        self._exclusive = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(tuple(self._all))

    def __contains__(self, consumer: object) -> bool:
        return consumer in self._all

    @property
    def has_exclusive(self) -> bool:
        return self._exclusive > 0

    def add(self, consumer: Consumer) -> None:
        self._all[consumer] = None
        self._exclusive += consumer.is_exclusive
        if consumer.allowance is not None:
            consumer.allowance.consumers.add(consumer)
        self._queue_up(consumer)
        if self.is_single_active:
            self._choose_active()

    def _queue_up(self, consumer: Consumer) -> None:
        if consumer.priority not in self._turns:
            self._turns[consumer.priority] = OrderedDict()
            self._turns = dict(sorted(self._turns.items(), reverse=True))
        self._turns[consumer.priority][consumer] = None

    def remove(self, consumer: Consumer) -> bool:
        if consumer not in self._all:
            return False
        del self._all[consumer]
        self._exclusive -= consumer.is_exclusive
        if consumer is self._active:
            self._active = None
        if consumer.allowance is not None:
            consumer.allowance.consumers.discard(consumer)
        if consumer in self._full:
            self._full.discard(consumer)
        else:
            self._step_out(consumer)
        if self.is_single_active:
            self._choose_active()
        return True

    def _step_out(self, consumer: Consumer) -> None:
        turns = self._turns[consumer.priority]
        del turns[consumer]
        if not turns:
            del self._turns[consumer.priority]

    def resume(self, consumer: Consumer) -> None:
        """It may have room again."""
        if consumer in self._full:
            self._full.discard(consumer)
            self._queue_up(consumer)

    def is_active(self, consumer: Consumer) -> bool:
        return not self.is_single_active or self._choose_active()[0] is consumer

    def _choose_active(self) -> tuple[Consumer | None, bool]:
        """The one, and whether it may be given more: another may wait until it is done."""
        active = self._active
        best = next((next(iter(turns)) for turns in self._turns.values()), None)
        if active is None or best is None:
            self._active = best
        elif self._takes_over and best.priority > active.priority:
            if active.in_flight:
                return active, False
            self._active = best
        return self._active, True

    def next(self, most: int) -> tuple[list[Consumer], int]:
        """Whose turns they are, for `most` messages, and how many each of them takes. Nobody: there is no room."""
        if self.is_single_active:
            active, may_take = self._choose_active()
            return ([], 0) if active is None or not may_take or active.room <= 0 else ([active], active.room)
        while self._turns:
            turns = next(iter(self._turns.values()))
            found: list[Consumer] = []
            least = _NO_LIMIT
            for consumer in tuple(islice(turns, most)):
                room = consumer.room
                if room <= 0:
                    self._full.add(consumer)
                    self._step_out(consumer)
                elif consumer.allowance is not None:  # what the next one takes is less by what this one is given
                    return (found, 1) if found else ([consumer], room if len(turns) == 1 else 1)
                else:
                    found.append(consumer)
                    least = min(least, room)
            if found:
                # Those of one rank take one at a time. Whoever is not asked has its turn before their second.
                return found, least if len(found) == len(turns) else 1
        return [], 0

    def served(self, consumers: Sequence[Consumer], count: int) -> None:
        """They have been given so many messages in turns; others of their rank are next."""
        turns = self._turns.get(consumers[0].priority)
        if turns is None or self.is_single_active:
            return
        rest = count % len(consumers) if len(consumers) == len(turns) else count
        for consumer in consumers[:rest]:
            if consumer in turns:
                turns.move_to_end(consumer)
