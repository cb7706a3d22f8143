"""Batch bodies: several messages of one producer."""

from __future__ import annotations

import struct

import pytest

from trimq.formats.rocketmq_unit.batch_body import BatchEntry, read_batch, write_batch
from trimq.formats.rocketmq_unit.unit import BadUnit

MESSAGES = [BatchEntry(0, b"a", b"TAGS\x01A\x02"), BatchEntry(5, b"", b""), BatchEntry(-1, b"c" * 300, b"k\x01v\x02")]


def test_messages_are_read_back_in_order() -> None:
    assert list(read_batch(write_batch(MESSAGES))) == MESSAGES
    assert list(read_batch(b"")) == []


def test_a_message_has_the_layout_of_the_java_client() -> None:
    assert write_batch(MESSAGES[:1]) == struct.pack(">iiiii1sh7s", 30, 0, 0, 0, 1, b"a", 7, b"TAGS\x01A\x02")


@pytest.mark.parametrize(("at", "value"), [(0, 0), (0, 21), (0, 31), (0, -1), (16, -1), (16, 2), (16, 2**31 - 1)])
def test_lengths_that_disagree_are_refused(at: int, value: int) -> None:
    data = bytearray(write_batch(MESSAGES[:1]))
    struct.pack_into(">i", data, at, value)
    with pytest.raises(BadUnit):
        list(read_batch(data))


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_batch_that_ends_too_early_is_refused(cut: int) -> None:
    with pytest.raises(BadUnit):
        list(read_batch(write_batch(MESSAGES[:1])[:-cut]))
