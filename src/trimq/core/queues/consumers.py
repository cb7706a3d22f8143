"""Consumers of one queue, and the order in which they are served: by priority, then round-robin, limited by prefetch.
Knows neither messages nor the wire."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trimq.formats.amqp_content.field_tables import Value

if TYPE_CHECKING:
    from trimq.core.queues.queue import Queue
    from trimq.core.queues.unacked import Delivery


class Receiver(Protocol):
    """Receives the messages of one or more consumers: a channel of a front-end."""

    can_take: bool
    """False while its peer reads too slowly. After setting it to True again, the receiver calls `Queue.wake`."""

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Delivers messages. Never called from inside a call of the receiver into the queue."""

    def cancelled(self, consumer: Consumer) -> None:
        """Called when the queue was deleted and the consumer removed with it."""

    def timed_out(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Called when deliveries exceeded the delivery timeout. They are requeued, and the consumer is removed."""


class SharedPrefetch:
    """Prefetch limit that several consumers share, across queues: basic.qos with `global`. `most` 0: no limit."""

    __slots__ = ("consumers", "in_flight", "most")

    def __init__(self) -> None:
        self.most = 0
        self.in_flight = 0
        self.consumers: set[Consumer] = set()

    @property
    def room(self) -> int:
        return self.most - self.in_flight if self.most else _NO_LIMIT

    def settle(self, count: int) -> Iterable[Consumer]:
        """Frees prefetch for `count` acknowledged messages. Returns the consumers that have room again."""
        self.in_flight -= count
        return self.consumers if self.in_flight < self.most <= self.in_flight + count else ()


class Subscription(NamedTuple):
    """`prefetch` 0: no limit. With `no_ack` neither `prefetch` nor `shared_prefetch` applies. A `channel`
    of several consumers gets the messages of a queue in the order of the queue."""

    tag: str
    receiver: Receiver
    prefetch: int = 0
    no_ack: bool = False
    is_exclusive: bool = False
    priority: int = 0
    arguments: Mapping[str, Value] = {}
    shared_prefetch: SharedPrefetch | None = None
    channel: object = None


class Consumer:
    __slots__ = (
        "arguments",
        "channel",
        "in_flight",
        "is_exclusive",
        "no_ack",
        "number",
        "position",
        "prefetch",
        "priority",
        "queue",
        "receiver",
        "shared_prefetch",
        "tag",
        "timeout_ms",
    )

    def __init__(self, queue: Queue, subscription: Subscription) -> None:
        self.queue = queue
        self.tag = subscription.tag
        self.receiver = subscription.receiver
        self.prefetch = subscription.prefetch
        self.no_ack = subscription.no_ack
        self.is_exclusive = subscription.is_exclusive
        self.priority = subscription.priority
        self.arguments = subscription.arguments
        self.channel = self if subscription.channel is None else subscription.channel
        self.shared_prefetch = None if subscription.no_ack else subscription.shared_prefetch
        self.in_flight = 0
        self.timeout_ms: int | None = None  # None: the queue's timeout applies
        self.number = 0  # among the receivers of its queue, in the order in which they asked
        self.position = 0  # of stream consumers: the next offset

    @property
    def room(self) -> int:
        """Number of messages that the consumer can receive now."""
        if not self.receiver.can_take:
            return 0
        room = _NO_LIMIT if self.no_ack or not self.prefetch else self.prefetch - self.in_flight
        if self.shared_prefetch is not None:
            room = min(room, self.shared_prefetch.room)
        return room


_NO_LIMIT = 1 << 30


class Consumers:
    """A consumer without room is skipped until `resume`, so that thousands of busy consumers cost nothing.

    With `is_single_active`, the next active consumer is the first one of the highest priority. `takes_over`: a consumer
    of a higher priority replaces the active one as soon as that has no messages in flight, instead of when it is
    removed."""

    def __init__(self, is_single_active: bool, takes_over: bool) -> None:
        self.is_single_active = is_single_active
        self._takes_over = takes_over
        self._active: Consumer | None = None
        self._all: OrderedDict[Consumer, None] = OrderedDict()  # in the order of subscription
        self._round_robin: dict[int, OrderedDict[Consumer, None]] = {}  # by priority, highest first; each is rotated
        self._full: set[Consumer] = set()
        self._exclusive = 0
        self._channels: Counter[object] = Counter()
        self._numbers = count(1)
        self.is_channel_shared = False
        """Whether two of the consumers have the same channel. A plain attribute: it is read once per delivery."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(tuple(self._all))

    def __contains__(self, consumer: object) -> bool:
        return consumer in self._all

    @property
    def has_exclusive(self) -> bool:
        return self._exclusive > 0

    def next_number(self) -> int:
        """Returns the number of the next receiver: a consumer, or a basic.get."""
        return next(self._numbers)

    def add(self, consumer: Consumer) -> None:
        consumer.number = self.next_number()
        self._all[consumer] = None
        self._channels[consumer.channel] += 1
        self.is_channel_shared = len(self._channels) < len(self._all)
        self._exclusive += consumer.is_exclusive
        if consumer.shared_prefetch is not None:
            consumer.shared_prefetch.consumers.add(consumer)
        self._join_round_robin(consumer)
        if self.is_single_active:
            self._choose_active()

    def _join_round_robin(self, consumer: Consumer) -> None:
        if consumer.priority not in self._round_robin:
            self._round_robin[consumer.priority] = OrderedDict()
            self._round_robin = dict(sorted(self._round_robin.items(), reverse=True))
        self._round_robin[consumer.priority][consumer] = None

    def remove(self, consumer: Consumer) -> bool:
        if consumer not in self._all:
            return False
        del self._all[consumer]
        self._channels[consumer.channel] -= 1
        if not self._channels[consumer.channel]:
            del self._channels[consumer.channel]
        self.is_channel_shared = len(self._channels) < len(self._all)
        self._exclusive -= consumer.is_exclusive
        if consumer is self._active:
            self._active = None
        if consumer.shared_prefetch is not None:
            consumer.shared_prefetch.consumers.discard(consumer)
        if consumer in self._full:
            self._full.discard(consumer)
        else:
            self._leave_round_robin(consumer)
        if self.is_single_active:
            self._choose_active()
        return True

    def _leave_round_robin(self, consumer: Consumer) -> None:
        round_robin = self._round_robin[consumer.priority]
        del round_robin[consumer]
        if not round_robin:
            del self._round_robin[consumer.priority]

    def resume(self, consumer: Consumer) -> None:
        """Considers a consumer again that may have room."""
        if consumer in self._full:
            self._full.discard(consumer)
            self._join_round_robin(consumer)

    def is_active(self, consumer: Consumer) -> bool:
        return not self.is_single_active or self._choose_active()[0] is consumer

    def _choose_active(self) -> tuple[Consumer | None, bool]:
        """Returns the active consumer, and whether it may receive more: False while another waits to take over."""
        active = self._active
        best = next((next(iter(round_robin)) for round_robin in self._round_robin.values()), None)
        if active is None or best is None:
            self._active = best
        elif self._takes_over and best.priority > active.priority:
            if active.in_flight:
                return active, False
            self._active = best
        return self._active, True

    def next(self, most: int) -> tuple[list[Consumer], int]:
        """Returns the next consumers for `most` messages, and how many messages each may receive. Empty: none has
        room."""
        if self.is_single_active:
            active, may_take = self._choose_active()
            return ([], 0) if active is None or not may_take or active.room <= 0 else ([active], active.room)
        while self._round_robin:
            round_robin = next(iter(self._round_robin.values()))
            found: list[Consumer] = []
            least = _NO_LIMIT
            for consumer in tuple(islice(round_robin, most)):
                room = consumer.room
                if room <= 0:
                    self._full.add(consumer)
                    self._leave_round_robin(consumer)
                elif consumer.shared_prefetch is not None:  # its deliveries reduce the room of the next
                    return (found, 1) if found else ([consumer], room if len(round_robin) == 1 else 1)
                else:
                    found.append(consumer)
                    least = min(least, room)
            if found:
                # Round-robin within one priority: consumers that were not considered come before the second message of
                # these.
                return found, least if len(found) == len(round_robin) else 1
        return [], 0

    def served(self, consumers: Sequence[Consumer], count: int) -> None:
        """Moves consumers that received `count` messages in turns behind the others of their priority."""
        round_robin = self._round_robin.get(consumers[0].priority)
        if round_robin is None or self.is_single_active:
            return
        rest = count % len(consumers) if len(consumers) == len(round_robin) else count
        for consumer in consumers[:rest]:
            if consumer in round_robin:
                round_robin.move_to_end(consumer)
