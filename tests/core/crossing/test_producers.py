"""Idempotent producers on topics of other layouts: each batch is stored once, across restarts and crashes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from protocols.rocketmq.rocketmq_desk import Desk

from trimq.core.crossing.targets import Placed
from trimq.errors import OutOfOrderSequence, StaleProducer
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import check_sent
from trimq.model import Caller, Record

CALLER = Caller("anonymous", "client", "10.0.0.1:5000", "kafka")


def desk_with(home: str) -> Desk:
    desk = Desk()
    if home == "queue":
        desk.core.broker.queues.declare_queue(CALLER, "t", True, False, False, {}, "owner")
    else:
        fields = {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        assert desk.broker.ask(17, fields).code == 0
    desk.settle()
    return desk


def append(desk: Desk, sequence: int, count: int = 2, epoch: int = 0) -> Placed:
    records = [Record(b"%d" % (sequence + index), timestamp_ms=1) for index in range(count)]
    batch = from_records(records, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    topics = desk.core.broker.foreign_topics
    topic = topics.find_batched(CALLER, "t", None)
    assert topic is not None
    return topics.append_batch(CALLER, topic, 0, batch, check_sent(batch))


def bodies(desk: Desk) -> list[bytes | None]:
    topic = desk.core.broker.foreign_topics.find_batched(CALLER, "t", None)
    assert topic is not None
    stream = topic.foreign.stream(0)
    return [message.body for _, message in stream.read(0, 100, 1 << 20, may_wait=True).messages]


homes = pytest.mark.parametrize("home", ["topic", "queue"])
ENDS: dict[str, Callable[[Desk], Desk]] = {"restart": Desk.restart, "power cut": Desk.cut_power, "kill": Desk.kill}


@homes
def test_a_repeated_batch_is_answered_with_its_first_place(home: str) -> None:
    desk = desk_with(home)
    assert [append(desk, 0).base_offset, append(desk, 2).base_offset, append(desk, 0).base_offset] == [0, 2, 0]
    desk.settle()
    assert bodies(desk) == [b"0", b"1", b"2", b"3"]


@homes
def test_a_missing_batch_is_noticed(home: str) -> None:
    desk = desk_with(home)
    append(desk, 0)
    with pytest.raises(OutOfOrderSequence):
        append(desk, 4)
    append(desk, 0, epoch=1)
    with pytest.raises(StaleProducer):
        append(desk, 2)


@homes
@pytest.mark.parametrize("end", ENDS)
def test_a_batch_is_still_known_after_the_broker_ended(home: str, end: str) -> None:
    desk = desk_with(home)
    append(desk, 0)
    append(desk, 2)
    desk.settle()
    desk = ENDS[end](desk)
    assert append(desk, 2).base_offset == 2
    assert append(desk, 4).base_offset == 4
    with pytest.raises(OutOfOrderSequence):
        append(desk, 8)
    desk.settle()
    assert bodies(desk) == [b"0", b"1", b"2", b"3", b"4", b"5"]


@homes
def test_a_batch_that_a_power_cut_took_is_stored_when_it_is_repeated(home: str) -> None:
    desk = desk_with(home)
    append(desk, 0)
    desk.settle()
    append(desk, 2)  # never synced
    desk = desk.cut_power()
    assert append(desk, 2).base_offset == 2
    desk.settle()
    assert bodies(desk) == [b"0", b"1", b"2", b"3"]


@homes
@pytest.mark.parametrize("lost", ["messages", "rows"])
def test_a_batch_is_stored_once_if_only_one_of_message_and_row_survived(home: str, lost: str) -> None:
    desk = desk_with(home)
    append(desk, 0)
    desk.settle()
    kept = "tables" if lost == "messages" else ("queues" if home == "queue" else "commitlog")
    synced = desk.files.before

    def refuse(operation: str, name: str) -> None:
        synced(operation, name)
        if operation == "write" and kept not in name:
            raise OSError(5, "this file loses what is written")

    append(desk, 2)
    desk.files.before = refuse
    desk.runner.end_pass()
    desk.files.before = synced
    desk = desk.kill()
    append(desk, 2)
    desk.settle()
    assert bodies(desk) == [b"0", b"1", b"2", b"3"]
