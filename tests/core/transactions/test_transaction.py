from __future__ import annotations

import itertools
from uuid import UUID

import msgspec
import pytest

from trimq.core.metadata.cursors import Cursor
from trimq.core.transactions.transaction import (
    MAX_PRODUCER_EPOCH,
    PendingCursor,
    ProducerIdentity,
    Transaction,
    TransactionState,
    add,
    begin,
    commit_cursors,
    complete,
    end,
    expire,
    renew,
    require_stream,
)
from trimq.errors import Refusal
from trimq.errors.transactions import ForeignProducer, ProducerFenced, TransactionUnderWay, WrongTransactionState
from trimq.model import StreamId

STREAM, OTHER = StreamId(UUID(int=1), 0), StreamId(UUID(int=1), 1)
ME = ProducerIdentity(7, 0)


def new_id() -> int:
    return 99


def ongoing(producer: ProducerIdentity = ME) -> Transaction:
    known = msgspec.structs.replace(begin(producer.id, 1_000, 10), epoch=producer.epoch)
    return add(known, producer, [STREAM], ["g"], 20)


def in_state(state: TransactionState) -> Transaction:
    return msgspec.structs.replace(ongoing(), state=state)


def test_a_transaction_and_its_timeout_begin_with_the_first_added_stream() -> None:
    known = ongoing()
    assert (known.state, known.started_ms, known.due_ms) == (TransactionState.ONGOING, 20, 1_020)
    more = add(known, ME, [OTHER], [], 30)
    assert (more.streams, more.started_ms) == ({STREAM, OTHER}, 20)
    assert add(more, ME, [OTHER], ["g"], 40) is more


@pytest.mark.parametrize(
    ("producer", "refusal"),
    [
        (ProducerIdentity(8, 0), ForeignProducer),
        (ProducerIdentity(7, 1), ProducerFenced),
        (ProducerIdentity(7, -1), ProducerFenced),
    ],
)
def test_only_the_current_producer_is_accepted(producer: ProducerIdentity, refusal: type[Refusal]) -> None:
    known = ongoing()
    with pytest.raises(refusal):
        add(known, producer, [STREAM], [], 30)
    with pytest.raises(refusal):
        end(known, producer, True, False, 30, new_id)
    with pytest.raises(refusal):
        require_stream(known, producer, STREAM)
    with pytest.raises(refusal):
        commit_cursors(known, producer, "g", [], 30)


def test_an_unused_transactional_id_has_no_producer() -> None:
    with pytest.raises(ForeignProducer):
        end(None, ME, True, False, 30, new_id)


@pytest.mark.parametrize("state", [state for state in TransactionState if state is not TransactionState.ONGOING])
def test_writes_are_accepted_only_while_a_transaction_is_ongoing(state: TransactionState) -> None:
    with pytest.raises(WrongTransactionState):
        require_stream(in_state(state), ME, STREAM)
    require_stream(ongoing(), ME, STREAM)
    with pytest.raises(WrongTransactionState):
        require_stream(ongoing(), ME, OTHER)


EMPTY, ONGOING, PC, PA, CC, CA = TransactionState
SAME = "the same"
ENDS = [
    (EMPTY, True, WrongTransactionState),
    (EMPTY, False, WrongTransactionState),
    (ONGOING, True, PC),
    (ONGOING, False, PA),
    (PC, True, TransactionUnderWay),
    (PC, False, WrongTransactionState),
    (PA, True, WrongTransactionState),
    (PA, False, TransactionUnderWay),
    (CC, True, SAME),
    (CC, False, WrongTransactionState),
    (CA, True, WrongTransactionState),
    (CA, False, SAME),
]


@pytest.mark.parametrize(("state", "is_commit", "outcome"), ENDS)
def test_an_end_is_decided_once(state: TransactionState, is_commit: bool, outcome: object) -> None:
    known = in_state(state)
    if isinstance(outcome, type):
        with pytest.raises(outcome):
            end(known, ME, is_commit, False, 30, new_id)
        return
    ended = end(known, ME, is_commit, False, 30, new_id)
    assert (ended is known) if outcome is SAME else (ended.state is outcome)
    assert ended.epoch == known.epoch


@pytest.mark.parametrize("state", [PC, PA])
def test_nothing_is_added_while_the_last_transaction_is_being_ended(state: TransactionState) -> None:
    with pytest.raises(TransactionUnderWay):
        add(in_state(state), ME, [OTHER], [], 30)
    with pytest.raises(TransactionUnderWay):
        commit_cursors(in_state(state), ME, "g", [], 30)
    with pytest.raises(TransactionUnderWay):
        renew(in_state(state), None, 1_000, 30, new_id)


def test_a_complete_transaction_leaves_nothing_to_the_next() -> None:
    known = commit_cursors(ongoing(), ME, "g", [PendingCursor("g", STREAM, 5, 25)], 25)
    done = complete(end(known, ME, True, False, 30, new_id), 40)
    assert (done.state, done.streams, done.groups, done.cursors) == (CC, frozenset(), frozenset(), ())
    again = add(done, ME, [OTHER], [], 50)
    assert (again.streams, again.groups, again.started_ms) == ({OTHER}, frozenset(), 50)


def test_cursors_are_accepted_for_added_groups_and_the_last_one_applies() -> None:
    with pytest.raises(WrongTransactionState):
        commit_cursors(ongoing(), ME, "stranger", [], 30)
    known = commit_cursors(ongoing(), ME, "g", [PendingCursor("g", STREAM, 5, 25)], 25)
    known = commit_cursors(known, ME, "g", [PendingCursor("g", STREAM, 6, 26), PendingCursor("g", OTHER, 1, 26)], 26)
    assert [(cursor.stream, cursor.offset) for cursor in known.cursors] == [(STREAM, 6), (OTHER, 1)]


@pytest.mark.parametrize(
    ("seen", "found", "is_older"),
    [
        (None, None, False),
        (Cursor(1, 90), Cursor(1, 90), False),
        (Cursor(1, 100), Cursor(1, 100), False),  # in the same millisecond, but before
        (Cursor(1, 90), Cursor(2, 95), False),  # of another transaction that began earlier
        (Cursor(1, 90), Cursor(2, 100), True),
        (Cursor(1, 90), Cursor(2, 101), True),
        (None, Cursor(2, 101), True),
    ],
)
def test_a_cursor_that_was_committed_later_stays(seen: Cursor | None, found: Cursor | None, is_older: bool) -> None:
    assert PendingCursor("g", STREAM, 5, 100, seen=seen).is_older_than(found) is is_older


# -- takeover


def test_a_renewal_raises_the_epoch_and_fences_the_producer_before() -> None:
    known = renew(begin(7, 1_000, 10), None, 2_000, 20, new_id)
    assert (known.producer, known.state, known.timeout_ms) == (ProducerIdentity(7, 1), EMPTY, 2_000)
    with pytest.raises(ProducerFenced):
        renew(known, ProducerIdentity(7, 0), 1_000, 30, new_id)


@pytest.mark.parametrize("claimed", [ProducerIdentity(7, 5), ProducerIdentity(8, 1), ProducerIdentity(8, 0)])
def test_a_renewal_by_another_producer_is_fenced(claimed: ProducerIdentity) -> None:
    with pytest.raises(ProducerFenced):
        renew(renew(begin(7, 1_000, 10), None, 1_000, 20, new_id), claimed, 1_000, 30, new_id)


def test_a_renewal_whose_response_was_lost_may_be_repeated() -> None:
    first = renew(begin(7, 1_000, 10), ME, 1_000, 20, new_id)
    second = renew(first, ME, 1_000, 30, new_id)
    assert first.producer == second.producer == ProducerIdentity(7, 1)


def test_an_ongoing_transaction_is_aborted_under_the_next_epoch_before_its_transactional_id_is_taken_over() -> None:
    fenced = renew(ongoing(), None, 1_000, 30, new_id)
    assert (fenced.state, fenced.producer, fenced.streams) == (PA, ProducerIdentity(7, 1), {STREAM})
    taken = renew(complete(fenced, 40), None, 1_000, 50, new_id)
    assert taken.producer == ProducerIdentity(7, 2)


@pytest.mark.parametrize("claimed", [None, ME])
def test_a_producer_whose_transaction_was_aborted_by_a_renewal_may_renew_itself(
    claimed: ProducerIdentity | None,
) -> None:
    done = complete(renew(ongoing(), claimed, 1_000, 30, new_id), 40)
    renewed = renew(done, ME, 1_000, 50, new_id)
    assert renewed.producer == ProducerIdentity(7, 1)
    assert renew(renewed, ME, 1_000, 60, new_id).producer == ProducerIdentity(7, 1)
    taken = renew(done, None, 1_000, 50, new_id)
    for older in (ME, ProducerIdentity(7, 1)):
        with pytest.raises(ProducerFenced):
            renew(taken, older, 1_000, 60, new_id)


def test_a_producer_that_timed_out_is_fenced_but_may_renew() -> None:
    done = complete(expire(ongoing(), 2_000), 2_010)
    assert (done.state, done.producer) == (CA, ProducerIdentity(7, 1))
    with pytest.raises(ProducerFenced):
        end(done, ME, False, False, 2_020, new_id)
    assert renew(done, ME, 1_000, 2_020, new_id).producer == ProducerIdentity(7, 1)


def test_when_the_epochs_are_used_up_another_producer_id_takes_over() -> None:
    last = ProducerIdentity(7, MAX_PRODUCER_EPOCH - 1)
    known = msgspec.structs.replace(begin(7, 1_000, 10), epoch=last.epoch)
    taken = renew(known, last, 1_000, 20, new_id)
    assert taken.producer == ProducerIdentity(99, 0)
    assert renew(taken, last, 1_000, 30, new_id).producer == ProducerIdentity(99, 0)


# -- ends that raise the epoch


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_that_raises_the_epoch_may_be_repeated_with_the_old_one(is_commit: bool) -> None:
    ended = end(ongoing(), ME, is_commit, True, 30, new_id)
    assert ended.producer == ProducerIdentity(7, 1)
    with pytest.raises(TransactionUnderWay):
        end(ended, ME, is_commit, True, 35, new_id)
    done = complete(ended, 40)
    assert end(done, ME, is_commit, True, 50, new_id) is done
    with pytest.raises(WrongTransactionState):
        end(done, ME, not is_commit, True, 50, new_id)


@pytest.mark.parametrize("state", [EMPTY, CC, CA])
def test_an_empty_abort_raises_the_epoch_and_an_empty_commit_is_refused(state: TransactionState) -> None:
    known = msgspec.structs.replace(begin(7, 1_000, 10), state=state)
    with pytest.raises(WrongTransactionState):
        end(known, ME, True, True, 30, new_id)
    assert complete(end(known, ME, False, True, 30, new_id), 40).producer == ProducerIdentity(7, 1)


def test_an_end_under_the_last_epoch_hands_over_to_another_producer_id() -> None:
    last = ProducerIdentity(7, MAX_PRODUCER_EPOCH - 1)
    ended = end(ongoing(last), last, True, True, 30, new_id)
    assert ended.producer == ProducerIdentity(7, MAX_PRODUCER_EPOCH)
    done = complete(ended, 40)
    assert done.producer == ProducerIdentity(99, 0)
    assert end(done, last, True, True, 50, new_id) is done


@pytest.mark.parametrize("state", list(TransactionState))
def test_a_state_survives_encoding_and_decoding(state: TransactionState) -> None:
    cursors = (PendingCursor("g", STREAM, 5, 25, 1, "note", Cursor(1, 2)),)
    known = msgspec.structs.replace(in_state(state), cursors=cursors, previous_epoch=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(known), type=Transaction) == known


def test_a_producer_never_gets_an_epoch_that_was_used() -> None:
    ids = itertools.count(100)
    known, seen = begin(7, 1_000, 10), set()
    for _ in range(70_000):
        assert known.producer not in seen
        seen.add(known.producer)
        known = renew(known, None, 1_000, 20, lambda: next(ids))
