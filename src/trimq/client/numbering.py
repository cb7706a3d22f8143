"""Detection of loss: a producer numbers its messages, a consumer finds numbers that are missing, repeated or late."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from trimq.client.consuming.received import ReceivedFields
from trimq.client.errors import BadMessage
from trimq.client.messages import Message, MessageQueue
from trimq.client.sending.encoding import NUMBER, PRODUCER
from trimq.formats.sequences import SEQUENCES, Fault, ProducerStream, SeenSequences, SequenceLedger, SequenceRun

log = logging.getLogger(__name__)

_EPOCH = 0  # a producer that starts again has another id


class Numbering:
    """Numbers the messages of one producer, for each topic and each of its places. Give it to a client twice:
    `AsyncClient(…, interceptors=[numbering], choose=numbering.choose)`, as the last interceptor, so that no message is
    dropped after it has got its number.

    `pin`: places in the sorted list of the topic's writable queues; the producer sends to these alone, in turn.
    A message has the properties TRIMQ_BY, with producer and place, and TRIMQ_NO, from 0 on. A send that fails leaves a
    gap, as it should: the message is lost."""

    def __init__(self, pin: Sequence[int] = (0,), producer: int | None = None, rng: Random | None = None) -> None:
        if not pin or any(place < 0 for place in pin) or len(set(pin)) != len(pin):
            raise ValueError(f"pin must name places from 0 on, each once: {list(pin)}")
        self.producer = (rng or Random()).getrandbits(62) if producer is None else producer
        self._pin = tuple(pin)
        self._turns: dict[str, int] = {}
        self._next: dict[tuple[str, int], int] = {}

    def __call__(self, topic: str, message: Message) -> Message:
        """Gives a message its place and number."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        place = self._pin[turn % len(self._pin)]
        number = self._next.get((topic, place), 0)
        self._next[topic, place] = (number + 1) % SEQUENCES
        headers = {**message.headers, PRODUCER: f"{self.producer}.{place}", NUMBER: str(number)}
        return msgspec.structs.replace(message, headers=headers)

    def choose(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Returns the queue at the place of the message."""
        stamp = message.headers.get(PRODUCER)
        if stamp is None:
            raise BadMessage("this message has no number: Numbering must also be an interceptor of the client")
        place = int(stamp.partition(".")[2])
        if place >= len(queues):
            raise BadMessage(f"the producer is pinned to place {place}, and the topic has {len(queues)} queues")
        return queues[place]

    @property
    def counts(self) -> Mapping[tuple[str, int], int]:
        """Number of numbered messages by topic and place."""
        return dict(self._next)


class SequenceCheck:
    """Checks the numbers of received messages. Repeated and late ones are reported to `on_fault` at once; gaps, which a
    late message may still fill, are in `faults()`. Call it in the order of the queues: iterate over the consumer, or
    use `ordered=True`. Messages without a number are counted in `unstamped`.

    `kept`: what `as_json` of an earlier check returned, so that the numbers of before a rebalance or a restart are
    known. `from_start`: every producer is seen from its first message on, so number 0 may not be missing either."""

    def __init__(
        self,
        on_fault: Callable[[Fault], object] | None = None,
        *,
        kept: Mapping[str, Any] | None = None,
        from_start: bool = False,
    ) -> None:
        self._ledger = SequenceLedger() if kept is None else SequenceLedger.from_json(dict(kept))
        self._on_fault = on_fault
        self._from_start = from_start

    @property
    def unstamped(self) -> int:
        return self._ledger.unstamped.total()

    def note(self, message: ReceivedFields) -> list[Fault]:
        """Adds a message. Returns the faults that are certain at once."""
        properties = message.properties
        stamp = _read_stamp(properties.get(PRODUCER, ""), properties.get(NUMBER, ""))
        if stamp is None:
            self._ledger.unstamped[message.topic, message.queue.id] += 1
            return []
        producer, place, number = stamp
        track = ProducerStream(message.topic, place, producer, _EPOCH)
        book = self._ledger.by_stream.get(track)
        if book is None:
            book = self._ledger.by_stream[track] = SeenSequences(number - 1, [])
        found = list(book.note(SequenceRun(track, message.offset, number, 1)))
        self._ledger.found += found
        for fault in found:
            log.warning("%s: number %d of producer %d is a %s", message, fault.sequence, producer, fault.kind)
            if self._on_fault is not None:
                self._on_fault(fault)
        return found

    def faults(self) -> list[Fault]:
        """Returns all faults so far: gaps, duplicates, and messages that came after later ones."""
        tracks = self._ledger.by_stream
        return self._ledger.faults({(track.topic, track.partition) for track in tracks} if self._from_start else ())

    def as_json(self) -> dict[str, Any]:
        """Returns what was seen, to be stored with the application's state."""
        return self._ledger.as_json()


def _read_stamp(by: str, number: str) -> tuple[int, int, int] | None:
    """Returns producer, place and number, or None for a message that has none."""
    producer, _, place = by.partition(".")
    if not (producer.isdigit() and place.isdigit() and number.isdigit()) or int(number) >= SEQUENCES:
        return None
    return int(producer), int(place), int(number)
