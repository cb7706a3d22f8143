"""Writes the outcome of a transaction: a marker on each of its streams, and the groups' cursors. Knows nothing of a
transaction's state but that outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from trimq.core.metadata.cursors import Cursors
from trimq.core.partitions.stream import Stream
from trimq.core.transactions.transaction import MAX_PRODUCER_EPOCH, PendingCursor, ProducerIdentity, Transaction
from trimq.errors import Refusal, StaleProducer
from trimq.formats.kafka_batch.header import read_header, stamp_append_time
from trimq.formats.kafka_batch.markers import Marker, control_batch
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.partition_log.producers import NO_OFFSET

log = logging.getLogger(__name__)


class MarkerWriter:
    """`streams` returns every stream that exists, `find_stream` one of them."""

    def __init__(
        self,
        streams: Callable[[], Iterable[Stream]],
        find_stream: Callable[[StreamId], Stream | None],
        leader_epoch: Callable[[StreamId], int],
        cursors: Cursors,
        passes: Passes,
        now_ms: Callable[[], int],
    ) -> None:
        self._streams = streams
        self._find_stream = find_stream
        self._leader_epoch = leader_epoch
        self._cursors = cursors
        self._passes = passes
        self._now_ms = now_ms

    def write_markers(self, transaction: Transaction, done: Callable[[bool], None]) -> None:
        """Writes the markers and cursors of a prepared transaction. Calls `done` with True when all are durable, or
        with False if some could not be written: writing all of them again does no harm. May call `done` before it
        returns."""
        tickets = [
            self._append(stream, transaction.producer_id, transaction.epoch, transaction.is_commit)
            for stream in map(self._find_stream, transaction.streams)
            if stream is not None  # None if its topic was deleted meanwhile
        ]
        if transaction.is_commit:
            tickets += [ticket for cursor in transaction.cursors if (ticket := self._move(cursor)) is not None]
        if all(ticket.refusal is not None for ticket in tickets):
            done(not tickets)
            return
        last = max(tickets, key=lambda ticket: ticket.number)
        self._passes.on_durable(last, partial(_report, tickets, done))

    def abort_stray(self, producer_id: int, id: StreamId) -> Ticket | None:
        """Aborts open records of a producer on a stream that no transaction will end. Returns None if there are
        none."""
        stream = self._find_stream(id)
        state = None if stream is None else stream.log.producers.get(producer_id)
        if stream is None or state is None or state.open_from == NO_OFFSET:
            return None
        # With the next epoch: in the same epoch, a batch that the producer sends again after this abort would be taken
        # for a duplicate, and would be missing from its transaction.
        return self._append(stream, producer_id, min(state.epoch + 1, MAX_PRODUCER_EPOCH), is_commit=False)

    def write_by_hand(self, stream: Stream, producer: ProducerIdentity, marker: Marker) -> Ticket:
        """Ends the open records of a producer on one stream, whatever its transaction does. Raises StaleProducer if the
        producer has a newer epoch there."""
        state = stream.log.producers.get(producer.id)
        if state is not None and producer.epoch < state.epoch:
            raise StaleProducer(producer.id, state.epoch)
        return self._append(stream, producer.id, producer.epoch, marker.commit, marker.coordinator_epoch)

    def find_strays(self, known: Collection[tuple[int, StreamId]]) -> list[tuple[int, StreamId]]:
        """Returns producers and streams with open records that belong to no known transaction: it was lost in a crash
        before it was durable. Consumers would wait for its end forever."""
        strays = []
        for stream in self._streams():
            if stream.log.producers.first_open_offset() is None:
                continue
            for producer_id, state in stream.log.producers.items():
                if state.open_from != NO_OFFSET and (producer_id, stream.id) not in known:
                    log.warning(
                        "%s: aborting open records of producer %d (no transaction ends them)",
                        stream.log.folder,
                        producer_id,
                    )
                    strays.append((producer_id, stream.id))
        return strays

    def _append(
        self, stream: Stream, producer_id: int, epoch: int, is_commit: bool, coordinator_epoch: int | None = None
    ) -> Ticket:
        leader_epoch = self._leader_epoch(stream.id)
        if coordinator_epoch is None:
            coordinator_epoch = leader_epoch
        now_ms = self._now_ms()
        batch = bytearray(control_batch(producer_id, epoch, coordinator_epoch, is_commit, now_ms, stream.end))
        if stream.rules.keeps_append_time:
            stamp_append_time(batch, now_ms)
        try:
            return stream.append(batch, read_header(batch), leader_epoch).ticket
        except Refusal as refusal:  # raised at once if a new segment could not be created
            ticket = Ticket(self._passes.durable)
            ticket.refusal = refusal
            return ticket

    def _move(self, pending: PendingCursor) -> Ticket | None:
        stream = self._find_stream(pending.stream)
        if stream is None or pending.is_older_than(self._cursors.fetch(pending.group, pending.stream)):
            return None
        return self._cursors.commit(
            pending.group,
            pending.stream,
            pending.offset,
            pending.metadata,
            pending.leader_epoch,
            committed_ms=pending.sent_ms,
        )


def _report(tickets: Collection[Ticket], done: Callable[[bool], None], _: Ticket) -> None:
    done(all(ticket.refusal is None for ticket in tickets))
