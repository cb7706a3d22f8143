"""Transaction of one transactional id, as a state machine: an event in, the next state or a refusal out. Knows no
clock, no disk and no stream; the coordinator stores the states and writes the markers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trimq.core.metadata.cursors import NO_LEADER_EPOCH, Cursor
from trimq.errors.transactions import ForeignProducer, ProducerFenced, TransactionUnderWay, WrongTransactionState
from trimq.model import StreamId

NONE = -1
MAX_PRODUCER_EPOCH = 32_767


class TransactionState(Enum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare commit"
    PREPARE_ABORT = "prepare abort"
    COMPLETE_COMMIT = "complete commit"
    COMPLETE_ABORT = "complete abort"


_PREPARED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
_COMMITTING = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class ProducerIdentity(NamedTuple):
    """Identity of a producer. Of several with the same id, only the one with the current epoch is accepted."""

    id: int
    epoch: int


class PendingCursor(msgspec.Struct, frozen=True, array_like=True):
    """Cursor of a group after the transaction commits. `seen`: the group's cursor when this one was sent."""

    group: str
    stream: StreamId
    offset: int
    sent_ms: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    seen: Cursor | None = None

    def is_older_than(self, cursor: Cursor | None) -> bool:
        """Returns whether the group committed `cursor` after this one was sent: then the later one stays."""
        if cursor is None or cursor == self.seen:
            return False
        return cursor.committed_ms >= self.sent_ms


class Transaction(msgspec.Struct, frozen=True, array_like=True):
    """`previous_epoch`: epoch with which a client may repeat a renewal, or an end that raises the epoch. `successor_id`
    replaces `producer_id` when the transaction is complete and the epochs of `producer_id` are used up."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    changed_ms: int
    started_ms: int = NONE
    streams: frozenset[StreamId] = frozenset()
    groups: frozenset[str] = frozenset()
    cursors: tuple[PendingCursor, ...] = ()
    previous_id: int = NONE
    previous_epoch: int = NONE
    successor_id: int = NONE

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def is_ongoing(self) -> bool:
        return self.state is TransactionState.ONGOING

    @property
    def is_prepared(self) -> bool:
        """True if the outcome is decided, but not all streams have their marker yet."""
        return self.state in _PREPARED

    @property
    def is_complete(self) -> bool:
        return self.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self.state in _COMMITTING

    @property
    def due_ms(self) -> int:
        """Time at which an ongoing transaction times out."""
        return self.started_ms + self.timeout_ms


AllocateProducerId = Callable[[], int]


def begin(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """Returns the first state of a transactional id."""
    return Transaction(producer_id, 0, timeout_ms, TransactionState.EMPTY, now_ms)


def renew(
    known: Transaction, claimed: ProducerIdentity | None, timeout_ms: int, now_ms: int, new_id: AllocateProducerId
) -> Transaction:
    """Lets a producer take over the transactional id and fences the previous one. If a transaction is ongoing, returns
    its prepared abort, and the producer has to ask again. `claimed`: identity that the producer says it had."""
    is_repeated = claimed is not None and claimed != known.producer
    if is_repeated and (claimed not in _previous_producers(known) or known.is_ongoing):
        raise ProducerFenced(*known.producer)
    if known.is_prepared:
        raise TransactionUnderWay
    if known.is_ongoing:
        return _abort_with_next_epoch(known, now_ms)
    producer_id, epoch, previous_id, previous_epoch = (
        known.producer_id,
        known.epoch,
        known.previous_id,
        known.previous_epoch,
    )
    if not is_repeated:
        previous_epoch = NONE if claimed is None else epoch
        if epoch >= MAX_PRODUCER_EPOCH - 1:
            previous_id, producer_id, epoch = producer_id, new_id(), 0
        else:
            epoch += 1
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        TransactionState.EMPTY,
        now_ms,
        previous_id=previous_id,
        previous_epoch=previous_epoch,
    )


def expire(known: Transaction, now_ms: int) -> Transaction:
    """Aborts an ongoing transaction that timed out, and fences its producer."""
    return _abort_with_next_epoch(known, now_ms)


def add(
    known: Transaction | None,
    producer: ProducerIdentity,
    streams: Iterable[StreamId],
    groups: Iterable[str],
    now_ms: int,
) -> Transaction:
    """Adds streams to write to, and groups with cursors to move. Returns `known` itself if nothing is new."""
    known = require_producer(known, producer)
    if known.is_prepared:
        raise TransactionUnderWay
    streams, groups = known.streams.union(streams), known.groups.union(groups)
    if known.is_ongoing and streams == known.streams and groups == known.groups:
        return known
    started_ms = known.started_ms if known.is_ongoing else now_ms
    return replace(
        known, state=TransactionState.ONGOING, changed_ms=now_ms, started_ms=started_ms, streams=streams, groups=groups
    )


def require_stream(known: Transaction | None, producer: ProducerIdentity, stream: StreamId) -> None:
    """Raises a refusal if the stream was not added to the transaction."""
    known = require_producer(known, producer)
    if not known.is_ongoing or stream not in known.streams:
        raise WrongTransactionState("the stream is not part of an ongoing transaction")


def require_group(known: Transaction | None, producer: ProducerIdentity, group: str) -> Transaction:
    """Raises a refusal unless the group was added to the transaction."""
    known = require_producer(known, producer)
    if known.is_prepared:
        raise TransactionUnderWay
    if not known.is_ongoing or group not in known.groups:
        raise WrongTransactionState("the group is not part of an ongoing transaction")
    return known


def commit_cursors(
    known: Transaction | None, producer: ProducerIdentity, group: str, cursors: Iterable[PendingCursor], now_ms: int
) -> Transaction:
    """Adds cursors that move when the transaction commits. Their group must have been added."""
    known = require_group(known, producer, group)
    pending = {(cursor.group, cursor.stream): cursor for cursor in known.cursors}
    pending.update({(cursor.group, cursor.stream): cursor for cursor in cursors})
    return replace(known, changed_ms=now_ms, cursors=tuple(pending.values()))


def drop_cursors(known: Transaction, group: str, stream: StreamId | None, now_ms: int) -> Transaction:
    """Removes the group's cursors, or the one of this stream: they will not move, whatever the outcome. Returns `known`
    itself if there were none."""
    kept = tuple(each for each in known.cursors if each.group != group or stream not in (None, each.stream))
    return known if kept == known.cursors else replace(known, changed_ms=now_ms, cursors=kept)


def end(
    known: Transaction | None,
    producer: ProducerIdentity,
    is_commit: bool,
    bumps_epoch: bool,
    now_ms: int,
    new_id: AllocateProducerId,
) -> Transaction:
    """Decides the outcome. Returns `known` itself if it is decided and complete already. `bumps_epoch`: the producer
    continues with the next epoch, so that no record of this transaction can slip into the next."""
    if bumps_epoch and known is not None and producer in _previous_producers(known) and not known.is_ongoing:
        return _repeat_end(known, is_commit)
    known = require_producer(known, producer)
    if known.is_prepared:
        return _repeat_end(known, is_commit)
    if not known.is_ongoing and not bumps_epoch:
        return _repeat_end(known, is_commit)
    if not known.is_ongoing and is_commit:
        raise WrongTransactionState("there is no ongoing transaction to commit")
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    if not bumps_epoch:
        return replace(known, state=state, changed_ms=now_ms)
    epoch = min(known.epoch + 1, MAX_PRODUCER_EPOCH)
    return replace(
        known,
        state=state,
        changed_ms=now_ms,
        epoch=epoch,
        previous_epoch=known.epoch,
        successor_id=new_id() if epoch == MAX_PRODUCER_EPOCH else NONE,
    )


def complete(known: Transaction, now_ms: int) -> Transaction:
    """Completes a prepared transaction after all markers and cursors were written."""
    done = replace(
        known,
        state=_PREPARED[known.state],
        changed_ms=now_ms,
        streams=frozenset(),
        groups=frozenset(),
        cursors=(),
        successor_id=NONE,
    )
    if known.successor_id == NONE:
        return done
    return replace(done, producer_id=known.successor_id, epoch=0, previous_id=known.producer_id)


def require_producer(known: Transaction | None, producer: ProducerIdentity) -> Transaction:
    """Raises a refusal unless the producer is the current one of the transaction."""
    if known is None or known.producer_id != producer.id:
        raise ForeignProducer(producer.id)
    if known.epoch != producer.epoch:
        raise ProducerFenced(*producer)
    return known


def _previous_producers(known: Transaction) -> tuple[ProducerIdentity, ...]:
    """Earlier identities of the current producer, which may have lost the response with its new one."""
    if known.previous_epoch == NONE:
        return ()
    return ProducerIdentity(known.producer_id, known.previous_epoch), ProducerIdentity(
        known.previous_id, known.previous_epoch
    )


def _repeat_end(known: Transaction, is_commit: bool) -> Transaction:
    if known.state is TransactionState.EMPTY or known.is_commit is not is_commit:
        raise WrongTransactionState(f"the transaction is in state {known.state.value}")
    if known.is_prepared:
        raise TransactionUnderWay
    return known


def _abort_with_next_epoch(known: Transaction, now_ms: int) -> Transaction:
    """Fences the producer, which may take over again: with its old epoch, and only as long as no other has."""
    return replace(
        known,
        state=TransactionState.PREPARE_ABORT,
        changed_ms=now_ms,
        epoch=min(known.epoch + 1, MAX_PRODUCER_EPOCH),
        previous_epoch=known.epoch,
    )
