"""ListOffsets by timestamp in large batches: searched in a thread, with the same answers."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.records import INLINE_EXPANDED_BYTES, INLINE_RECORDS
from trimq.model import Record
from trimq.protocols.contract import DeferredReply, Reply
from trimq.protocols.kafka.messages.logs import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from trimq.protocols.kafka.names.codes import Code

NOW_MS = 1_700_000_000_000
VERSION = 8
MAX_TIMESTAMP = -3


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("t", 2)
    many = [Record(b"", timestamp_ms=NOW_MS + n % 1000) for n in range(INLINE_RECORDS + 10)]
    far = [Record(bytes(INLINE_EXPANDED_BYTES), timestamp_ms=NOW_MS + 5000 + n) for n in range(2)]
    assert desk.produce("t", from_records(many)).error_code == 0
    assert desk.produce("t", from_records(far, codec=Codec.ZSTD)).error_code == 0
    return desk


def request(*timestamps: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=n, timestamp=time) for n, time in enumerate(timestamps)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])


def offsets(desk: Desk, reply: Reply, message: ListOffsetsRequest) -> list[tuple[int, int]]:
    (topic,) = desk.read_answer(reply, message, VERSION).topics
    return [(found.error_code, found.offset) for found in topic.partitions]


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        (MAX_TIMESTAMP, INLINE_RECORDS + 11),
        (NOW_MS, 0),
        (NOW_MS + 999, 999),
        (NOW_MS + 1000, INLINE_RECORDS + 10),
        (NOW_MS + 5001, INLINE_RECORDS + 11),
    ],
)
def test_a_large_batch_is_searched_off_the_loop(desk: Desk, timestamp: int, offset: int) -> None:
    message = request(timestamp)
    reply = desk.begin(message, VERSION)
    assert isinstance(reply, DeferredReply)
    assert desk.way.is_held
    assert len(desk.runner.offload) == 1
    desk.runner.settle()
    assert offsets(desk, reply, message) == [(0, offset)]
    assert not desk.way.is_held


def test_a_search_that_opens_no_large_batch_is_answered_at_once(desk: Desk) -> None:
    message = request(NOW_MS + 6000, MAX_TIMESTAMP)
    reply = desk.begin(message, VERSION)
    assert reply is not None
    assert not isinstance(reply, DeferredReply)
    assert offsets(desk, reply, message) == [(0, -1), (0, -1)]


def test_a_lost_connection_gives_up_its_search(desk: Desk) -> None:
    reply = desk.begin(request(MAX_TIMESTAMP), VERSION)
    assert isinstance(reply, DeferredReply)
    assert reply.on_abandon is not None
    reply.on_abandon()
    desk.runner.settle()
    assert reply.is_open


def test_no_more_searches_wait_than_allowed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews: Any = desk.core.broker.partitions._review_offload
    monkeypatch.setattr(reviews, "_limit", 0)
    message = request(MAX_TIMESTAMP, MAX_TIMESTAMP)
    reply = desk.begin(message, VERSION)
    assert reply is not None
    assert offsets(desk, reply, message) == [(Code.REQUEST_TIMED_OUT, -1), (0, -1)]
