"""Delayed messages with the same due time: delivered in batches, each with the same result as alone."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, units_of

from trimq.core.failures.ledger import Reason
from trimq.core.scheduling.timers import FIRES_PER_TURN, TimerEntry
from trimq.core.write_gate import WriteGate
from trimq.errors import ReadOnly
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.schedule import WHEEL_TOPIC
from trimq.formats.rocketmq_unit.unit import LONGEST_PROPERTIES, Unit, UnitDraft
from trimq.model import SYSTEM, Buffer
from trimq.protocols.rocketmq.schedule.scheduler import DelayScheduler
from trimq.storage.commit_log.consume_queue import ConsumeQueue

SECOND = 1000
DUE_MS = NOW_MS + 10 * SECOND
HOST = pack_host("127.0.0.1", 10911)


def send(desk: Desk, number: int, more: str = "", topic: str = "t", queue: int = 1, body: bytes = b"") -> Any:
    properties = f"UNIQ_KEY\x01K{number}\x02TIMER_DELIVER_MS\x01{DUE_MS}\x02{more}"
    answer = desk.broker.send(topic, body or b"%d" % number, queue, properties)
    assert answer.code == 0
    return answer


def store(desk: Desk, properties: str, body: bytes, filled: bool = False) -> None:
    """Stores a delayed message as another broker or an earlier version may have stored it. `filled`: its last property
    is so long that even its terminator does not fit."""
    assert desk.core.commit_log_service is not None
    commit_log = desk.core.commit_log_service.commit_log
    topic = commit_log.topics.get(SYSTEM, WHEEL_TOPIC)
    known = f"REAL_TOPIC\x01t\x02REAL_QID\x011\x02TIMER_OUT_MS\x01{DUE_MS}\x02{properties}"
    written = known.encode().ljust(LONGEST_PROPERTIES if filled else 0, b"x")
    draft = UnitDraft(topic.raw_name, 0, body, written, 0, 0, 77, HOST)
    commit_log.messages.append(SYSTEM, topic, topic.stream(0), draft, DUE_MS, HOST)
    desk.runner.settle()


def found(desk: Desk, topic: str = "t", queue: int = 1) -> list[Unit]:
    units: list[Unit] = []
    while (answer := desk.broker.pull(topic, len(units), queue)).code == 0:
        units += units_of(answer)
    return units


def bodies(desk: Desk) -> list[bytes]:
    return [bytes(unit.body) for unit in found(desk)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def fire_alone(self: DelayScheduler, row: list[TimerEntry], begin: int) -> int:
    return 0


def send_all_kinds(desk: Desk) -> None:
    """Sends messages of every kind, each between plain ones."""
    desk.broker.send("gone", b"x")
    desk.broker.send("t", b"x", 1)
    others = iter(range(100, 200))
    handle = send(desk, 1).fields["recallHandle"]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("TAGS\x01A\x02", {}),
        ("KEYS\x01order-1 order-2\x02", {}),
        ("", {"topic": "gone", "queue": 0}),
        ("", {"queue": 0}),
        ("", {"body": bytes(20_000)}),
        ("odd\x01\u00e4\x02UNIQ_KEY\x01again\x02", {}),
        ("UNIQ_KEY\x01with-dashes\x02", {}),
        ("TIMER_ENQUEUE_MS\x011\x02", {}),
    ]
    for number, (more, where) in enumerate(kinds, 2):
        send(desk, number, more, **where)
        send(desk, next(others))
    store(desk, f"UNIQ_KEY\x01long\x02k\x01{'x' * (LONGEST_PROPERTIES - 90)}\x02", b"nearly too long")
    store(desk, "UNIQ_KEY\x01longer\x02k\x01", b"too long", filled=True)
    store(desk, "UNIQ_KEY\x01end", b"without an end")
    store(desk, "UNIQ_KEY\x01\x02", b"without a key")
    send(desk, next(others))
    assert desk.broker.ask(370, {"producerGroup": "pg", "topic": "t", "recallHandle": handle}).code == 0
    send(desk, next(others))
    assert desk.broker.ask(215, {"topic": "gone"}).code == 0


def test_each_message_of_a_batch_has_the_same_result_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    send_all_kinds(desk)
    desk.advance(10 * SECOND)
    kept = found(desk)
    came = [bytes(unit.body) for unit in kept[1:]]
    assert b"1" not in came, "the recalled message was delivered"
    assert b"too long" not in came
    assert {b"100", b"nearly too long", b"without an end", b"without a key", bytes(20_000)} < {*came}
    known = list(desk.core.broker.failures.all(SYSTEM))
    assert [failure.entry.reason for failure in known] == [Reason.EXPIRED]
    monkeypatch.setattr(DelayScheduler, "_fire_batch", fire_alone)
    alone = Desk()
    send_all_kinds(alone)
    alone.advance(10 * SECOND)
    assert found(alone) == kept
    assert found(alone, queue=0) == found(desk, queue=0)
    assert len(list(alone.core.broker.failures.all(SYSTEM))) == 1


def test_messages_of_a_batch_keep_their_properties() -> None:
    desk = Desk()
    send(desk, 1, "TAGS\x01A\x02KEYS\x01order-1\x02")
    send(desk, 2)
    desk.advance(10 * SECOND)
    first, second = found(desk)
    assert (first.born_ms, first.born_host, first.store_ms) == (77, pack_host("10.0.0.1", 5000), DUE_MS)
    known = read_properties(first.properties)
    assert (known["TIMER_ENQUEUE_MS"], known["TIMER_DEQUEUE_MS"]) == (str(NOW_MS), str(DUE_MS))
    assert units_of(desk.broker.pull("t", queue=1, subscription="A")) == [first]
    assert desk.core.commit_log_service is not None
    commit_log = desk.core.commit_log_service.commit_log
    for key, unit in (("order-1", first), ("K1", first), ("K2", second)):
        assert list(commit_log.lookup.find_key(SYSTEM, "t", key, DUE_MS, DUE_MS)) == [unit]


def test_batches_of_several_levels_and_times_keep_the_order_of_due_times() -> None:
    desk = Desk()
    desk.broker.send("t", b"x", 1)
    for number in range(60):
        level = 3 if number % 2 else 2  # ten seconds, or five
        desk.broker.send("t", b"%d" % number, 1, f"UNIQ_KEY\x01L{number}\x02DELAY\x01{level}\x02")
        send(desk, 1000 + number)
    desk.advance(5 * SECOND)
    assert bodies(desk)[1:] == [b"%d" % number for number in range(0, 60, 2)]
    desk.advance(5 * SECOND)
    late = bodies(desk)[31:]
    assert sorted(late) == sorted([b"%d" % number for number in (*range(1, 60, 2), *range(1000, 1060))])
    assert [body for body in late if len(body) == 4] == [b"%d" % number for number in range(1000, 1060)]


@pytest.mark.parametrize("ends", ["kill", "cut_power", "restart"])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_thousand_that_are_due_at_once_come_once_and_in_order_over_an_end_in_the_middle(
    turns: int, ends: str
) -> None:
    desk = Desk(commit_file_bytes=1 << 16, message_bytes=20_000)
    for number in range(1000):
        send(desk, number)
    for turn in range(turns):
        assert desk.message_time.step(DUE_MS)
        if turn < turns - 1:
            desk.runner.settle()
    desk = getattr(desk, ends)()
    desk.advance(10 * SECOND)
    assert bodies(desk) == numbers(1000)
    desk = getattr(desk, ends)()
    desk.advance(10 * SECOND)
    assert bodies(desk) == numbers(1000)


@pytest.mark.parametrize("where", ["", "commitlog"])
def test_batches_refused_by_a_full_disk_are_retried_and_delivered_in_order(where: str) -> None:
    desk = Desk()
    for number in range(FIRES_PER_TURN + 10):
        send(desk, number)
    desk.fail_writes(where)
    desk.advance(10 * SECOND + 1)
    desk.files.before = lambda operation, name: None
    assert bodies(desk) == []
    desk.advance(2 * SECOND)
    assert bodies(desk) == numbers(FIRES_PER_TURN + 10)


def test_a_batch_without_room_for_another_file_is_delivered_in_part_and_the_rest_later() -> None:
    desk = Desk(commit_file_bytes=1 << 16, message_bytes=20_000)
    for number in range(200):
        send(desk, number)
    desk.fail_writes("commitlog", "create")
    desk.advance(10 * SECOND)
    came = bodies(desk)
    desk.files.before = lambda operation, name: None
    assert came == numbers(len(came))
    assert 0 < len(came) < 200
    desk.advance(SECOND)
    assert bodies(desk) == numbers(200)
    assert len({bytes(unit.body) for unit in found(desk.kill())}) == 200


def test_messages_due_when_the_broker_stops_are_delivered_after_the_next_start() -> None:
    desk = Desk()
    send(desk, 0)
    desk.core.stop_writes()
    desk.advance(10 * SECOND)
    desk = desk.kill()
    desk.advance(1)
    assert bodies(desk) == [b"0"]


def test_a_recalled_message_stays_recalled_where_a_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    send(desk, 0)
    handle = send(desk, 1).fields["recallHandle"]
    for number in range(2, FIRES_PER_TURN):
        send(desk, number)
    assert desk.broker.ask(370, {"producerGroup": "pg", "topic": "t", "recallHandle": handle}).code == 0

    def refuse(gate: WriteGate) -> None:
        raise ReadOnly("the broker")

    with monkeypatch.context() as patch:
        patch.setattr(WriteGate, "require_writable", refuse)
        desk.advance(10 * SECOND)
    desk.advance(5 * SECOND)
    came = bodies(desk)
    assert len(came) == FIRES_PER_TURN - 1
    assert b"1" not in came


def test_a_file_that_cannot_be_opened_for_a_moment_keeps_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    for number in range(FIRES_PER_TURN + 50):
        send(desk, number)
    read, left = ConsumeQueue.entries, [OSError(errno.EMFILE, "too many open files")]

    def fail_once(queue: ConsumeQueue, offset: int, count: int) -> Buffer:
        if queue.topic == WHEEL_TOPIC and left and desk.message_time.now_ms() >= DUE_MS:
            raise left.pop()
        return read(queue, offset, count)

    monkeypatch.setattr(ConsumeQueue, "entries", fail_once)
    desk.advance(10 * SECOND)
    desk.advance(5 * SECOND)
    assert not left
    assert len(bodies(desk)) == FIRES_PER_TURN + 50
