"""Delayed messages after a restart: pending ones by checkpoint, by a scan of the log, and by look-ups in the key
index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk
from protocols.rocketmq.schedule.test_batch_delivery import DUE_MS, SECOND, bodies, numbers, send

from trimq.core.api.commit_log import CommitLogApi
from trimq.core.api.commit_log_lookup import CommitLogLookupApi
from trimq.core.scheduling.timers import FIRES_PER_TURN
from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.schedule import SCHEDULE_TOPIC, WHEEL_TOPIC
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.schedule import restart_scan
from trimq.protocols.rocketmq.schedule.scheduler import GROUP

ENDS = ["restart", "kill", "cut_power"]
RECALL = 370


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys that were looked up in the key index."""
    keys: list[str] = []
    find_key = CommitLogLookupApi.find_key

    def find(lookup_api: CommitLogLookupApi, caller: Any, topic: str, key: str, *times: int) -> Iterator[Any]:
        keys.append(key)
        return find_key(lookup_api, caller, topic, key, *times)

    monkeypatch.setattr(CommitLogLookupApi, "find_key", find)
    return keys


def commit_log_of(desk: Desk) -> CommitLogApi:
    assert desk.core.commit_log_service is not None
    return desk.core.commit_log_service.commit_log


def send_by_level(desk: Desk, number: int, level: int = 4) -> None:
    """Sends a delayed message, by default with a level of half a minute."""
    desk.broker.send("t", b"%d" % number, 1, f"UNIQ_KEY\x01K{number}\x02DELAY\x01{level}\x02")


def recall(desk: Desk, handle: str) -> None:
    assert desk.broker.ask(RECALL, {"producerGroup": "pg", "topic": "t", "recallHandle": handle}).code == 0


def no_units(lookup_api: CommitLogLookupApi, caller: Any, position: int) -> Iterator[Any]:
    raise OffsetOutOfRange(position, 0, 0)


def remove_checkpoints(desk: Desk) -> None:
    """Removes the checkpoints, as in a folder written by an earlier version."""
    commit_log = commit_log_of(desk)
    for name in (SCHEDULE_TOPIC, WHEEL_TOPIC):
        topic = commit_log.topics.get(SYSTEM, name)
        for stream in topic.streams():
            known = commit_log.groups.cursor(SYSTEM, GROUP, topic, stream.id.number)
            commit_log.groups.commit(SYSTEM, GROUP, topic, stream.id.number, known.offset if known else 0)
    desk.runner.settle()


@pytest.mark.parametrize("ends", ENDS)
def test_messages_delayed_by_time_are_delivered_in_batches_without_look_ups(ends: str, asked: list[str]) -> None:
    desk = Desk(commit_file_bytes=1 << 18, message_bytes=20_000)
    for number in range(FIRES_PER_TURN + 50):
        send(desk, number, "TIMER_DELAY_SEC\x0160\x02")
    desk = getattr(desk, ends)()
    desk.advance(60 * SECOND - 1)
    assert bodies(desk) == []
    desk.advance(1)
    assert bodies(desk) == numbers(FIRES_PER_TURN + 50)
    assert asked == []


@pytest.mark.parametrize("ends", ENDS)
def test_messages_delayed_by_level_are_delivered_in_batches_without_look_ups(ends: str, asked: list[str]) -> None:
    desk = Desk()
    desk.broker.send("t", b"x", 1)
    send_by_level(desk, 0)
    desk.advance(31 * SECOND)  # so that a checkpoint exists
    for number in range(1, FIRES_PER_TURN + 50):
        send_by_level(desk, number)
    desk = getattr(desk, ends)()
    desk.advance(29 * SECOND)
    assert bodies(desk)[1:] == [b"0"]
    desk.advance(SECOND)
    assert bodies(desk)[1:] == numbers(FIRES_PER_TURN + 50)
    assert asked == []


@pytest.mark.parametrize("ends", ENDS)
def test_after_an_interrupted_delivery_only_possibly_delivered_messages_are_looked_up(
    ends: str, asked: list[str]
) -> None:
    desk = Desk()
    count = 6 * FIRES_PER_TURN
    for number in range(count):
        send(desk, number)
    for turn in range(3):
        assert desk.message_time.step(DUE_MS)
        if turn < 2:
            desk.runner.settle()
    desk.runner.end_pass()
    desk = getattr(desk, ends)()
    desk.advance(SECOND)
    assert bodies(desk) == numbers(count)
    assert len({*asked}) <= 2 * FIRES_PER_TURN, "more look-ups than for the two batches in flight"


def test_delivered_messages_behind_a_long_delay_get_no_timer_again(asked: list[str]) -> None:
    desk = Desk()
    desk.broker.send("t", b"late", 1, f"UNIQ_KEY\x01L\x02TIMER_DELIVER_MS\x01{DUE_MS + 3600 * SECOND}\x02")
    for number in range(100):
        send(desk, number)
    desk.advance(10 * SECOND)
    desk = desk.kill()
    assert json.loads(desk.broker.ask(28).body)["table"]["timerCongestNum"] == "1"
    desk.advance(3600 * SECOND)
    assert bodies(desk) == [*numbers(100), b"late"]
    assert asked == []


@pytest.mark.parametrize("ends", ENDS)
def test_messages_recalled_before_a_start_are_not_delivered_and_few_are_looked_up(ends: str, asked: list[str]) -> None:
    desk = Desk()
    handles = [send(desk, number).fields["recallHandle"] for number in range(600)]
    for number in (0, 300, 599):
        recall(desk, handles[number])
    desk = getattr(desk, ends)()
    remove_checkpoints(desk)  # so that all messages must be checked
    desk = getattr(desk, ends)()
    desk.advance(10 * SECOND)
    assert bodies(desk) == [body for body in numbers(600) if body not in (b"0", b"300", b"599")]
    assert {"K0", "K300", "K599"} <= {*asked}


def test_no_note_speaks_of_a_place_in_the_log_that_another_message_may_get() -> None:
    desk = Desk()
    recall(desk, send(desk, 0).fields["recallHandle"])
    pending = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0, "i": ""}
    desk.broker.begin(310, pending, b"not durable yet")
    while desk.message_time.step(DUE_MS):
        pass
    commit_log = commit_log_of(desk)
    known = commit_log.groups.cursor(SYSTEM, GROUP, commit_log.topics.get(SYSTEM, WHEEL_TOPIC), 0)
    assert known is not None
    _, durable_end, end = commit_log.lookup.log_ends()
    assert int(known.metadata.split(" ")[3]) <= durable_end < end


def test_messages_delivered_by_shorter_levels_are_not_delivered_again_by_longer_ones() -> None:
    desk = Desk(delay_levels="1s 5s", commit_file_bytes=1 << 20)
    desk.broker.send("t", b"x", 1)
    for number in range(40):
        send_by_level(desk, number, 1)
    assert desk.message_time.step(desk.message_time.now_ms() + SECOND)
    desk.runner.end_pass()
    desk.given["delay_levels"] = "1h 2h"
    desk = desk.kill()
    desk.advance(3 * 3600 * SECOND)
    assert bodies(desk)[1:] == numbers(40)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_log_that_cannot_be_looked_at_makes_them_come_one_by_one(
    damaged: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * FIRES_PER_TURN
    desk = Desk()
    for number in range(count):
        send(desk, number)
    assert desk.message_time.step(DUE_MS)
    desk.runner.end_pass()
    if damaged:
        monkeypatch.setattr(CommitLogLookupApi, "units_from", no_units)
    else:
        monkeypatch.setattr(restart_scan, "_MAX_BYTES", 0)
    desk = desk.kill()
    desk.advance(10 * SECOND)
    assert bodies(desk) == numbers(count)
    assert len({*asked}) == count


def test_a_folder_without_notes_is_read_as_it_was_before_there_were_any(asked: list[str]) -> None:
    desk = Desk()
    for number in range(600):
        send(desk, number)
        send_by_level(desk, 1000 + number, 5)  # one minute
    assert desk.message_time.step(DUE_MS)
    desk.runner.settle()
    remove_checkpoints(desk)
    desk = desk.kill()
    desk.advance(3600 * SECOND)
    came = bodies(desk)
    assert [body for body in came if len(body) < 4] == numbers(600)
    assert [body for body in came if len(body) == 4] == [b"%d" % number for number in range(1000, 1600)]


def test_plain_and_special_ones_in_turn_are_read_once() -> None:
    def read_bytes(special: int) -> int:
        desk = Desk()
        for number in range(FIRES_PER_TURN):
            send(
                desk, number, "TIMER_ENQUEUE_MS\x011\x02" if special and number % special == 0 else "", body=bytes(500)
            )
        before = desk.files.read_bytes
        desk.advance(10 * SECOND)
        return desk.files.read_bytes - before

    assert read_bytes(2) < 4 * read_bytes(0)


def test_the_scan_crosses_file_ends_and_stops_at_damage() -> None:
    desk = Desk(commit_file_bytes=1 << 14, message_bytes=4000)
    sent = [b"%d" % number + bytes(1500) for number in range(40)]
    for body in sent:
        desk.broker.send("t", body, 1)
    commit_log = commit_log_of(desk)
    units = list(commit_log.lookup.units_from(SYSTEM, 0))
    assert [bytes(unit.body) for unit in units] == sent
    assert list(commit_log.lookup.units_from(SYSTEM, units[20].position)) == units[20:]
    with pytest.raises(OffsetOutOfRange):
        list(commit_log.lookup.units_from(SYSTEM, units[20].position + 1))


def test_suspect_keys_are_dropped_when_all_of_them_are_delivered() -> None:
    desk = Desk()
    for number in range(600):
        send(desk, number)
    desk.advance(DUE_MS - desk.message_time.now_ms())
    remove_checkpoints(desk)
    for number in range(600, 900):
        send_by_level(desk, number, 2)
    desk = desk.kill()
    desk.advance(60 * SECOND)
    assert desk.doors._services.sending.scheduler._restart_scan.suspect_keys == set()
    assert sorted(bodies(desk)) == sorted(numbers(900))


def test_a_step_of_the_scan_is_bounded_by_the_bytes_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(commit_file_bytes=1 << 24)
    body = bytes(1 << 18)
    for number in range(20):
        desk.broker.send("t", body, 1, f"UNIQ_KEY\x01K{number}\x02TIMER_DELIVER_MS\x01{DUE_MS}\x02")
    steps: list[int] = []
    go_on = restart_scan.RestartScan._run_step

    def count(earlier: restart_scan.RestartScan) -> None:
        steps.append(1)
        go_on(earlier)

    monkeypatch.setattr(restart_scan.RestartScan, "_run_step", count)
    desk = desk.kill()
    desk.advance(0)
    assert len(steps) >= 5  # 5 MB each
