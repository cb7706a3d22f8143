"""Classification of the output of Kafka's dump tool. Needs no Java."""

from __future__ import annotations

import pytest
from compat.kafka_tools import Dump, complaints_in

GAP_BEFORE_THE_FIRST = "Non-consecutive offsets in /data/t-0/00000000000000000036.log\n  -1 is followed by 36\n"

COMPLAINTS = [
    Dump("baseOffset: 0 lastOffset: 0 crc: 1 isvalid: false\n", "", 0),
    Dump("Found 17 invalid bytes at the end of 00000000000000000000.log\n", "", 0),
    Dump("", "Mismatches in :/data/t-0/00000000000000000000.index\n  Index offset: 5, log offset: 4\n", 0),
    Dump("", "Found timestamp mismatch in :/data/t-0/00000000000000000000.timeindex\n", 0),
    Dump("", "The following indexed offsets are not found in the log.\nIndexed offset: 3, found log offset: 4\n", 0),
    Dump("", "Snapshot is corrupt (CRC is no longer valid). Stored crc: 1. Computed crc: 2\n", 0),
    Dump("", GAP_BEFORE_THE_FIRST + "  40 is followed by 42\n", 0),
    Dump("", GAP_BEFORE_THE_FIRST.replace("by 36", "by 37"), 0),
    Dump("", 'Exception in thread "main" java.util.NoSuchElementException\n', 1),
    Dump("", "", 1),
]


@pytest.mark.parametrize("dumped", COMPLAINTS)
def test_a_fault_in_the_output_of_the_tool_is_found(dumped: Dump) -> None:
    assert complaints_in(dumped) != []


def test_the_false_alarm_of_the_tool_about_the_first_offset_is_ignored() -> None:
    assert complaints_in(Dump("", GAP_BEFORE_THE_FIRST, 0)) == []


def test_gaps_in_a_compacted_log_are_ignored() -> None:
    dumped = Dump("", GAP_BEFORE_THE_FIRST.replace("by 36", "by 39") + "  40 is followed by 42\n", 0)
    assert complaints_in(dumped, has_gaps=True) == []


def test_contents_of_records_are_ignored() -> None:
    assert complaints_in(Dump("| offset: 0 keySize: -1 headerKeys: [] payload: NullPointerException\n", "", 0)) == []
