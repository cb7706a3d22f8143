"""Operations on producers and transactions that front-ends may call, reached as `broker.transactions`. Each checks the
caller's rights, then delegates; there is no logic here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimq.core.partitions.stream import Stream
from trimq.core.security.access import BROKER, Access, Action, Resource, ResourceKind, group_resource
from trimq.core.transactions.coordinator import EndCallback, TransactionCoordinator
from trimq.core.transactions.producer_ids import AllocatedProducerId
from trimq.core.transactions.transaction import PendingCursor, ProducerIdentity, Transaction
from trimq.errors import NotRunning
from trimq.errors.transactions import ForeignProducer
from trimq.formats.kafka_batch.header import BatchHeader
from trimq.formats.kafka_batch.markers import Marker
from trimq.model import DEFAULT_NAMESPACE, Caller, StreamId
from trimq.storage.group_commit.passes import Ticket


class TransactionApi:
    def __init__(self, registry: TransactionCoordinator, access: Access, is_running: Callable[[], bool]) -> None:
        self._registry = registry
        self._access = access
        self._is_running = is_running

    # -- inspection

    def all(self, caller: Caller) -> list[tuple[str, Transaction]]:
        """Transactions that the caller may see, by name."""
        return [
            (name, known)
            for name, known in self._registry.all()
            if self._access.allowed(caller, Action.DESCRIBE, _resource(name))
        ]

    @property
    def is_used(self) -> bool:
        """True if there is any transactional id."""
        return bool(self._registry.all())

    def describe(self, caller: Caller, name: str) -> Transaction:
        self._access.require(caller, Action.DESCRIBE, _resource(name))
        return self._registry.get(name)

    # -- producers

    def allocate_producer_id(self, caller: Caller) -> AllocatedProducerId:
        """Allocates a producer id for an idempotent producer without transactions."""
        if not self._is_running():
            raise NotRunning
        return self._registry.allocate_producer_id()

    def init_producer(
        self, caller: Caller, name: str, claimed: ProducerIdentity | None, timeout_ms: int
    ) -> tuple[Transaction, Ticket]:
        """Starts a producer with this transactional id; fences the previous one."""
        self._require(caller, name)
        return self._registry.init_producer(name, claimed, timeout_ms)

    # -- life cycle of a transaction

    def add_streams(
        self, caller: Caller, name: str, producer: ProducerIdentity, streams: Sequence[StreamId]
    ) -> Ticket | None:
        """Adds streams, which the caller may write, to the transaction. Returns None if they are durably added
        already."""
        self._require(caller, name)
        return self._registry.add(name, producer, streams=streams)

    def add_group(self, caller: Caller, name: str, producer: ProducerIdentity, group: str) -> Ticket | None:
        """Adds a group whose cursors the transaction will move. Returns None if it is durably added already."""
        self._require(caller, name)
        self._access.require(caller, Action.READ, group_resource(group))
        return self._registry.add(name, producer, groups=[group])

    def check_append(
        self, caller: Caller, name: str, stream: Stream, header: BatchHeader, may_join: bool
    ) -> Ticket | None:
        """Raises if the batch is not part of the transaction. `may_join`: adds the stream if necessary, and the batch
        counts only if the ticket is not refused."""
        self._require(caller, name)
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        self._registry.note_sequence(stream, header, starts_at_zero=may_join)
        try:
            if may_join:
                return self._registry.join(name, producer, stream.id)
            self._registry.require_stream(name, producer, stream.id)
        except ForeignProducer:
            # As in Kafka, which asks for the transaction only before its first batch on the stream.
            if not self._registry.has_open_records(stream, producer):
                raise
        return None

    def highest_sequence(self, stream: Stream, header: BatchHeader) -> int | None:
        """Returns the highest sequence number that the stream may accept of the producer, or None for any: later
        batches follow one that was refused because of its transaction."""
        return self._registry.highest_sequence(stream, header)

    @property
    def has_refused_batches(self) -> bool:
        """True if `highest_sequence` has to be asked for every producer."""
        return self._registry.has_refused_batches

    def accepted(self, stream: Stream, header: BatchHeader) -> None:
        """Tells that the batch of a transaction was appended."""
        self._registry.accepted(stream, header)

    def require_group(self, caller: Caller, name: str, producer: ProducerIdentity, group: str) -> None:
        """Raises if the group was not added to the transaction."""
        self._require(caller, name)
        self._access.require(caller, Action.READ, group_resource(group))
        self._registry.require_group(name, producer, group)

    def commit_cursors(
        self, caller: Caller, name: str, producer: ProducerIdentity, group: str, cursors: Sequence[PendingCursor]
    ) -> Ticket:
        """Moves cursors of a group, in streams that the caller may read, if the transaction commits."""
        self._require(caller, name)
        self._access.require(caller, Action.READ, group_resource(group))
        return self._registry.commit_cursors(name, producer, group, cursors)

    def end(
        self,
        caller: Caller,
        name: str,
        producer: ProducerIdentity,
        is_commit: bool,
        bumps_epoch: bool,
        answer: EndCallback,
    ) -> None:
        """Commits or aborts. Calls `answer` once, perhaps before this returns. If this raises a refusal, `answer` is
        not called."""
        self._require(caller, name)
        self._registry.end(name, producer, is_commit, bumps_epoch, answer)

    def write_marker(self, caller: Caller, stream: Stream, producer: ProducerIdentity, marker: Marker) -> Ticket:
        """Ends open records of a producer on a stream by hand, for an administrator."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if not self._is_running():
            raise NotRunning
        return self._registry.write_marker(stream, producer, marker)

    def _require(self, caller: Caller, name: str) -> None:
        self._access.require(caller, Action.WRITE, _resource(name))
        if not self._is_running():
            raise NotRunning


def _resource(name: str) -> Resource:
    """Transactions belong to no virtual host, as groups."""
    return Resource(ResourceKind.TRANSACTION, DEFAULT_NAMESPACE, name)
