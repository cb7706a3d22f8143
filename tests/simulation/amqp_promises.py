"""What queues have promised through AMQP clients: which messages must be there, which must not, and in which order."""

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
    """What is rejected goes to the queue of dead letters."""
    may_expire: bool = False
    """Messages go there by themselves, too."""


class Message:
    """What is known of one that somebody has published, in one of the queues that it went to."""

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
        """Who published it, on which of its connections."""
        self.number = number
        self.life = life
        self.is_persistent = is_persistent
        self.is_confirmed = self.is_refused = self.is_rejected = self.is_seen = False
        self.is_gone = False
        """A recovery has not found it."""
        self.acknowledged: set[str] = set()
        """To these queues; they may have heard of it."""
        self.settled: set[str] = set()
        """These have."""
        self.given: dict[str, Host] = {}
        """In which life each queue has last given it to a client who has read it."""

    def may_be_in(self, queue: str) -> bool:
        is_buried = self.queue.buries and (self.is_rejected or self.queue.may_expire)
        return queue == self.queue.name or (queue == DEAD and is_buried)

    def is_kept_in(self, queue: str) -> bool:
        """There it outlives the broker. A quorum queue keeps everything."""
        kind = Kind(DEAD) if queue == DEAD else self.queue
        return kind.is_durable and (self.is_persistent or kind.is_quorum)

    @property
    def is_kept(self) -> bool:
        """Wherever it is."""
        return self.is_kept_in(self.queue.name) and (not self.may_be_in(DEAD) or self.is_kept_in(DEAD))

    def __repr__(self) -> str:
        return f"{self.body[:24]!r} of {self.queue.name}"


class AmqpPromises:
    def __init__(self) -> None:
        self._messages: dict[bytes, list[Message]] = {}

    def _all(self) -> Iterator[Message]:
        return (message for copies in self._messages.values() for message in copies)

    def asked(self, copies: list[Message]) -> None:
        """One message, for each queue that it goes to."""
        self._messages[_name(copies[0].body)] = copies

    def confirmed(self, copies: list[Message]) -> None:
        for message in copies:
            if message.is_refused:
                _fail(f"{message} was confirmed after it was refused")
            message.is_confirmed = True

    def refused(self, copies: list[Message]) -> None:
        """Of several queues some may have it all the same."""
        if len(copies) > 1:
            return
        (message,) = copies
        if message.is_confirmed or message.is_seen:
            _fail(f"{message} was refused after it was confirmed or seen")
        message.is_refused = True

    def delivered(self, queue: str, body: bytes, is_redelivered: bool, life: Host) -> list[Message]:
        """All that it may have been: of dead letters nobody knows from which queue they came."""
        copies = self._known(queue, body, "delivered")
        if len(copies) == 1:
            self._delivered(queue, copies[0], is_redelivered, life)
        return copies

    def _delivered(self, queue: str, message: Message, is_redelivered: bool, life: Host) -> None:
        if message.is_gone:
            _fail(f"{message} was delivered, and a recovery had not found it")
        if queue in message.settled and queue != DEAD:
            _fail(f"{message} was delivered again, and had been settled")
        if not message.is_kept_in(message.queue.name) and message.life is not life:
            _fail(f"{message} was delivered after a restart, and was transient")
        if message.given.get(queue) is life and not is_redelivered and queue != DEAD:
            _fail(f"{message} was delivered again as if for the first time")
        message.given[queue] = life
        message.is_seen = True

    def _known(self, queue: str, body: bytes, how: str) -> list[Message]:
        copies = self._messages.get(_name(body))
        if copies is None:
            _fail(f"{body[:24]!r} was {how}, and nobody has sent it")
        if copies[0].body != body:
            _fail(f"{copies[0]} was {how} with other bytes")
        if copies[0].is_refused:
            _fail(f"{copies[0]} was {how}, and had been refused")
        found = [message for message in copies if message.may_be_in(queue)]
        if not found:
            _fail(f"{copies[0]} was {how} from {queue}")
        return found

    # -- after a restart

    def recovered(self, found: Mapping[str, Sequence[bytes]], is_orderly: bool) -> None:
        """`is_orderly`: there was no crash, so nothing that was settled may be back."""
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
            _fail(f"{message} is there after a restart, and was transient")
        if message.is_gone:
            _fail(f"{message} is there, and an earlier recovery had not found it")
        if queue in message.settled and is_orderly:
            _fail(f"{message} is back without a crash, and had been settled")
        # It was not heard, or is forgotten: the message is here and is to be delivered.
        message.acknowledged.discard(queue)
        message.settled.discard(queue)

    def _check_lost(self, message: Message) -> None:
        if message.is_kept and (message.is_confirmed or message.is_seen) and not message.acknowledged:
            _fail(f"{message} is lost")
        # One that was acknowledged, or moved, may come back with a later crash.
        message.is_gone = not message.acknowledged and not message.may_be_in(DEAD)

    # -- in the end

    def owed(self, life: Host) -> Iterator[Message]:
        """What must be delivered to somebody who asks for everything."""
        for message in self._all():
            is_there = message.is_kept or message.life is life
            if is_there and (message.is_confirmed or message.is_seen) and not message.acknowledged:
                yield message


class Arrivals:
    """What one consumer got for the first time of a queue: the messages of each connection of a publisher in the order
    of their publishing."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, int], Message] = {}

    def came(self, message: Message) -> None:
        line = message.queue.name, *message.source
        before = self._last.get(line)
        if before is not None and before.number > message.number:
            _fail(f"{message} came after {before}")
        self._last[line] = message


def _check_order(messages: Sequence[Message]) -> None:
    arrivals = Arrivals()
    for message in messages:
        arrivals.came(message)


def _name(body: bytes) -> bytes:
    return body.split(b"|", 1)[0]


def _fail(reason: str) -> NoReturn:
    raise SimulationFailure(reason)
