"""Aborted transactions of one segment, in Kafka's `.txnindex` format: 34 bytes for each, in the order of their
markers. Knows bytes; its callers decide which transactions are aborted.

     0  version        2     10  first offset         8     26  last stable offset   8
     2  producer id    8     18  last offset          8
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from trimq.model import Buffer
from trimq.storage.checkpoints.file_names import TRANSACTION_INDEX, CorruptCompanion

ENTRY_BYTES = 34

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">18xq8x")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker that aborted it, which is in the segment of this index."""
    last_stable_offset: int
    """At the time the marker was appended: the first offset of another open transaction, else the offset after the
    marker."""


class AbortedInRange(NamedTuple):
    aborted: list[AbortedTransaction]
    is_complete: bool
    """True if no later segment can hold another one of this range."""


def encode(transaction: AbortedTransaction) -> bytes:
    return _ENTRY.pack(_VERSION, *transaction)


def decode(data: Buffer) -> list[AbortedTransaction]:
    """Returns all entries, validated."""
    transactions = [_entry(data, place) for place in range(_count(data))]
    last_offset = -1
    for transaction in transactions:
        if not 0 <= transaction.first_offset <= transaction.last_offset or transaction.last_offset <= last_offset:
            raise CorruptCompanion(f"{TRANSACTION_INDEX}: {transaction} is out of order")
        last_offset = transaction.last_offset
    return transactions


def collect_aborted(data: Buffer, from_offset: int, to_offset: int) -> AbortedInRange:
    """Returns the aborted transactions with records between `from_offset` and, exclusively, `to_offset`.

    Transactions may span segments: unless the result is complete, continue with the next segment's index.
    """
    aborted = []
    count = _count(data)
    first = bisect_left(range(count), from_offset, key=lambda place: _last_offset(data, place))
    for place in range(first, count):
        transaction = _entry(data, place)
        if transaction.first_offset < to_offset:
            aborted.append(transaction)
        if transaction.last_stable_offset >= to_offset:
            return AbortedInRange(aborted, True)
    return AbortedInRange(aborted, False)


def _count(data: Buffer) -> int:
    count, rest = divmod(len(data), ENTRY_BYTES)
    if rest:
        raise CorruptCompanion(f"{TRANSACTION_INDEX}: {len(data)} bytes are not a multiple of {ENTRY_BYTES}")
    return count


def _last_offset(data: Buffer, place: int) -> int:
    return int(_LAST_OFFSET.unpack_from(data, place * ENTRY_BYTES)[0])


def _entry(data: Buffer, place: int) -> AbortedTransaction:
    version, *fields = _ENTRY.unpack_from(data, place * ENTRY_BYTES)
    if version != _VERSION:
        raise CorruptCompanion(f"{TRANSACTION_INDEX}: version {version} is not supported")
    return AbortedTransaction(*fields)
