from __future__ import annotations

import pytest

from trimq.protocols.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from trimq.protocols.kafka.wire.codec import encode
from trimq.protocols.kafka.wire.fast_fetch import MIN_UNCOPIED_BYTES, gather, write_fetch_response


def response_of(*partitions: PartitionData) -> FetchResponse:
    topic = FetchableTopicResponse(topic="t", topic_id=bytes(range(16)), partitions=list(partitions))
    return FetchResponse(session_id=5, responses=[topic])


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
def test_large_batches_are_passed_on_and_small_ones_copied(version: int) -> None:
    large, small = memoryview(bytes(MIN_UNCOPIED_BYTES)), memoryview(bytes(MIN_UNCOPIED_BYTES - 1))
    response = response_of(PartitionData(records=small), PartitionData(records=large), PartitionData(records=large))
    buffers = write_fetch_response(response, version)
    assert [buffer is large for buffer in buffers] == [False, True, False, True, False]
    assert b"".join(buffers) == encode(response, version)


@pytest.mark.parametrize("version", [4, 12, 18])
def test_aborted_transactions_and_leaders_are_encoded(version: int) -> None:
    aborted = [AbortedTransaction(producer_id=1, first_offset=2), AbortedTransaction(producer_id=3, first_offset=4)]
    response = response_of(
        PartitionData(aborted_transactions=aborted, records=b"batch"),
        PartitionData(error_code=74, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2)),
    )
    assert b"".join(write_fetch_response(response, version)) == encode(response, version)


def test_many_empty_partitions_do_not_make_many_buffers() -> None:
    response = response_of(*[PartitionData(partition_index=number, records=b"") for number in range(1000)])
    buffers = write_fetch_response(response, 12)
    assert b"".join(buffers) == encode(response, 12)
    assert len(buffers) < 1000 * 50 / MIN_UNCOPIED_BYTES


def test_small_pieces_are_joined_and_large_ones_left_alone() -> None:
    large = bytes(MIN_UNCOPIED_BYTES)
    assert gather([b"a", b"b", large, large, b"c"]) == [b"ab", large, b"", large, b"c"]
    assert gather([]) == [b""]
