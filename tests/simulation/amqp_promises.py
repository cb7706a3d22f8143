"""Expected state of queues, from the replies to AMQP clients: messages that must exist, messages that must not, and
their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from simulated_loop import Host
from simulated_trace import SimulationFailure

DEAD = "dead"


class Kind(NamedTuple):
    """A queue of the simulated world."""

    name: str
    is_durable: bool = True
    is_quorum: bool = False
    buries: bool = False
    """Rejected messages are dead-lettered."""
    may_expire: bool = False
    """Messages are also dead-lettered by TTL or length limit."""


class Message:
    """State of a published message in one of its queues."""

    __slots__ = (
        "acknowledged",
        "body",
        "given",
        "is_confirmed",
        "is_gone",
        "is_persistent",
        "is_refused",
        "is_rejected",
        "is_seen",
        "life",
        "number",
        "queue",
        "settled",
        "source",
    )

    def __init__(
        self, body: bytes, queue: Kind, source: tuple[str, int], number: int, life: Host, is_persistent: bool
    ) -> None:
        self.body = body
        self.queue = queue
        self.source = source
        """The publisher and its connection."""
        self.number = number
        self.life = life
        self.is_persistent = is_persistent
        self.is_confirmed = self.is_refused = self.is_rejected = self.is_seen = False
        self.is_gone = False
        """A recovery did not find it."""
        self.acknowledged: set[str] = set()
        """Queues to which an ack was sent."""
        self.settled: set[str] = set()
        """These have."""
        self.given: dict[str, Host] = {}
        """The broker run in which each queue last delivered it to a client that received it."""

    def may_be_in(self, queue: str) -> bool:
        is_buried = self.queue.buries and (self.is_rejected or self.queue.may_expire)
        return queue == self.queue.name or (queue == DEAD and is_buried)

    def is_kept_in(self, queue: str) -> bool:
        """Returns whether the message survives a restart in this queue. A quorum queue keeps every message."""
        kind = Kind(DEAD) if queue == DEAD else self.queue
        return kind.is_durable and (self.is_persistent or kind.is_quorum)

    @property
    def is_kept(self) -> bool:
        """Returns whether the message survives a restart in every queue."""
        return self.is_kept_in(self.queue.name) and (not self.may_be_in(DEAD) or self.is_kept_in(DEAD))

    def __repr__(self) -> str:
        return f"{self.body[:24]!r} of {self.queue.name}"


class AmqpPromises:
    def __init__(self) -> None:
        self._messages: dict[bytes, list[Message]] = {}

    def _all(self) -> Iterator[Message]:
        return (message for copies in self._messages.values() for message in copies)

    def asked(self, copies: list[Message]) -> None:
        """Records a published message, for each of its queues."""
        self._messages[_name(copies[0].body)] = copies

    def confirmed(self, copies: list[Message]) -> None:
        for message in copies:
            if message.is_refused:
                _fail(f"{message} was confirmed after it was refused")
            message.is_confirmed = True

    def refused(self, copies: list[Message]) -> None:
        """Records a refusal; of several queues some may have stored the message."""
        if len(copies) > 1:
            return
        (message,) = copies
        if message.is_confirmed or message.is_seen:
            _fail(f"{message} was refused after it was confirmed or delivered")
        message.is_refused = True

    def delivered(self, queue: str, body: bytes, is_redelivered: bool, life: Host) -> list[Message]:
        """Returns all messages that the delivery may be: the origin queue of a dead letter is unknown."""
        copies = self._known(queue, body, "delivered")
        if len(copies) == 1:
            self._delivered(queue, copies[0], is_redelivered, life)
        return copies

    def _delivered(self, queue: str, message: Message, is_redelivered: bool, life: Host) -> None:
        if message.is_gone:
            _fail(f"{message} was delivered, but a recovery had not found it")
        if queue in message.settled and queue != DEAD:
            _fail(f"{message} was delivered again after it was acknowledged")
        if not message.is_kept_in(message.queue.name) and message.life is not life:
            _fail(f"{message} was delivered after a restart, but is transient")
        if message.given.get(queue) is life and not is_redelivered and queue != DEAD:
            _fail(f"{message} was delivered again without the redelivered flag")
        message.given[queue] = life
        message.is_seen = True

    def _known(self, queue: str, body: bytes, how: str) -> list[Message]:
        copies = self._messages.get(_name(body))
        if copies is None:
            _fail(f"{body[:24]!r} was {how}, but was never sent")
        if copies[0].body != body:
            _fail(f"{copies[0]} was {how} with other bytes")
        if copies[0].is_refused:
            _fail(f"{copies[0]} was {how}, but had been refused")
        found = [message for message in copies if message.may_be_in(queue)]
        if not found:
            _fail(f"{copies[0]} was {how} from {queue}")
        return found

    # -- after a restart

    def recovered(self, found: Mapping[str, Sequence[bytes]], is_orderly: bool) -> None:
        """`is_orderly`: there was no crash, so no acknowledged message may exist again."""
        there = {
            queue: [message for body in bodies for message in self._known(queue, body, "recovered")]
            for queue, bodies in found.items()
        }
        for queue, messages in there.items():
            if queue != DEAD:
                _check_order(messages)
                for message in messages:
                    self._check_recovered(queue, message, is_orderly)
        remaining = {id(message) for messages in there.values() for message in messages}
        for message in self._all():
            if id(message) not in remaining:
                self._check_lost(message)

    def _check_recovered(self, queue: str, message: Message, is_orderly: bool) -> None:
        if not message.is_kept_in(queue):
            _fail(f"{message} exists after a restart, but is transient")
        if message.is_gone:
            _fail(f"{message} exists, but an earlier recovery had not found it")
        if queue in message.settled and is_orderly:
            _fail(f"{message} exists again without a crash, but was acknowledged")
        # The ack was not processed, or is lost: the message exists and must be delivered.
        message.acknowledged.discard(queue)
        message.settled.discard(queue)

    def _check_lost(self, message: Message) -> None:
        if message.is_kept and (message.is_confirmed or message.is_seen) and not message.acknowledged:
            _fail(f"{message} is lost")
        # An acknowledged or moved message may exist again after a later crash.
        message.is_gone = not message.acknowledged and not message.may_be_in(DEAD)

    # -- at the end

    def owed(self, life: Host) -> Iterator[Message]:
        """Yields the messages that must be delivered to a client that drains everything."""
        for message in self._all():
            is_there = message.is_kept or message.life is life
            if is_there and (message.is_confirmed or message.is_seen) and not message.acknowledged:
                yield message


class FirstDeliveries:
    """First deliveries of a queue to one consumer: the messages of each publisher connection in the order of
    publishing."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, int], Message] = {}

    def add(self, message: Message) -> None:
        line = message.queue.name, *message.source
        before = self._last.get(line)
        if before is not None and before.number > message.number:
            _fail(f"{message} was delivered after {before}")
        self._last[line] = message


def _check_order(messages: Sequence[Message]) -> None:
    first_deliveries = FirstDeliveries()
    for message in messages:
        first_deliveries.add(message)


def _name(body: bytes) -> bytes:
    return body.split(b"|", 1)[0]


def _fail(reason: str) -> NoReturn:
    raise SimulationFailure(reason)
