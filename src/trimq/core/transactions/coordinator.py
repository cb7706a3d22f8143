"""Transaction coordinator: stores the states of transactions, aborts those that time out, and carries out decisions. An
outcome is made durable first, then every stream gets its marker, then the transaction is complete. A restart continues
from the step that was interrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from trimq.clock import Clock, Timer
from trimq.core.metadata.cursors import Cursors
from trimq.core.metadata.durable_map import DurableMap
from trimq.core.partitions.stream import Stream
from trimq.core.transactions import transaction
from trimq.core.transactions.lowest_sequences import LowestSequences
from trimq.core.transactions.marker_writer import MarkerWriter
from trimq.core.transactions.producer_ids import AllocatedProducerId, ProducerIds
from trimq.core.transactions.transaction import NONE, PendingCursor, ProducerIdentity, Transaction
from trimq.errors import Refusal
from trimq.errors.transactions import InvalidTransactionTimeout, TransactionUnderWay, UnknownTransaction
from trimq.formats.kafka_batch.header import BatchHeader
from trimq.formats.kafka_batch.markers import Marker
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Passes, Ticket

log = logging.getLogger(__name__)

EndCallback = Callable[[Transaction | Refusal, Ticket | None], None]

_MAX_TIMEOUT_MS = 900_000
_RETRY_MS = 500
_SWEEP_MS = 3_600_000
_KEPT_MS = 7 * 86_400_000


class TransactionCoordinator:
    """A change is visible at once and durable once its ticket's pass is durable. If the pass is refused, the change is
    rolled back."""

    def __init__(
        self,
        table: DurableMap[Transaction],
        ids: ProducerIds,
        marker_writer: MarkerWriter,
        cursors: Cursors,
        passes: Passes,
        clock: Clock,
    ) -> None:
        self._table = table
        self._ids = ids
        self._marker_writer = marker_writer
        self._cursors = cursors
        self._passes = passes
        self._clock = clock
        self._latest: Ticket | None = None
        self._waiting: dict[str, list[EndCallback]] = {}
        self._timers: dict[str, Timer] = {}
        self._joining: list[tuple[Ticket, int, StreamId]] = []
        self._strays: set[tuple[int, StreamId]] = set()
        """Pairs of a producer and a stream that could not be added to its transaction, but has its records. The
        producer has to wait until those are aborted."""
        self._lowest_sequences = LowestSequences()
        self._sweep_timer: Timer | None = None
        self._is_started = False
        for name, known in table.items():
            self._hold(name, known)
        table.on_undone(self._rolled_back)

    # -- life cycle

    def start(self) -> None:
        """Continues transactions that the last run left unfinished."""
        self._is_started = True
        for name, known in list(self._table.items()):
            if known.is_prepared:
                self._write_markers(name)
            else:
                self._arm(name)
        undecided = [known for _, known in self._table.items() if known.is_ongoing or known.is_prepared]
        known_streams = {(known.producer_id, stream) for known in undecided for stream in known.streams}
        for stray in self._marker_writer.find_strays(known_streams):
            self._strays.add(stray)
            self._abort_stray(*stray)
        self._await_sweep()

    def stop(self) -> None:
        """Stops timeouts and retries. Decided transactions are still completed."""
        self._is_started = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    # -- lookup

    def get(self, name: str) -> Transaction:
        known = self._table.get(name)
        if known is None:
            raise UnknownTransaction(name)
        return known

    def all(self) -> list[tuple[str, Transaction]]:
        return list(self._table.items())

    # -- producers

    def allocate_producer_id(self) -> AllocatedProducerId:
        """Returns an id for a producer without transactions."""
        return self._ids.next()

    def init_producer(self, name: str, claimed: ProducerIdentity | None, timeout_ms: int) -> tuple[Transaction, Ticket]:
        """Registers a producer under the transactional id `name`. Fences the previous producer, and first aborts its
        ongoing transaction: raises TransactionUnderWay until that is done."""
        if not 0 < timeout_ms <= _MAX_TIMEOUT_MS:
            raise InvalidTransactionTimeout(timeout_ms, _MAX_TIMEOUT_MS)
        known, now_ms = self._table.get(name), self._clock.message.now_ms()
        if known is None:
            return self._init_new_producer(name, timeout_ms)
        taken = transaction.renew(known, claimed, timeout_ms, now_ms, self._new_id)
        ticket = self._put(name, taken)
        if taken.is_prepared:
            self._write_markers_when_durable(name, ticket)
            raise TransactionUnderWay
        return taken, ticket

    def _init_new_producer(self, name: str, timeout_ms: int) -> tuple[Transaction, Ticket]:
        taken = transaction.begin(self._new_id(), timeout_ms, self._clock.message.now_ms())
        return taken, self._put(name, taken)

    def _new_id(self) -> int:
        # A new block is reserved in the same pass as the state that needs it, and ids in use are never allocated again.
        return self._ids.next().id

    # -- transactions

    def add(
        self, name: str, producer: ProducerIdentity, streams: Iterable[StreamId] = (), groups: Iterable[str] = ()
    ) -> Ticket | None:
        """Adds streams to write to, and groups with cursors to move. Returns None if they are durably added already."""
        known = self._table.get(name)
        added = transaction.add(known, producer, streams, groups, self._clock.message.now_ms())
        return self._latest if added is known else self._put(name, added)

    def join(self, name: str, producer: ProducerIdentity, stream: StreamId) -> Ticket | None:
        """Adds the stream of a batch that is about to be appended, if needed. The batch counts only if the ticket is
        not refused. Returns None if the stream is durably added already."""
        if (producer.id, stream) in self._strays:
            raise TransactionUnderWay
        known = self._table.get(name)
        added = transaction.add(known, producer, [stream], (), self._clock.message.now_ms())
        if added is not known:
            ticket = self._put(name, added)
            self._joining.append((ticket, producer.id, stream))
            self._passes.on_durable(ticket, self._joined)
        return self._latest

    def note_sequence(self, stream: Stream, header: BatchHeader, starts_at_zero: bool) -> None:
        """Notes the sequence number of a batch unless its producer has a transaction on the stream."""
        state = stream.log.producers.get(header.producer_id)
        if state is None or state.open_from == NONE or state.epoch != header.producer_epoch:
            self._lowest_sequences.note(
                header.producer_id, stream.id, header.producer_epoch, header.base_sequence, starts_at_zero
            )

    def highest_sequence(self, stream: Stream, header: BatchHeader) -> int | None:
        is_known = stream.log.producers.get(header.producer_id) is not None
        return self._lowest_sequences.highest_allowed(header.producer_id, stream.id, is_known)

    def has_open_records(self, stream: Stream, producer: ProducerIdentity) -> bool:
        """Returns whether the producer has records on the stream whose transaction is not decided yet."""
        state = stream.log.producers.get(producer.id)
        if state is None or state.open_from == NONE or state.epoch != producer.epoch:
            return False
        return not any(known.is_prepared and known.producer_id == producer.id for _, known in self._table.items())

    @property
    def has_refused_batches(self) -> bool:
        return bool(self._lowest_sequences)

    def accepted(self, stream: Stream, header: BatchHeader) -> None:
        self._lowest_sequences.forget(header.producer_id, stream.id)

    def _joined(self, ticket: Ticket) -> None:
        done = [join for join in self._joining if join[0] is ticket]
        self._joining = [join for join in self._joining if join[0] is not ticket]
        if ticket.refusal is not None:
            for _, producer_id, stream in done:
                self._abort_stray(producer_id, stream)

    def write_marker(self, stream: Stream, producer: ProducerIdentity, marker: Marker) -> Ticket:
        """Ends open records of a producer on one stream, whatever its transaction does."""
        ticket = self._marker_writer.write_by_hand(stream, producer, marker)
        self._lowest_sequences.end_transaction(producer.id, stream.id, producer.epoch)
        return ticket

    def _abort_stray(self, producer_id: int, stream: StreamId) -> None:
        """Aborts records that may be in the log, but that no transaction will end."""
        ticket = self._marker_writer.abort_stray(producer_id, stream)
        if ticket is None:
            self._strays.discard((producer_id, stream))
        elif ticket.refusal is not None:
            self._stray_aborted(producer_id, stream, ticket)
        else:
            self._passes.on_durable(ticket, lambda done: self._stray_aborted(producer_id, stream, done))

    def _stray_aborted(self, producer_id: int, stream: StreamId, ticket: Ticket) -> None:
        if ticket.refusal is None:
            self._strays.discard((producer_id, stream))
        elif self._is_started:
            timeline = self._clock.liveness
            timeline.call_at(timeline.now_ms() + _RETRY_MS, lambda: self._abort_stray(producer_id, stream))

    def require_stream(self, name: str, producer: ProducerIdentity, stream: StreamId) -> None:
        """Raises a refusal if the stream was not added to the transaction."""
        transaction.require_stream(self._table.get(name), producer, stream)

    def require_group(self, name: str, producer: ProducerIdentity, group: str) -> None:
        """Raises a refusal if the group was not added to the transaction."""
        transaction.require_group(self._table.get(name), producer, group)

    def commit_cursors(
        self, name: str, producer: ProducerIdentity, group: str, cursors: Sequence[PendingCursor]
    ) -> Ticket:
        """Adds cursors of the group that move if the transaction commits."""
        known, now_ms = self._table.get(name), self._clock.message.now_ms()
        seen = [
            PendingCursor(
                group,
                cursor.stream,
                cursor.offset,
                now_ms,
                cursor.leader_epoch,
                cursor.metadata,
                self._cursors.fetch(group, cursor.stream),
            )
            for cursor in cursors
        ]
        return self._put(name, transaction.commit_cursors(known, producer, group, seen, now_ms))

    def drop_cursors(self, group: str, stream: StreamId | None = None) -> Ticket | None:
        """Removes the cursors of a deleted group, or its deleted cursor of a stream, from open transactions. Returns
        None if there were none."""
        ticket = None
        for name in self._cursors.holders(group):
            known = self.get(name)
            dropped = transaction.drop_cursors(known, group, stream, self._clock.message.now_ms())
            if dropped is not known:
                ticket = self._put(name, dropped)
                if dropped.is_prepared:
                    self._retry(name)  # the change has cancelled the timer that retries the markers
        return ticket

    def end(
        self, name: str, producer: ProducerIdentity, is_commit: bool, bumps_epoch: bool, answer: EndCallback
    ) -> None:
        """Commits or aborts. Calls `answer` when every stream has its durable marker, with the complete transaction and
        the ticket of that state, or with a refusal. If this raises a refusal, `answer` is not called."""
        known, now_ms = self._table.get(name), self._clock.message.now_ms()
        ended = transaction.end(known, producer, is_commit, bumps_epoch, now_ms, self._new_id)
        if ended is known:
            answer(ended, self._latest)
            return
        self._waiting.setdefault(name, []).append(answer)
        self._write_markers_when_durable(name, self._put(name, ended))

    # -- markers

    def _write_markers_when_durable(self, name: str, ticket: Ticket) -> None:
        self._passes.on_durable(ticket, lambda done: self._outcome_durable(name, done))

    def _outcome_durable(self, name: str, ticket: Ticket) -> None:
        if ticket.refusal is not None:
            self._respond(name, ticket.refusal, None)
            return
        self._write_markers(name)

    def _write_markers(self, name: str) -> None:
        known = self._table.get(name)
        if known is not None and known.is_prepared:
            self._marker_writer.write_markers(known, lambda is_done: self._markers_written(name, known, is_done))

    def _markers_written(self, name: str, known: Transaction, is_done: bool) -> None:
        if not is_done:
            log.warning("transaction %s: markers not written, will be retried", name)
            self._retry(name)
            return
        for stream in known.streams:
            self._lowest_sequences.end_transaction(known.producer_id, stream, known.epoch)
        done = transaction.complete(known, self._clock.message.now_ms())
        ticket = self._put(name, done)
        self._respond(name, done, ticket)

    def _retry(self, name: str) -> None:
        if self._is_started:
            timeline = self._clock.liveness
            self._set_timer(name, timeline.call_at(timeline.now_ms() + _RETRY_MS, lambda: self._write_markers(name)))

    def _respond(self, name: str, outcome: Transaction | Refusal, ticket: Ticket | None) -> None:
        for answer in self._waiting.pop(name, ()):
            answer(outcome, ticket)

    # -- timeouts

    def _arm(self, name: str) -> None:
        """Sets the timeout of an ongoing transaction."""
        known = self._table.get(name)
        if known is None or not known.is_ongoing:
            timer = self._timers.pop(name, None)
            if timer is not None:
                timer.cancel()
        elif self._is_started and name not in self._timers:
            self._set_timer(name, self._clock.message.call_at(known.due_ms, lambda: self._expire(name, known)))

    def _set_timer(self, name: str, timer: Timer) -> None:
        old = self._timers.pop(name, None)
        if old is not None:
            old.cancel()
        self._timers[name] = timer

    def _expire(self, name: str, armed_for: Transaction) -> None:
        self._timers.pop(name, None)
        known, now_ms = self._table.get(name), self._clock.message.now_ms()
        if known is None or not known.is_ongoing:
            return
        if known.started_ms != armed_for.started_ms or known.producer != armed_for.producer:
            self._arm(name)
            return
        log.info("transaction %s: aborted (open for more than %d ms)", name, known.timeout_ms)
        self._write_markers_when_durable(name, self._put(name, transaction.expire(known, now_ms)))

    def _await_sweep(self) -> None:
        timeline = self._clock.message
        self._sweep_timer = timeline.call_at(timeline.now_ms() + _SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        """Deletes transactional ids that were unused for `_KEPT_MS`."""
        before_ms = self._clock.message.now_ms() - _KEPT_MS
        for name, known in list(self._table.items()):
            if not known.is_ongoing and not known.is_prepared and known.changed_ms < before_ms:
                self._latest = self._table.delete(name)
        self._await_sweep()

    # -- storage

    def _put(self, name: str, known: Transaction) -> Ticket:
        self._latest = ticket = self._table.put(name, known)
        self._changed(name, known)
        return ticket

    def _changed(self, name: str, known: Transaction | None) -> None:
        self._hold(name, known)
        self._arm(name)

    def _hold(self, name: str, known: Transaction | None) -> None:
        cursors = () if known is None else known.cursors
        self._cursors.hold(name, {(cursor.group, cursor.stream) for cursor in cursors})

    def _rolled_back(self, names: Collection[str]) -> None:
        self._latest = None
        for ticket, producer_id, stream in self._joining:
            if ticket.refusal is not None:
                self._strays.add((producer_id, stream))
        for name in names:
            known = self._table.get(name)
            self._changed(name, known)
            if known is not None and known.is_prepared:
                self._retry(name)
            elif known is not None and known.is_ongoing and self._is_started:
                self._rearm(name, known)

    def _rearm(self, name: str, known: Transaction) -> None:
        """Postpones an overdue timeout: a write that was just refused would probably be refused again."""
        timeline = self._clock.message
        due_ms = max(known.due_ms, timeline.now_ms() + _RETRY_MS)
        self._set_timer(name, timeline.call_at(due_ms, lambda: self._expire(name, known)))
