from __future__ import annotations

from pathlib import Path

import pytest
from storage.kafka_folders import companions, named, printed

from trimq.storage.checkpoints.file_names import CorruptCompanion
from trimq.storage.partition_log.aborted_index import ENTRY_BYTES, AbortedTransaction, collect_aborted, decode, encode

FIRST = AbortedTransaction(7, first_offset=2, last_offset=8, last_stable_offset=0)
SECOND = AbortedTransaction(5, first_offset=0, last_offset=9, last_stable_offset=10)
THIRD = AbortedTransaction(6, first_offset=11, last_offset=18, last_stable_offset=12)
INDEX = encode(FIRST) + encode(SECOND) + encode(THIRD)


@pytest.mark.parametrize("path", companions(".txnindex"), ids=named)
def test_kafkas_own_index_is_read_and_written_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    transactions = decode(data)
    assert b"".join(map(encode, transactions)) == data
    assert [
        {
            "version": 0,
            "producerId": transaction.producer_id,
            "firstOffset": transaction.first_offset,
            "lastOffset": transaction.last_offset,
            "lastStableOffset": transaction.last_stable_offset,
        }
        for transaction in transactions
    ] == printed(path)


def test_an_entry_has_34_bytes() -> None:
    assert encode(AbortedTransaction(1, 2, 3, 4)).hex(" ", 8) == (
        "0000 0000000000000001 0000000000000002 0000000000000003 0000000000000004"
    )
    assert decode(INDEX) == [FIRST, SECOND, THIRD]
    assert decode(b"") == []


@pytest.mark.parametrize(
    ("from_offset", "to_offset", "aborted", "is_complete"),
    [
        (0, 5, [FIRST, SECOND], True),
        (0, 2, [SECOND], True),
        (8, 11, [FIRST, SECOND], True),
        (9, 11, [SECOND], True),
        (9, 12, [SECOND, THIRD], True),
        (10, 11, [], True),
        (10, 100, [THIRD], False),
        (18, 19, [THIRD], False),
        (19, 100, [], False),
    ],
)
def test_the_aborted_transactions_of_a_range_are_collected(
    from_offset: int, to_offset: int, aborted: list[AbortedTransaction], is_complete: bool
) -> None:
    assert collect_aborted(INDEX, from_offset, to_offset) == (aborted, is_complete)
    assert collect_aborted(memoryview(INDEX), from_offset, to_offset) == (aborted, is_complete)


def test_a_segment_without_aborted_transactions_leaves_the_range_unanswered() -> None:
    assert collect_aborted(b"", 0, 100) == ([], False)


@pytest.mark.parametrize(
    "data",
    [
        INDEX[:-1],
        b"\x00\x01" + INDEX[2:],
        encode(SECOND) + encode(FIRST),
        encode(FIRST) * 2,
        encode(FIRST._replace(first_offset=9)),
        encode(FIRST._replace(first_offset=-1)),
        bytes(2 * ENTRY_BYTES),
    ],
    ids=["torn", "version", "order", "twice", "backwards", "negative", "zeros"],
)
def test_an_invalid_index_is_unusable(data: bytes) -> None:
    with pytest.raises(CorruptCompanion):
        decode(data)


def test_a_torn_or_unknown_index_answers_no_lookup() -> None:
    for data in (INDEX[:-1], b"\x00\x01" + INDEX[2:]):
        with pytest.raises(CorruptCompanion):
            collect_aborted(data, 0, 100)
