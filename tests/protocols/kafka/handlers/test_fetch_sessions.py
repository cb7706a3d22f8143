"""Fetch sessions: epochs, incremental responses, and eviction from the cache."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk
from protocols.kafka.fetch_exchanges import answer, ask, cache, exchange, sent_partitions
from protocols.kafka.frames import request_frame

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import SYSTEM, Record
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.fetch_sessions import PROTECTED_MS, FetchSessions, add_partition
from trimq.protocols.kafka.messages.fetch import (
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from trimq.protocols.kafka.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from trimq.protocols.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicState
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire import codec

LAST_EPOCH = 2**31 - 1


def opened(sessions: FetchSessions, *partitions: int, now_ms: int = 0, **changed: Any) -> int:
    return exchange(sessions, ask(0, 0, *partitions), now_ms, **changed).session_id


def read(sessions: FetchSessions, id: int, epoch: int, **changes: Any) -> list[int]:
    """Partitions that the next request of a session reads, in order."""
    return [one.place.partition for one in sessions.begin(ask(id, epoch, **changes), False, 0).wanted]


# --- incremental responses --------------------------------------------------------------------------------------------


def test_the_first_response_has_all_partitions_and_the_next_only_changed_ones() -> None:
    sessions = cache()
    first = exchange(sessions, ask(0, 0, 0, 1))
    assert sent_partitions(first) == [0, 1]
    assert first.session_id > 0
    second = exchange(sessions, ask(first.session_id, 1))
    assert sent_partitions(second) == []
    assert second.session_id == first.session_id


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"records": b"x"}, True),
        ({"high_watermark": 6}, False),
        ({"log_start_offset": 1}, False),
        ({"error_code": 1, "high_watermark": -1, "log_start_offset": -1}, True),
        ({"diverging_epoch": EpochEndOffset(epoch=0, end_offset=3)}, True),
    ],
    ids=["records", "high watermark", "log start", "error", "divergence"],
)
def test_a_change_is_sent_once_and_an_error_until_it_is_over(change: dict[str, Any], stays: bool) -> None:
    sessions = cache()
    id = opened(sessions, 0, 1)
    assert sent_partitions(exchange(sessions, ask(id, 1), p1=change)) == [1]
    assert sent_partitions(exchange(sessions, ask(id, 2), p1=change)) == ([1] if stays else [])


def test_the_end_of_an_error_is_sent() -> None:
    sessions = cache()
    failed = {"error_code": 3, "high_watermark": -1, "log_start_offset": -1}
    id = opened(sessions, 0, 1, p0=failed)
    assert sent_partitions(exchange(sessions, ask(id, 1))) == [0]
    assert sent_partitions(exchange(sessions, ask(id, 2), p1={"error_code": 3})) == [1]
    assert sent_partitions(exchange(sessions, ask(id, 3))) == [1]
    assert sent_partitions(exchange(sessions, ask(id, 4))) == []


def test_a_request_changes_offsets_adds_and_forgets() -> None:
    sessions = cache()
    id = opened(sessions, 0, 1)
    begun = sessions.begin(ask(id, 1, 1, 2, offset=7, forget=(0, 99)), False, 0)
    assert [(one.place.partition, one.asked.fetch_offset) for one in begun.wanted] == [(1, 7), (2, 7)]
    response = answer(begun)
    sessions.finish(begun, response, 0)
    assert sent_partitions(response) == [2]  # this partition was never in a response


def test_changed_partitions_of_a_topic_are_in_one_entry_when_no_other_topic_is_between_them() -> None:
    sessions = cache()
    request = ask(0, 0, 0)
    request.topics += [FetchTopic(topic="u", partitions=request.topics[0].partitions), *ask(0, 0, 1).topics]
    begun = sessions.begin(request, False, 0)

    def response(high_watermark: int) -> FetchResponse:
        response = FetchResponse()
        for one in begun.wanted:
            data = PartitionData(partition_index=one.place.partition, high_watermark=5, records=b"")
            if one.place.topic == "t":
                data.high_watermark = high_watermark
            add_partition(response.responses, one.place, data)
        return response

    first, second = response(5), response(6)
    sessions.finish(begun, first, 0)
    assert [topic.topic for topic in first.responses] == ["t", "u", "t"]
    sessions.finish(sessions.begin(ask(first.session_id, 1), False, 0), second, 0)
    assert [(topic.topic, len(topic.partitions)) for topic in second.responses] == [("t", 2)]


def test_partitions_with_records_are_read_last_the_next_time() -> None:
    sessions = cache()
    id = opened(sessions, 0, 1, 2, 3)
    exchange(sessions, ask(id, 1), p0={"records": b"x"}, p2={"records": b"x"})
    assert read(sessions, id, 2) == [1, 3, 0, 2]


def test_a_repeated_partition_is_read_once_with_its_last_values() -> None:
    request = ask(0, -1, 0, 1, 0)
    request.topics[0].partitions[2].fetch_offset = 9
    begun = cache().begin(request, False, 0)
    assert [(one.place.partition, one.asked.fetch_offset) for one in begun.wanted] == [(0, 9), (1, 0)]


# --- epochs -----------------------------------------------------------------------------------------------------------


def test_a_request_without_a_session_opens_none() -> None:
    sessions = cache()
    response = exchange(sessions, ask(0, -1, 0))
    assert (sent_partitions(response), response.session_id, len(sessions)) == ([0], 0, 0)


@pytest.mark.parametrize("epoch", [2, 99, -2])
def test_a_wrong_epoch_is_refused_and_the_session_lives_on(epoch: int) -> None:
    sessions = cache()
    id = opened(sessions, 0)
    refused = exchange(sessions, ask(id, epoch, 1))
    assert (refused.error_code, refused.session_id) == (Code.INVALID_FETCH_SESSION_EPOCH, 0)
    assert read(sessions, id, 1) == [0]  # the partitions of the refused request were not added


def test_an_epoch_serves_once() -> None:
    sessions = cache()
    id = opened(sessions, 0)
    assert sent_partitions(exchange(sessions, ask(id, 1))) == []
    assert exchange(sessions, ask(id, 1)).error_code == Code.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [1, -2])
def test_an_unknown_session_is_refused(epoch: int) -> None:
    assert exchange(cache(), ask(5, epoch)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert exchange(cache(), ask(0, epoch, 0)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("by_id", [False, True])
def test_a_session_cannot_change_from_names_to_ids_or_back(by_id: bool) -> None:
    sessions = cache()
    begun = sessions.begin(ask(0, 0, 0), by_id, 0)
    response = answer(begun)
    sessions.finish(begun, response, 0)
    other = sessions.begin(ask(response.session_id, 1), not by_id, 0)
    assert other.error == Code.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.begin(ask(response.session_id, 1), by_id, 0).error == Code.NONE


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_session_that_it_names(epoch: int) -> None:
    sessions = cache()
    id = opened(sessions, 0)
    after = exchange(sessions, ask(id, epoch, 0))
    assert after.session_id != id
    assert exchange(sessions, ask(id, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_without_partitions_may_be_opened_but_ends_with_its_next_request() -> None:
    sessions = cache()
    id = opened(sessions)
    assert id > 0
    assert exchange(sessions, ask(id, 1)).session_id == 0
    assert len(sessions) == 0


def test_after_the_last_epoch_comes_the_first() -> None:
    sessions = cache()
    id = opened(sessions, 0)
    sessions._sessions[id].epoch = LAST_EPOCH
    assert sent_partitions(exchange(sessions, ask(id, LAST_EPOCH))) == []
    assert sent_partitions(exchange(sessions, ask(id, 1))) == []


@pytest.mark.parametrize("forget", [(), (0,)], ids=["went on", "ended"])
def test_a_held_fetch_is_refused_if_its_session_moved_on(forget: tuple[int, ...]) -> None:
    sessions = cache()
    id = opened(sessions, 0)
    waiting = sessions.begin(ask(id, 1), False, 0)
    exchange(sessions, ask(id, 2, forget=forget))
    response = answer(waiting, p0={"records": b"x"})
    sessions.finish(waiting, response, 0)
    assert (response.error_code, response.session_id) == (Code.INVALID_FETCH_SESSION_EPOCH, 0)
    assert response.responses == []


# --- eviction ---------------------------------------------------------------------------------------------------------


def test_without_room_a_fetch_is_answered_without_a_session() -> None:
    sessions = cache(max_sessions=2)
    ids = [opened(sessions, 0) for _ in range(3)]
    assert [id > 0 for id in ids] == [True, True, False]
    assert sent_partitions(exchange(sessions, ask(ids[0], 1))) == []


def test_the_session_that_was_not_used_for_longest_goes_when_it_is_stale() -> None:
    sessions = cache(max_sessions=2)
    first, second = opened(sessions, 0), opened(sessions, 0)
    exchange(sessions, ask(first, 1), now_ms=10)
    assert opened(sessions, 0, now_ms=PROTECTED_MS) == 0
    assert opened(sessions, 0, now_ms=PROTECTED_MS + 1) > 0
    assert exchange(sessions, ask(second, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert sent_partitions(exchange(sessions, ask(first, 2))) == []


def test_a_smaller_session_gives_way_to_a_larger_one_when_it_is_not_new() -> None:
    sessions = cache(max_sessions=2)
    small, large = opened(sessions, 0, 1), opened(sessions, 0, 1, 2)
    for id in (small, large):
        exchange(sessions, ask(id, 1), now_ms=PROTECTED_MS)
    assert opened(sessions, 0, 1, 2, 3, now_ms=PROTECTED_MS) == 0  # both are still protected
    assert opened(sessions, 0, 1, now_ms=PROTECTED_MS + 1) == 0  # a session of the same size is not larger
    assert opened(sessions, 0, 1, 2, now_ms=PROTECTED_MS + 1) > 0
    assert exchange(sessions, ask(small, 2)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert sent_partitions(exchange(sessions, ask(large, 2))) == []


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    sessions = cache(max_partitions=4)
    assert opened(sessions, *range(5)) == 0
    id = opened(sessions, 0, 1)
    assert opened(sessions, 0, 1, 2) == 0
    assert opened(sessions, 0, 1) > 0
    grown = exchange(sessions, ask(id, 1, 2))
    assert grown.error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, 0, 1) > 0  # there is room for another session again


# --- through the front-end --------------------------------------------------------------------------------------------


def batch(size: int = 10) -> bytearray:
    return bytearray(from_records([Record(b"x" * size, timestamp_ms=1)]))


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("t", 3)
    return desk


def hold(desk: Desk, request: FetchRequest) -> Reply:
    request.max_wait_ms = 5_000
    desk._receive(request_frame(request, 12))
    event = desk._conversation.next_event()
    assert event is not None
    reply = desk._conversation.handle(event)
    assert reply is not None
    return reply


def is_answered(desk: Desk, reply: Reply) -> bool:
    return reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable)


def test_a_held_fetch_in_a_session_gets_only_the_changed_partitions(desk: Desk) -> None:
    id = desk.ask(ask(0, 0, 0, 1, 2), 12).session_id
    reply = hold(desk, ask(id, 1))
    assert not is_answered(desk, reply)
    desk.produce("t", batch(), partition=1)
    assert is_answered(desk, reply)
    response = codec.decode(FetchResponse, 12, b"".join(reply.take()), 9)
    assert (sent_partitions(response), response.session_id) == ([1], id)


def test_within_a_session_every_partition_has_its_turn_though_one_fills_the_answer(desk: Desk) -> None:
    for partition in range(3):
        desk.produce("t", batch(1000), partition=partition)
    request = ask(0, 0, 0, 1, 2)
    request.max_bytes = 1
    response = desk.ask(request, 12)
    id, found = response.session_id, []
    for epoch in range(1, 7):
        request = ask(id, epoch)
        request.max_bytes = 1
        topics = desk.ask(request, 12).responses
        found += [data.partition_index for topic in topics for data in topic.partitions if data.records]
    assert found == [0, 1, 2, 0, 1, 2]


def test_an_invalid_session_is_refused_at_once(desk: Desk) -> None:
    reply = hold(desk, ask(77, 1))
    assert is_answered(desk, reply)


def test_a_session_outlives_an_answer_that_a_quota_forbids(desk: Desk) -> None:
    entity = [EntityData(entity_type="client-id", entity_name=None)]
    operation = [OpData(key="consumer_byte_rate", value=100.0)]
    desk.ask(AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(entity=entity, ops=operation)]))
    for _ in range(3):
        desk.produce("t", batch(10_000))
    id = desk.ask(ask(0, 0, 0), 12).session_id
    throttled = desk.ask(ask(id, 1), 12)
    assert throttled.throttle_time_ms > 0
    assert (sent_partitions(throttled), throttled.session_id) == ([], id)
    desk.let_pass(3_600_000)
    after = desk.ask(ask(id, 2), 12)
    assert (sent_partitions(after), after.session_id) == ([0], id)


def test_a_request_that_empties_its_session_is_answered_without_one() -> None:
    sessions = cache()
    id = opened(sessions, 0)
    begun = sessions.begin(ask(id, 1, 0, forget=(0,)), by_id=False, now_ms=0)
    assert ([one.place.partition for one in begun.wanted], begun.session) == ([0], None)
    assert len(sessions) == 0


def test_a_session_knows_a_deleted_topic_by_each_partition_that_it_named(desk: Desk) -> None:
    request = ask(0, 0, 0, 7)
    request.topics[0].topic_id = desk.core.broker.topics.get(SYSTEM, "t").id.bytes
    id = desk.ask(request, 18).session_id
    desk.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    (topic,) = desk.ask(ask(id, 1), 18).responses
    found = [(data.partition_index, data.error_code) for data in topic.partitions]
    assert found == [(0, Code.UNKNOWN_TOPIC_OR_PARTITION), (7, Code.UNKNOWN_TOPIC_OR_PARTITION)]
