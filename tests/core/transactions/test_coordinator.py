from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from core.transacting_core import TransactingCore
from doubles import TornTails

from trimq.core.transactions.transaction import PendingCursor, ProducerIdentity, Transaction, TransactionState
from trimq.errors import StaleProducer, WriteFailed
from trimq.errors.transactions import (
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionUnderWay,
    UnknownTransaction,
    WrongTransactionState,
)
from trimq.model import SYSTEM


@pytest.fixture
def core() -> TransactingCore:
    return TransactingCore()


def failing(part: str) -> Callable[[str, str], None]:
    """Makes writes fail in files with `part` in their name."""

    def before(operation: str, name: str) -> None:
        if operation == "write" and part in name:
            raise OSError(28, "full")

    return before


def healthy(operation: str, name: str) -> None:
    """Nothing fails."""


@pytest.mark.parametrize("bumps_epoch", [False, True])
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_transaction_writes_a_marker_to_every_stream(
    core: TransactingCore, is_commit: bool, bumps_epoch: bool
) -> None:
    producer = core.init_producer()
    core.add(producer, 0, 1)
    core.write(producer, b"a")
    core.settle()
    assert core.committed() == []
    assert core.stream().stable_end == 0
    done = core.end(producer, is_commit, bumps_epoch)
    assert done.is_complete
    assert (core.shape(0), core.shape(1)) == (("dC", "C") if is_commit else ("dA", "A"))
    assert core.committed() == ([b"a"] if is_commit else [])
    assert core.stream().stable_end == core.stream().end == 2


def test_the_end_of_a_transaction_is_confirmed_when_its_markers_are_durable(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.add(producer, 0)
    core.write(producer, b"a")
    core.settle()
    answers = core.begin_end(producer)
    assert core.registry.get("t").state is TransactionState.PREPARE_COMMIT
    assert answers == []
    with pytest.raises(TransactionUnderWay):
        core.begin_end(producer)
    while not answers:
        assert core.committed() == []
        core.runner.end_pass()
        core.runner.offload.run_one()
    assert core.committed() == [b"a"]


def test_a_write_outside_of_a_transaction_is_refused(core: TransactingCore) -> None:
    producer = core.init_producer()
    with pytest.raises(WrongTransactionState):
        core.write(producer, b"a")
    core.add(producer, 0)
    core.write(producer, b"a")
    core.begin_end(producer)
    with pytest.raises(WrongTransactionState):
        core.write(producer, b"b", sequence=1)
    core.settle()
    assert core.committed() == [b"a"]


def test_a_producer_that_takes_over_aborts_the_open_transaction(core: TransactingCore) -> None:
    old = core.init_producer()
    core.add(old, 0)
    core.write(old, b"a")
    core.settle()
    with pytest.raises(TransactionUnderWay):
        core.init_producer()
    core.settle()
    new = core.init_producer()
    assert new == ProducerIdentity(old.id, old.epoch + 2)
    assert core.shape() == "dA"
    with pytest.raises(StaleProducer):
        core.write(old, b"late", sequence=1)
    with pytest.raises(ProducerFenced):
        core.end(old)


def test_a_transaction_that_takes_too_long_is_aborted(core: TransactingCore) -> None:
    producer = core.init_producer(timeout_ms=1_000)
    core.add(producer, 0)
    core.write(producer, b"a")
    core.advance(999)
    assert core.shape() == "d"
    core.advance(1)
    assert core.shape() == "dA"
    assert core.registry.get("t").producer == ProducerIdentity(producer.id, producer.epoch + 1)
    with pytest.raises(ProducerFenced):
        core.end(producer)


def test_the_timeout_of_a_transaction_begins_with_the_transaction(core: TransactingCore) -> None:
    producer = core.init_producer(timeout_ms=1_000)
    for _ in range(5):
        core.add(producer, 0)
        core.advance(900)
        core.end(producer)
        core.advance(900)
    assert core.shape() == "CCCCC"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_has_limits(core: TransactingCore, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        core.init_producer(timeout_ms=timeout_ms)


def test_a_transactional_id_unused_for_a_week_is_deleted(core: TransactingCore) -> None:
    core.init_producer("used")
    core.init_producer("ongoing", timeout_ms=900_000)
    core.advance(6 * 86_400_000)
    core.init_producer("used")
    core.advance(2 * 86_400_000)
    assert core.registry.get("used").epoch == 1
    with pytest.raises(UnknownTransaction):
        core.registry.get("ongoing")


# -- cursors


@pytest.mark.parametrize("is_commit", [True, False])
def test_cursors_of_a_transaction_move_only_if_it_commits(core: TransactingCore, is_commit: bool) -> None:
    producer = core.init_producer()
    core.add(producer, groups=("g",))
    core.commit_cursor(producer, 7)
    assert core.cursor() is None
    assert core.is_unstable()
    assert not core.is_unstable(1)
    core.end(producer, is_commit)
    assert core.cursor() == (7 if is_commit else None)
    assert not core.is_unstable()


def test_a_plain_commit_during_the_transaction_is_kept(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.add(producer, groups=("g",))
    core.commit_cursor(producer, 7)
    topic = core.core.broker.topics.get(SYSTEM, "orders")
    core.core.broker.partitions.commit(SYSTEM, "g", topic, 0, 30)
    core.end(producer)
    assert core.cursor() == 30


def test_the_later_of_two_transactions_moves_the_cursor_whichever_ends_first(core: TransactingCore) -> None:
    first, second = core.init_producer("first"), core.init_producer("second")
    core.add(first, name="first", groups=("g",))
    core.add(second, name="second", groups=("g",))
    core.commit_cursor(first, 1, name="first")
    core.advance(5)
    core.commit_cursor(second, 2, name="second")
    core.advance(5)
    core.end(second, name="second")
    assert core.is_unstable()
    core.end(first, name="first")
    assert core.cursor() == 2


@pytest.mark.parametrize("had_cursor", [False, True])
@pytest.mark.parametrize("is_decided", [False, True])
def test_cursors_of_a_deleted_group_are_not_moved(core: TransactingCore, had_cursor: bool, is_decided: bool) -> None:
    producer = core.init_producer()
    if had_cursor:
        core.core.broker.partitions.commit(SYSTEM, "g", core.core.broker.topics.get(SYSTEM, "orders"), 0, 3)
    core.add(producer, groups=("g", "other"))
    core.commit_cursor(producer, 7)
    core.registry.commit_cursors("t", producer, "other", [PendingCursor("other", core.id(), 9, 0)])
    core.settle()
    assert list(core.core.groups.names()) == ["g", "other"]
    if is_decided:
        core.begin_end(producer)
    assert core.core.broker.groups.delete(SYSTEM, "g") is not None
    assert not core.is_unstable()
    assert list(core.core.groups.names()) == ["other"]
    core.settle()
    core.cut_power()
    core.end(producer)
    assert core.cursor() is None
    moved = core.core.broker.groups.cursors(SYSTEM, "other").cursors[core.id()]
    assert moved.offset == 9
    assert list(core.core.groups.names()) == ["other"]


def test_a_single_cursor_that_is_deleted_is_not_moved(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.add(producer, groups=("g",))
    core.commit_cursor(producer, 7)
    core.commit_cursor(producer, 8, number=1)
    core.core.broker.groups.delete_cursor(SYSTEM, "g", core.id(0))
    core.end(producer)
    assert (core.cursor(0), core.cursor(1)) == (None, 8)


def test_a_group_of_an_open_transaction_is_not_deleted_as_unused(core: TransactingCore) -> None:
    producer = core.init_producer(timeout_ms=900_000)
    core.add(producer, groups=("g",))
    core.commit_cursor(producer, 7)
    core.advance(700_000)  # groups are checked every ten minutes
    core.end(producer)
    assert core.cursor() == 7


def test_the_end_of_a_transaction_is_retried_although_a_group_was_deleted(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.add(producer, 0, groups=("g",))
    core.write(producer, b"a")
    core.settle()
    core.commit_cursor(producer, 7)
    core.files.before = failing("orders-0/")
    core.begin_end(producer)
    core.settle()
    assert core.registry.get("t").is_prepared
    core.core.broker.groups.delete(SYSTEM, "g")
    core.settle()
    core.files.before = healthy
    core.advance(1_000)
    assert core.registry.get("t").state is TransactionState.COMPLETE_COMMIT
    assert core.cursor() is None


# -- power cuts and full disks


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_decided_transaction_is_completed_after_a_power_cut(core: TransactingCore, is_commit: bool) -> None:
    producer = core.init_producer()
    core.add(producer, 0, 1, groups=("g",))
    core.write(producer, b"a")
    core.settle()
    core.commit_cursor(producer, 5)
    core.begin_end(producer, is_commit)
    core.runner.end_pass()
    core.runner.offload.run_one()  # the decision is durable, the markers are not
    assert core.registry.get("t").is_prepared
    core.cut_power()
    assert core.registry.get("t").state is (
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    )
    assert core.committed() == ([b"a"] if is_commit else [])
    assert core.cursor() == (5 if is_commit else None)
    assert core.stream().stable_end == core.stream().end
    core.end(producer, is_commit)  # the response was lost, the producer repeats the request


def test_an_open_transaction_continues_after_a_power_cut_until_its_timeout(core: TransactingCore) -> None:
    producer = core.init_producer(timeout_ms=10_000)
    core.add(producer, 0, groups=("g",))
    core.write(producer, b"a")
    core.settle()
    core.commit_cursor(producer, 5)
    core.cut_power()
    assert core.stream().stable_end == 0
    assert core.is_unstable()
    core.write(producer, b"b", sequence=1)
    core.settle()
    core.cut_power()
    core.advance(10_000)
    assert core.shape() == "ddA"
    assert core.cursor() is None
    assert not core.is_unstable()


def test_a_batch_whose_transaction_was_lost_in_a_power_cut_blocks_no_reader(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.write(producer, b"a", may_join=True)
    core.runner.end_pass()

    class LogsOnly(TornTails):
        def contents(self, name: str, versions: object) -> bytes:
            return versions[-1 if name.endswith(".log") and "tables" not in name else 0]  # type: ignore[index]

    core.cut_power(LogsOnly(100, True))
    assert core.shape() == "dA"
    assert core.committed() == []
    assert core.stream().stable_end == core.stream().end


def test_a_decision_whose_write_fails_is_refused_and_the_transaction_stays_open(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.add(producer, 0)
    core.write(producer, b"a")
    core.settle()
    core.files.before = failing("transactions")
    answers = core.begin_end(producer)
    core.settle()
    assert [type(answer) for answer in answers] == [WriteFailed]
    assert core.registry.get("t").is_ongoing
    core.files.before = healthy
    core.end(producer)
    assert core.committed() == [b"a"]


@pytest.mark.parametrize("part", ["orders-0/", "cursors"])
def test_a_marker_or_cursor_whose_write_fails_is_retried(core: TransactingCore, part: str) -> None:
    producer = core.init_producer()
    core.add(producer, 0, groups=("g",))
    core.write(producer, b"a")
    core.settle()
    core.commit_cursor(producer, 5)
    core.files.before = failing(part)
    answers = core.begin_end(producer)
    core.settle()
    assert answers == []
    core.advance(2_000)
    assert answers == []
    core.files.before = healthy
    core.advance(2_000)
    assert [type(answer) for answer in answers] == [Transaction]
    assert core.committed() == [b"a"]
    assert core.cursor() == 5


def test_a_marker_for_which_no_segment_can_be_created_is_retried(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.add(producer, 0)
    core.write(producer, b"a")
    core.settle()
    stream = core.stream()
    stream.log.change_settings(replace(stream.log.settings, segment_bytes=1))

    def refuse(operation: str, name: str) -> None:
        if operation == "create" and "orders-0/" in name:
            raise OSError(28, "full")

    core.files.before = refuse
    answers = core.begin_end(producer)
    core.advance(2_000)
    assert answers == []
    core.files.before = healthy
    core.advance(2_000)
    assert [type(answer) for answer in answers] == [Transaction]
    assert core.committed() == [b"a"]


def test_a_completion_whose_write_fails_is_retried(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.add(producer, 0)
    answers = core.begin_end(producer)
    while not answers:
        core.runner.end_pass()
        core.runner.offload.run_one()
    core.files.before = failing("transactions")
    core.settle()
    assert core.registry.get("t").is_prepared
    core.files.before = healthy
    core.advance(2_000)
    assert core.registry.get("t").is_complete


def test_a_timeout_whose_write_fails_is_retried(core: TransactingCore) -> None:
    producer = core.init_producer(timeout_ms=1_000)
    core.add(producer, 0)
    core.write(producer, b"a")
    core.settle()
    core.files.before = failing("transactions")
    core.advance(3_000)
    assert core.registry.get("t").is_ongoing
    core.files.before = healthy
    core.advance(3_000)
    assert core.shape() == "dA"


def test_a_batch_that_joins_is_aborted_when_the_write_of_its_transaction_fails(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.files.before = failing("transactions")
    core.write(producer, b"a", may_join=True)
    core.settle()
    core.files.before = healthy
    core.settle()
    assert core.shape() == "dA"
    assert core.committed() == []
    with pytest.raises(StaleProducer):  # otherwise it would be taken for a duplicate of a committed batch
        core.write(producer, b"a", may_join=True)


def test_a_producer_waits_until_a_batch_without_a_transaction_is_aborted(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.files.before = failing("transactions")
    core.write(producer, b"a", may_join=True)
    core.runner.end_pass()
    core.files.before = failing("orders-0/")
    core.settle()
    with pytest.raises(TransactionUnderWay):
        core.write(producer, b"a", may_join=True)
    core.files.before = healthy
    core.advance(2_000)
    assert core.shape() == "dA"
    with pytest.raises(StaleProducer):
        core.write(producer, b"a", may_join=True)


def test_a_batch_left_without_a_transaction_by_a_power_cut_is_aborted_although_the_disk_is_full_at_first(
    core: TransactingCore,
) -> None:
    producer = core.init_producer()
    core.write(producer, b"a", may_join=True)
    core.runner.end_pass()

    class LogsOnly(TornTails):
        def contents(self, name: str, versions: object) -> bytes:
            return versions[-1 if name.endswith(".log") and "tables" not in name else 0]  # type: ignore[index]

    core.files.before = failing("orders-0/")
    core.cut_power(LogsOnly(100, True))
    assert core.shape() == "d"
    core.files.before = healthy
    core.advance(2_000)
    assert core.shape() == "dA"
    assert core.stream().stable_end == core.stream().end
    with pytest.raises(StaleProducer):
        core.write(producer, b"a", may_join=True)


def test_streams_of_a_deleted_topic_block_no_transaction(core: TransactingCore) -> None:
    producer = core.init_producer()
    core.add(producer, 0, 1)
    core.core.broker.topics.delete(SYSTEM, core.core.broker.topics.get(SYSTEM, "orders"))
    core.settle()
    assert core.end(producer).state is TransactionState.COMPLETE_COMMIT
