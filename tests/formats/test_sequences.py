"""Ledger of sequence numbers compared with a simple set-based count."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.sequences import SEQUENCES, Fault, ProducerStream, SequenceLedger, SequenceRun

TRACK = ProducerStream("orders", 0, 7, 0)


def faults(sequences: Sequence[int], cuts: Sequence[int] = (), from_start: bool = True) -> list[Fault]:
    """Returns the faults of records that arrive in several batches, with the ledger saved and loaded between them."""
    books = SequenceLedger()
    edges = [0, *sorted(cuts), len(sequences)]
    for begin, end in pairwise(edges):
        books = SequenceLedger.from_json(books.as_json())
        books.note(runs(sequences, begin, end))
    return books.faults([("orders", 0)] if from_start else [])


def runs(sequences: Sequence[int], begin: int, end: int) -> list[SequenceRun]:
    found: list[SequenceRun] = []
    for offset in range(begin, end):
        last = found[-1] if found else None
        if last is not None and sequences[offset] == (last.first_sequence + last.records) % SEQUENCES:
            found[-1] = last._replace(records=last.records + 1)
        else:
            found.append(SequenceRun(TRACK, offset, sequences[offset], 1))
    return found


def fields_of(found: Sequence[Fault]) -> list[tuple[str, int, int, int]]:
    return [(fault.kind, fault.sequence, fault.records, fault.offset) for fault in found]


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ([0, 1, 2, 3], []),
        ([0, 1, 3, 4], [("gap", 2, 1, 2)]),
        ([0, 1, 1, 2], [("duplicate", 1, 1, 2)]),
        ([0, 2, 1, 3], [("reordered", 1, 1, 2)]),
        ([0, 1, 3, 4, 2, 2, 7], [("reordered", 2, 1, 4), ("duplicate", 2, 1, 5), ("gap", 5, 2, 6)]),
        ([2, 3], [("gap", 0, 2, 0)]),
        ([0, 1, 2, 0, 1, 2], [("duplicate", 0, 3, 3)]),
    ],
)
def test_each_kind_of_fault_is_reported_with_its_offset(
    sequences: list[int], expected: list[tuple[str, int, int, int]]
) -> None:
    assert fields_of(faults(sequences)) == expected


def test_the_last_number_is_followed_by_zero() -> None:
    assert faults([SEQUENCES - 2, SEQUENCES - 1, 0, 1], from_start=False) == []
    assert fields_of(faults([SEQUENCES - 2, SEQUENCES - 1, 1], from_start=False)) == [("gap", 0, 1, 2)]


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=40), st.lists(st.integers(0, 40), max_size=3), st.integers(0, 40)
)
def test_missing_repeated_and_late_records_are_counted_as_with_a_set(
    sequences: list[int], cuts: list[int], base: int
) -> None:
    shift = SEQUENCES - base
    found = faults(
        [(number + shift) % SEQUENCES for number in sequences],
        [min(cut, len(sequences)) for cut in cuts],
        from_start=False,
    )
    seen: set[int] = set()
    repeated = late = 0
    for number in sequences:
        repeated += number in seen
        late += number not in seen and bool(seen) and number < max(seen)
        seen.add(number)
    counts = {
        kind: sum(fault.records for fault in found if fault.kind == kind) for kind in ("gap", "duplicate", "reordered")
    }
    assert counts == {"gap": max(seen) - min(seen) + 1 - len(seen), "duplicate": repeated, "reordered": late}
