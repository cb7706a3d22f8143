"""Idempotent Kafka producers on topics of other layouts: recognizes repeated batches, also after a restart.

The last batches of each producer are one row of a table, written in the pass of the messages. Each message carries its
producer, epoch and sequence, so a start finds out which of the two a crash has lost."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

import msgspec

from trimq.core.crossing.streams import MESSAGES_AT_ONCE, ForeignStream
from trimq.core.crossing.targets import Placed
from trimq.core.metadata.durable_map import DurableMap
from trimq.errors import OffsetOutOfRange, OutOfOrderSequence, StaleProducer
from trimq.formats.kafka_batch.header import BatchHeader
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Ticket

_SEQUENCES = 1 << 31
_BATCHES = 5
_EXPIRY_MS = 86_400_000

# Messages behind the last row of a stream, or of its end, that the first batch after a start looks at.
_TAIL = 2000


class SentBatch(msgspec.Struct, frozen=True, array_like=True):
    first_sequence: int
    last_sequence: int
    offset: int


class ProducerRow(msgspec.Struct, frozen=True, array_like=True):
    """The last batches of a producer in one stream, the newest last."""

    epoch: int
    batches: tuple[SentBatch, ...]
    sent_ms: int


class ForeignProducers:
    """`find_stream` returns the stream of a topic that still exists."""

    def __init__(
        self,
        table: DurableMap[ProducerRow],
        find_stream: Callable[[StreamId], ForeignStream | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._table = table
        self._find_stream = find_stream
        self._now_ms = now_ms
        self._rows: dict[tuple[StreamId, int], ProducerRow] = {}
        self._tickets: dict[tuple[StreamId, int], Ticket] = {}
        self._known_ends: dict[StreamId, int] = {}
        """Where the search for messages without a row starts, of streams that were not searched yet."""
        self._searched: set[StreamId] = set()
        table.on_undone(self._rolled_back)

    def open(self) -> None:
        """Loads the rows. Drops batches whose messages a crash has taken, and rows of deleted topics and of producers
        that are long gone."""
        oldest_ms = self._now_ms() - _EXPIRY_MS
        for key, row in list(self._table.items()):
            stream_id, producer = _read_key(key)
            stream = self._find_stream(stream_id)
            if stream is None or row.sent_ms < oldest_ms:
                self._table.delete(key)
                continue
            end = stream.readable_end
            batches = tuple([each for each in row.batches if each.offset + _length(each) <= end])
            if batches:
                self._rows[stream_id, producer] = msgspec.structs.replace(row, batches=batches)
                known = max(each.offset + _length(each) for each in batches)
                self._known_ends[stream_id] = max(self._known_ends.get(stream_id, 0), known)

    def find_duplicate(self, stream: ForeignStream, header: BatchHeader) -> Placed | None:
        """Returns the first append of a repeated batch, None if the batch is new. Raises StaleProducer, or
        OutOfOrderSequence if a batch is missing before this one."""
        if stream.id not in self._searched:
            self._search(stream)
        place = stream.id, header.producer_id
        row = self._rows.get(place)
        if row is None:
            return None  # unknown or expired: any first sequence is valid, as on Kafka's own topics
        if header.producer_epoch < row.epoch:
            raise StaleProducer(header.producer_id, row.epoch)
        expected = 0
        if header.producer_epoch == row.epoch:
            for sent in row.batches:
                if (sent.first_sequence, sent.last_sequence) == (header.base_sequence, header.last_sequence):
                    ticket = self._tickets.get(place)
                    return Placed(sent.offset, () if ticket is None else (ticket,))
            expected = (row.batches[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise OutOfOrderSequence(header.producer_id, expected, header.base_sequence)
        return None

    def note(self, stream: StreamId, header: BatchHeader, placed: Placed) -> Placed:
        """Notes an appended batch, in the same pass."""
        place = stream, header.producer_id
        row = self._rows.get(place)
        sent = SentBatch(header.base_sequence, header.last_sequence, placed.base_offset)
        known = () if row is None or row.epoch != header.producer_epoch else row.batches[1 - _BATCHES :]
        self._rows[place] = row = ProducerRow(header.producer_epoch, (*known, sent), self._now_ms())
        ticket = self._tickets[place] = self._table.put(_key(stream, header.producer_id), row)
        return placed._replace(tickets=(*placed.tickets, ticket))

    def _search(self, stream: ForeignStream) -> None:
        """Finds batches without a row, once after a start: those that were written last before a crash."""
        self._searched.add(stream.id)
        end = stream.readable_end
        offset = max(self._known_ends.pop(stream.id, 0), end - _TAIL, stream.start)
        while offset < end:
            try:
                found = stream.read(offset, MESSAGES_AT_ONCE, 1 << 20, may_wait=True)
            except OffsetOutOfRange:
                return
            for each, message in found.messages:
                if message.sequence:
                    self._learn(stream.id, each, message.sequence)
            if found.next_offset <= offset:
                return
            offset = found.next_offset

    def _learn(self, stream: StreamId, offset: int, text: str) -> None:
        try:
            producer, epoch, first, last, sequence = map(int, text.split("/"))
        except ValueError:
            return
        if sequence != last:
            return  # the batch counts once its last message is there
        place = stream, producer
        row = self._rows.get(place)
        if row is not None and (row.epoch > epoch or any(each.last_sequence == last for each in row.batches)):
            return
        sent = SentBatch(first, last, offset - (sequence - first) % _SEQUENCES)
        known = () if row is None or row.epoch != epoch else row.batches[1 - _BATCHES :]
        self._rows[place] = ProducerRow(epoch, (*known, sent), self._now_ms())

    def _rolled_back(self, keys: Collection[str]) -> None:
        for key in keys:
            place = _read_key(key)
            row = self._table.get(key)
            self._tickets.pop(place, None)
            if row is None:
                self._rows.pop(place, None)
            else:
                self._rows[place] = row


def sequence_text(header: BatchHeader, index: int) -> str:
    """Returns what the message with this index in its batch carries."""
    sequence = (header.base_sequence + index) % _SEQUENCES
    return f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}/{header.last_sequence}/{sequence}"


def _length(sent: SentBatch) -> int:
    return (sent.last_sequence - sent.first_sequence) % _SEQUENCES + 1


def _key(stream: StreamId, producer: int) -> str:
    return f"{stream.topic.hex}/{stream.number}/{producer}"


def _read_key(key: str) -> tuple[StreamId, int]:
    topic, number, producer = key.split("/")
    return StreamId(UUID(topic), int(number)), int(producer)
