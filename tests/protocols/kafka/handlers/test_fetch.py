"""Fetch: results, long polls, and the cost of waiting."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk
from protocols.kafka.frames import request_frame

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import SYSTEM, Record
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers import fetch
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from trimq.protocols.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicState
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire import codec

WAIT_MS = 5_000
FIRST_BY_ID = 13


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("t", 3)
    return desk


def batch(size: int = 10) -> bytearray:
    return bytearray(from_records([Record(b"x" * size, timestamp_ms=1)]))


def asked(partition: int = 0, offset: int = 0, most: int = 1 << 20, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most, **fields)


def request(*partitions: FetchPartition, topic: str = "t", wait_ms: int = WAIT_MS, **fields: Any) -> FetchRequest:
    least = fields.pop("min_bytes", 1)
    topics = [FetchTopic(topic=topic, topic_id=fields.pop("topic_id", bytes(16)), partitions=list(partitions))]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=least, topics=topics, **fields)


class Poll:
    """A fetch on a connection of the desk, and its response as soon as there is one."""

    def __init__(self, desk: Desk, message: FetchRequest, version: int = 12) -> None:
        self._desk = desk
        self._version = version
        desk._receive(request_frame(message, version))
        event = desk._conversation.next_event()
        assert event is not None
        reply = desk._conversation.handle(event)
        assert reply is not None
        self.reply: Reply = reply

    @property
    def is_answered(self) -> bool:
        passes = self._desk.runner.passes
        return self.reply.is_ready(passes.written, passes.durable)

    def response(self) -> FetchResponse:
        assert self.is_answered
        return codec.decode(FetchResponse, self._version, b"".join(self.reply.take()), 9)

    def found(self) -> list[tuple[int, int, int]]:
        """Partition, error code and number of bytes of each result."""
        topics = self.response().responses
        return [
            (data.partition_index, data.error_code, len(data.records or b""))
            for topic in topics
            for data in topic.partitions
        ]


def waiting(desk: Desk) -> int:
    gauge = desk._conversation._context.counts.waiting_reads
    return int(gauge.value)


def watchers(desk: Desk, topic: str = "t") -> int:
    streams = desk.core.broker.topics.get(SYSTEM, topic).streams
    return sum(len(stream._waiters) for stream in streams if stream._waiters is not None)


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_waiting_fetch_is_answered_when_the_records_are_durable(desk: Desk) -> None:
    poll = Poll(desk, request(asked()))
    assert not poll.is_answered
    desk.core.broker.partitions.append_records(
        SYSTEM, (topic := desk.core.broker.topics.get(SYSTEM, "t")), topic.stream(0), [Record(b"x")]
    )
    desk.runner.end_pass()
    assert not poll.is_answered  # written, but not durable: a power cut could lose it
    desk.runner.settle()
    assert [size > 0 for *_, size in poll.found()] == [True]
    assert waiting(desk) == watchers(desk) == 0


def test_records_of_another_partition_do_not_wake_a_fetch(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    read = fetch._Fetch.read

    def counted(attempt: Any) -> FetchResponse:
        looks.append(1)
        return read(attempt)

    monkeypatch.setattr(fetch._Fetch, "read", counted)
    desk.create("other")
    polls = [Poll(desk, request(asked())) for _ in range(50)]
    assert len(looks) == 50
    for _ in range(20):
        desk.produce("t", batch(), partition=1)
        desk.produce("other", batch())
    assert len(looks) == 50
    desk.let_pass(WAIT_MS - 1)
    assert len(looks) == 50
    assert not any(poll.is_answered for poll in polls)


def test_an_idle_reader_is_one_timer_and_nothing_else(desk: Desk) -> None:
    desk.let_pass(5000)  # the checks of the disk run once more after the last write
    assert desk.liveness.next_due_ms() is None
    poll = Poll(desk, request(asked(0), asked(1), asked(2)))
    assert not desk.runner._soon
    assert len(desk.runner.offload) == 0
    assert desk.liveness.next_due_ms() == desk.liveness.now_ms() + WAIT_MS
    assert waiting(desk) == 1
    assert watchers(desk) == 3
    desk.let_pass(WAIT_MS)
    assert poll.found() == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert desk.liveness.next_due_ms() is None
    assert waiting(desk) == watchers(desk) == 0


def test_a_reader_waits_until_there_are_as_many_bytes_as_it_wants(desk: Desk) -> None:
    size = len(batch())
    poll = Poll(desk, request(asked(0), asked(1), min_bytes=3 * size))
    for partition in (0, 1):
        desk.produce("t", batch(), partition=partition)
        assert not poll.is_answered
    desk.produce("t", batch(), partition=0)
    assert poll.found() == [(0, 0, 2 * size), (1, 0, size)]


def test_a_fetch_returns_the_available_records_at_its_deadline(desk: Desk) -> None:
    poll = Poll(desk, request(asked(), min_bytes=1 << 20))
    desk.produce("t", batch())
    desk.let_pass(WAIT_MS - 1)
    assert not poll.is_answered
    desk.let_pass(1)
    assert poll.found() == [(0, 0, len(batch()))]


@pytest.mark.parametrize(("wait_ms", "least"), [(0, 1), (-1, 1), (WAIT_MS, 0), (WAIT_MS, -5)])
def test_a_fetch_without_wait_time_is_answered_at_once(desk: Desk, wait_ms: int, least: int) -> None:
    assert Poll(desk, request(asked(), wait_ms=wait_ms, min_bytes=least)).found() == [(0, 0, 0)]
    assert waiting(desk) == watchers(desk) == 0


def test_more_than_fits_is_not_waited_for(desk: Desk) -> None:
    desk.produce("t", batch(100))
    assert Poll(desk, request(asked(), min_bytes=1 << 30, max_bytes=100)).is_answered


def test_a_reader_that_is_given_up_leaves_nothing(desk: Desk) -> None:
    poll = Poll(desk, request(asked(0), asked(1)))
    assert poll.reply.on_abandon is not None
    poll.reply.on_abandon()
    assert waiting(desk) == watchers(desk) == 0
    desk.let_pass(2 * WAIT_MS)
    assert not poll.is_answered


def test_a_fetch_that_is_resolved_early_returns_the_available_records(desk: Desk) -> None:
    poll = Poll(desk, request(asked(), min_bytes=1 << 20))
    desk.produce("t", batch())
    assert poll.reply.on_resolve_now is not None
    poll.reply.on_resolve_now()
    assert poll.found() == [(0, 0, len(batch()))]
    assert waiting(desk) == watchers(desk) == 0


def test_the_deletion_of_a_topic_answers_a_waiting_fetch_with_unknown_topic(desk: Desk) -> None:
    poll = Poll(desk, request(asked()))
    desk.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert poll.found() == [(0, Code.UNKNOWN_TOPIC_OR_PARTITION, 0)]


@pytest.mark.parametrize("wakes", ["growth", "time"])
def test_a_bug_during_a_long_poll_fails_it_instead_of_hanging(
    desk: Desk, wakes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = Poll(desk, request(asked()))

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(fetch._Fetch, "read", fail)
    if wakes == "growth":
        desk.produce("t", batch())
    else:
        desk.let_pass(WAIT_MS)
    assert poll.is_answered
    with pytest.raises(RuntimeError, match="planted"):  # the session closes the connection
        poll.response()
    assert waiting(desk) == watchers(desk) == 0


def test_an_unknown_topic_is_answered_at_once_but_not_beside_a_known_one(desk: Desk) -> None:
    unknown = (9, Code.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert Poll(desk, request(asked(9))).found() == [unknown]
    poll = Poll(desk, request(asked(0), asked(9)))
    assert not poll.is_answered
    desk.produce("t", batch())
    assert poll.found() == [(0, 0, len(batch())), unknown]


# --- results ----------------------------------------------------------------------------------------------------------


def test_bytes_are_bounded_over_all_partitions(desk: Desk) -> None:
    size = len(batch(1000))
    for partition in range(3):
        for _ in range(5):
            desk.produce("t", batch(1000), partition=partition)
    everything = [asked(partition, most=1 << 20) for partition in range(3)]
    found = Poll(desk, request(*everything, max_bytes=7 * size)).found()
    assert found == [(0, 0, 5 * size), (1, 0, 2 * size), (2, 0, 0)]
    few = [asked(partition, most=2 * size + 1) for partition in range(3)]
    assert Poll(desk, request(*few)).found() == [(partition, 0, 2 * size) for partition in range(3)]


def test_one_batch_goes_out_however_large_it_is(desk: Desk) -> None:
    size = len(batch(10_000))
    for partition in range(2):
        desk.produce("t", batch(10_000), partition=partition)
    found = Poll(desk, request(asked(0, most=1), asked(1, most=1), max_bytes=1)).found()
    assert found == [(0, 0, size), (1, 0, 0)]


@pytest.mark.parametrize(("most", "max_of_all"), [(-1, 1000), (1000, -1)])
def test_less_than_no_bytes_are_none(desk: Desk, most: int, max_of_all: int) -> None:
    desk.produce("t", batch())
    assert Poll(desk, request(asked(0, most=most), max_bytes=max_of_all, wait_ms=0)).found() == [(0, 0, 0)]


@pytest.mark.parametrize("offset", [-1, 2, 1 << 62])
def test_an_offset_out_of_range_is_answered_at_once(desk: Desk, offset: int) -> None:
    desk.produce("t", batch())
    poll = Poll(desk, request(asked(0, offset)))
    (data,) = poll.response().responses[0].partitions
    assert data.error_code == Code.OFFSET_OUT_OF_RANGE
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)
    assert data.aborted_transactions is None


def test_an_offset_out_of_range_is_reported_though_the_size_limit_is_reached(desk: Desk) -> None:
    desk.produce("t", batch())
    found = Poll(desk, request(asked(0), asked(1, 500), max_bytes=10)).found()
    assert found == [(0, 0, len(batch())), (1, Code.OFFSET_OUT_OF_RANGE, 0)]


def test_a_partition_that_is_asked_for_twice_is_answered_once(desk: Desk) -> None:
    for _ in range(3):
        desk.produce("t", batch())
    found = Poll(desk, request(asked(0, 0), asked(1, 0), asked(0, 2))).found()
    assert found == [(0, 0, len(batch())), (1, 0, 0)]


def test_topics_are_found_by_name_until_version_12_and_by_id_from_13_on(desk: Desk) -> None:
    desk.produce("t", batch())
    id = desk.core.broker.topics.get(SYSTEM, "t").id.bytes
    for version in (4, 11, 12):
        frame = Poll(desk, request(asked(), topic_id=bytes(16)), version)
        assert frame.is_answered
    for version in (FIRST_BY_ID, 15, 18):
        assert Poll(desk, request(asked(), topic="", topic_id=id), version).found() == [(0, 0, len(batch()))]
        unknown = Poll(desk, request(asked(), topic="", topic_id=b"\x07" * 16), version)
        assert unknown.found() == [(0, Code.UNKNOWN_TOPIC_ID, 0)]
        without_id = Poll(desk, request(asked(), topic="", topic_id=bytes(16)), version)
        assert without_id.found() == [(0, Code.UNKNOWN_TOPIC_ID, 0)]


@pytest.mark.parametrize(("replica", "order"), [(-1, [3, 1, 2]), (1, [1, 2, 3])])
def test_topics_with_an_unknown_id_come_first_for_consumers(desk: Desk, replica: int, order: list[int]) -> None:
    id = desk.core.broker.topics.get(SYSTEM, "t").id.bytes
    asking = request(asked(11), asked(12), topic="", topic_id=id)
    asking.topics += request(asked(13), topic="", topic_id=b"\x07" * 16).topics
    asking.replica_id = replica
    assert [index - 10 for index, _, _ in Poll(desk, asking, FIRST_BY_ID).found()] == order


def test_an_empty_name_is_an_unknown_topic(desk: Desk) -> None:
    assert Poll(desk, request(asked(), topic="")).found() == [(0, Code.UNKNOWN_TOPIC_OR_PARTITION, 0)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"current_leader_epoch": 0}, Code.NONE),
        ({"current_leader_epoch": -2}, Code.NONE),
        ({"current_leader_epoch": 1}, Code.UNKNOWN_LEADER_EPOCH),
        ({"last_fetched_epoch": 0}, Code.NONE),
        ({"last_fetched_epoch": 1}, Code.OFFSET_OUT_OF_RANGE),
    ],
)
def test_epochs_are_compared(desk: Desk, fields: dict[str, int], code: Code) -> None:
    desk.produce("t", batch())
    ((_, found, _),) = Poll(desk, request(asked(**fields))).found()
    assert found == code


def test_a_fetch_beyond_the_end_of_an_epoch_gets_the_diverging_epoch(desk: Desk) -> None:
    desk.produce("t", batch())
    (data,) = Poll(desk, request(asked(0, 500, last_fetched_epoch=0))).response().responses[0].partitions
    assert (data.error_code, data.records) == (Code.NONE, b"")
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)


@pytest.mark.parametrize(
    ("version", "fields"), [(12, {"replica_id": 7}), (15, {"replica_state": ReplicaState(replica_id=7)})]
)
def test_a_fetch_of_a_follower_is_refused(desk: Desk, version: int, fields: dict[str, Any]) -> None:
    id = desk.core.broker.topics.get(SYSTEM, "t").id.bytes
    poll = Poll(desk, request(asked(), topic_id=id, **fields), version)
    assert poll.found() == [(0, Code.NOT_LEADER_OR_FOLLOWER, 0)]


def test_an_unknown_isolation_level_refuses_the_request() -> None:
    desk = Desk()
    desk.create("t")
    asked = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=100)])
    found = desk.ask(FetchRequest(isolation_level=2, session_epoch=0, topics=[asked]), 12)
    assert (found.error_code, found.session_id) == (Code.INVALID_REQUEST, 0)


def test_a_session_continues_after_a_request_with_an_unknown_isolation_level() -> None:
    desk = Desk()
    desk.create("t")
    asked = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=100)])
    id = desk.ask(FetchRequest(session_epoch=0, topics=[asked]), 12).session_id
    refused = desk.ask(FetchRequest(session_id=id, session_epoch=1, isolation_level=2), 12)
    assert refused.error_code == Code.INVALID_REQUEST  # the session names the partition, the request does not
    assert desk.ask(FetchRequest(session_id=id, session_epoch=2), 12).error_code == Code.NONE


def test_partitions_that_cannot_be_read_come_last() -> None:
    desk = Desk()
    for name in ("t", "u"):
        desk.create(name)
    asked = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=index, partition_max_bytes=100)])
        for name, index in (("t", 7), ("t", 0), ("u", 0))
    ]
    found = desk.ask(FetchRequest(topics=asked), 12).responses
    places = [(topic.topic, [each.partition_index for each in topic.partitions]) for topic in found]
    assert places == [("t", [0]), ("u", [0]), ("t", [7])]
