"""POP: leases, acknowledgement by receipt, revival of expired messages, and restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from errno import EMFILE
from itertools import count
from typing import Any

import pytest
from core.core_bench import AnyChanges, CoreBench
from hypothesis import given, settings
from hypothesis import strategies as st

from trimq.config import Address, RocketMQ, Settings
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.stream import MessageFilter, MessageQueue, QueueEntry
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.core.pop.pop import PopService
from trimq.core.pop.receipts import PoppedMessage, PopRequest, PopResult, Receipt
from trimq.errors import DamagedSegment, LeaseGone, NotRunning
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft
from trimq.model import SYSTEM

HOST = pack_host("127.0.0.1", 1)
SECOND = 1000


class PopBench:
    """One topic `t`, and the group `g`."""

    def __init__(self, streams: int = 1, **settings: Any) -> None:
        section = RocketMQ(broker_listen=Address("127.0.0.1", 0), commit_file_bytes=1 << 16, **settings)
        self.bench = CoreBench(Settings(rocketmq=section))
        self.commit_log.topics.create(SYSTEM, CommitLogTopicDefinition("", "t", streams, streams))
        self.begin()

    def begin(self) -> None:
        self.pop_service.start(lambda: HOST)
        self.bench.settle()

    @property
    def commit_log(self) -> CommitLogApi:
        assert self.bench.core.commit_log_service is not None
        return self.bench.core.commit_log_service.commit_log

    @property
    def pop_service(self) -> PopService:
        return self.commit_log.pop_service

    @property
    def topic(self) -> CommitLogTopic:
        return self.commit_log.topics.get(SYSTEM, "t")

    def send(self, *bodies: bytes, number: int = 0, code: int = 0) -> None:
        for body in bodies:
            draft = UnitDraft(b"t", number, body, b"UNIQ_KEY\x01u%s\x02" % body, 0, 0, 5, HOST)
            self.commit_log.messages.append(SYSTEM, self.topic, self.topic.stream(number), draft, code, HOST)
        self.bench.settle()

    def receive(self, max_count: int = 32, invisible_ms: int = 10 * SECOND, **pop_request: Any) -> PopResult:
        numbers = pop_request.pop("numbers", range(self.topic.definition.read_streams))
        received = self.pop_service.receive(
            SYSTEM, "g", self.topic, PopRequest(numbers, max_count, invisible_ms, **pop_request)
        )
        self.bench.settle()
        return received

    def bodies(self, max_count: int = 32, invisible_ms: int = 10 * SECOND, **pop_request: Any) -> list[bytes]:
        return bodies_of(self.receive(max_count, invisible_ms, **pop_request).messages)

    def ack(self, popped: PoppedMessage) -> bool:
        ticket = self.pop_service.ack(SYSTEM, "g", self.topic, popped.receipt)
        self.bench.settle()
        return ticket is not None

    def cursor(self) -> int | None:
        found = self.commit_log.groups.cursor(SYSTEM, "g", self.topic, 0)
        return None if found is None else found.offset


def bodies_of(messages: list[PoppedMessage]) -> list[bytes]:
    return [bytes(popped.unit().body) for popped in messages]


def test_each_message_is_popped_once() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    first = bench.receive(2)
    assert (bodies_of(first.messages), first.rest) == ([b"0", b"1"], 1)
    assert (bench.bodies(2), bench.bodies(2)) == ([b"2"], [])
    assert bench.cursor() == 3


def test_an_unacked_message_is_revived_with_a_higher_reconsume_count_and_an_acked_one_is_not() -> None:
    bench = PopBench()
    bench.send(b"0", b"1")
    settled, left = bench.receive().messages
    assert bench.ack(settled)
    bench.bench.advance(9 * SECOND)
    assert bench.bodies() == []
    bench.bench.advance(SECOND)
    (again,) = bench.receive().messages
    unit = again.unit()
    assert (bytes(unit.body), unit.reconsume_times, again.receipt.is_retry) == (b"1", 1, True)
    properties = read_properties(unit.properties)
    assert properties["ORIGIN_GROUP"] == "g"
    assert properties["1ST_POP_TIME"] == str(left.receipt.pop_time_ms)
    bench.bench.advance(10 * SECOND)
    (third,) = bench.receive().messages
    assert (third.unit().reconsume_times, third.topic.name.name) == (2, "%RETRY%g_t")
    assert bench.ack(third)
    bench.bench.advance(60 * SECOND)
    assert bench.bodies() == []


def test_a_receipt_is_valid_once_and_not_after_its_lease_expired() -> None:
    bench = PopBench()
    bench.send(b"0", b"1")
    first, second = bench.receive().messages
    assert (bench.ack(first), bench.ack(first)) == (True, False)
    bench.bench.advance(10 * SECOND)
    assert not bench.ack(second)
    assert bench.bodies() == [b"1"]


def test_after_a_change_of_the_invisible_time_only_the_new_receipt_is_valid() -> None:
    bench = PopBench()
    bench.send(b"0")
    (popped,) = bench.receive().messages
    bench.bench.advance(SECOND)
    receipt, _ = bench.pop_service.change_invisible(SYSTEM, "g", bench.topic, popped.receipt, 60 * SECOND)
    bench.bench.settle()
    assert not bench.ack(popped)
    bench.bench.advance(59 * SECOND)
    assert bench.bodies() == []
    with pytest.raises(LeaseGone):
        bench.pop_service.change_invisible(SYSTEM, "g", bench.topic, popped.receipt, 1)
    assert bench.pop_service.ack(SYSTEM, "g", bench.topic, receipt) is not None


def test_a_rejected_message_is_in_the_dead_letter_topic_only() -> None:
    bench = PopBench()
    bench.send(b"0")
    (popped,) = bench.receive().messages
    bench.pop_service.dead_letters(SYSTEM, "g", bench.topic, popped.receipt)
    bench.bench.settle()
    bench.pop_service.forward_to_dlq(SYSTEM, "g", bench.topic, popped.receipt)
    bench.bench.advance(60 * SECOND)
    assert bench.bodies() == []
    dead = bench.commit_log.topics.get(SYSTEM, "%DLQ%g").stream(0).unit(0)
    assert (bytes(dead.body), read_properties(dead.properties)["RETRY_TOPIC"]) == (b"0", "t")
    with pytest.raises(LeaseGone):
        bench.pop_service.forward_to_dlq(SYSTEM, "g", bench.topic, popped.receipt)


def test_a_filter_selects_messages_and_the_others_are_skipped() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", code=7)
    bench.send(b"2", code=8)
    assert bench.bodies(message_filter=MessageFilter(lambda code: code == 8)) == [b"2"]
    assert (bench.bodies(), bench.cursor()) == ([], 3)


def test_a_group_that_begins_at_the_end_gets_all_of_a_new_queue() -> None:
    bench = PopBench()
    bench.send(b"0")
    assert bench.bodies(from_end=True) == [b"0"]


def test_messages_in_flight_are_limited() -> None:
    bench = PopBench(pop_out_limit=2)
    bench.send(b"0", b"1", b"2")
    first, _ = bench.receive().messages
    assert bench.bodies() == []
    bench.ack(first)
    assert bench.bodies() == [b"2"]


# -- ordered consumption


def test_in_order_nothing_is_delivered_until_all_are_acked() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    first, second = bench.receive(2, is_ordered=True, attempt_id="a").messages
    assert bench.bodies(2, is_ordered=True, attempt_id="b") == []
    assert bench.cursor() == 0
    bench.ack(first)
    assert (bench.bodies(2, is_ordered=True, attempt_id="b"), bench.cursor()) == ([], 1)
    bench.ack(second)
    assert (bench.bodies(2, is_ordered=True, attempt_id="b"), bench.cursor()) == ([b"2"], 2)


def test_in_order_the_same_attempt_gets_the_same_messages_again() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    assert bench.bodies(2, is_ordered=True, attempt_id="a") == [b"0", b"1"]
    again = bench.receive(2, is_ordered=True, attempt_id="a")
    assert (bodies_of(again.messages), [popped.tries for popped in again.messages]) == ([b"0", b"1"], [0, 0])


def test_in_order_expired_messages_are_delivered_again_first_without_acked_ones() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    _, settled = bench.receive(2, is_ordered=True).messages
    bench.ack(settled)
    bench.bench.advance(10 * SECOND)
    again = bench.receive(3, is_ordered=True).messages
    assert (bodies_of(again), [popped.tries for popped in again]) == ([b"0", b"2"], [1, 0])
    assert bench.commit_log.topics.find(SYSTEM, "%RETRY%g_t") is None


# -- long polls


def test_a_long_poll_is_woken_by_new_and_by_revived_messages() -> None:
    bench = PopBench()
    woken: list[int] = []
    bench.pop_service.watch("g", bench.topic, [0], lambda: woken.append(1))
    bench.send(b"0")
    assert len(woken) == 1
    bench.receive()
    for tries in (2, 3):  # revived into a topic that does not exist yet, then into the same topic
        bench.pop_service.watch("g", bench.topic, [0], lambda: woken.append(1))
        bench.bench.advance(10 * SECOND)
        assert len(woken) == tries
        assert bench.bodies() == [b"0"]


def test_an_ordered_long_poll_is_woken_when_all_are_acked_or_expired() -> None:
    bench = PopBench()
    bench.send(b"0", b"1")
    woken: list[int] = []
    (first,) = bench.receive(1, is_ordered=True).messages
    bench.pop_service.watch("g", bench.topic, [0], lambda: woken.append(1))
    bench.ack(first)
    assert (len(woken), bench.bodies(1, is_ordered=True)) == (1, [b"1"])
    bench.pop_service.watch("g", bench.topic, [0], lambda: woken.append(1))
    bench.bench.advance(10 * SECOND)
    assert (len(woken), bench.bodies(1, is_ordered=True)) == (2, [b"1"])


def test_peeking_takes_no_lease() -> None:
    bench = PopBench()
    assert not bench.pop_service.has_any(SYSTEM, "g", bench.topic, [0])
    bench.send(b"0", b"1")
    seen = bench.pop_service.peek(SYSTEM, "g", bench.topic, [0], 1)
    assert (bodies_of(seen.messages), seen.rest) == ([b"0"], 1)
    assert bench.pop_service.has_any(SYSTEM, "g", bench.topic, [0])
    assert bench.bodies() == [b"0", b"1"]
    assert not bench.pop_service.has_any(SYSTEM, "g", bench.topic, [0])


# -- restarts and failed writes


@pytest.mark.parametrize("ending", ["restart", "kill", "crash"])
def test_after_a_restart_unacked_messages_are_revived_and_acked_ones_are_not(ending: str) -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    settled, _ = bench.receive(2).messages
    bench.ack(settled)
    getattr(bench.bench, ending)()
    with pytest.raises(NotRunning):
        bench.bodies()
    bench.begin()
    assert bench.bodies() == [b"2"]
    bench.bench.advance(11 * SECOND)
    assert sorted(bench.bodies()) == [b"1", b"2"]


def test_a_receipt_is_valid_after_a_restart() -> None:
    bench = PopBench()
    bench.send(b"0")
    (popped,) = bench.receive().messages
    bench.bench.restart()
    bench.begin()
    assert bench.ack(popped)
    bench.bench.advance(60 * SECOND)
    assert bench.bodies() == []


def test_ordered_messages_in_flight_are_still_in_flight_after_a_restart() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    first, _ = bench.receive(2, is_ordered=True).messages
    bench.ack(first)
    bench.bench.restart()
    bench.begin()
    assert bench.bodies(is_ordered=True) == []
    bench.bench.advance(11 * SECOND)
    again = bench.receive(is_ordered=True).messages
    assert (bodies_of(again), again[0].tries) == ([b"1", b"2"], 1)


def test_a_lease_or_an_ack_whose_write_failed_has_no_effect() -> None:
    bench = PopBench()
    bench.send(b"0", b"1")
    bench.bench.fail_writes("taken")
    refused = bench.receive(1)
    assert refused.ticket is not None
    assert refused.ticket.refusal is not None
    bench.bench.mend()
    first, _ = bench.receive().messages
    bench.bench.fail_writes("taken")
    ticket = bench.pop_service.ack(SYSTEM, "g", bench.topic, first.receipt)
    bench.bench.settle()
    assert ticket is not None
    assert ticket.refusal is not None
    bench.bench.mend()
    bench.bench.advance(15 * SECOND)
    assert sorted(bench.bodies()) == [b"0", b"1"]


def test_two_pops_whose_common_write_failed_skip_no_message() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    bench.bench.fail_writes("taken")
    for _ in range(2):
        bench.pop_service.receive(SYSTEM, "g", bench.topic, PopRequest([0], 1, 10 * SECOND))
    bench.bench.settle()
    bench.bench.mend()
    assert bench.bodies() == [b"0", b"1", b"2"]


def test_a_revival_whose_write_failed_is_retried() -> None:
    bench = PopBench()
    bench.send(b"0")
    bench.receive()
    bench.bench.fail_writes("commitlog")
    bench.bench.advance(12 * SECOND)
    bench.bench.mend()
    bench.bench.advance(2 * SECOND)
    assert bench.bodies() == [b"0"]


@pytest.mark.parametrize(("retry_limit", "own"), [(16, "%RETRY%g_t"), (0, "%DLQ%g")])
def test_a_revival_is_retried_when_its_topic_cannot_be_created(retry_limit: int, own: str) -> None:
    bench = PopBench()
    bench.commit_log.groups.define(SYSTEM, CommitLogGroup("g", retry_limit=retry_limit))
    bench.send(b"0")
    bench.receive()
    bench.bench.fail_writes("catalogue")
    bench.bench.advance(12 * SECOND)
    assert bench.commit_log.topics.find(SYSTEM, own) is None
    bench.bench.mend()
    bench.bench.advance(2 * SECOND)
    stream = bench.commit_log.topics.get(SYSTEM, own).stream(0)
    assert (stream.readable_end, bytes(stream.unit(0).body)) == (1, b"0")


def test_several_messages_are_dead_lettered_at_once() -> None:
    bench = PopBench()
    bench.commit_log.groups.define(SYSTEM, CommitLogGroup("g", retry_limit=0))
    bench.send(b"0", b"1", b"2")
    bench.receive()
    bench.bench.advance(10 * SECOND)
    stream = bench.commit_log.topics.get(SYSTEM, "%DLQ%g").stream(0)
    assert sorted(bytes(stream.unit(offset).body) for offset in range(stream.readable_end)) == [b"0", b"1", b"2"]


def test_popping_continues_at_a_cursor_that_was_reset_also_after_a_restart() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    zero, one, _ = bench.receive().messages
    assert bench.ack(zero) and bench.ack(one)  # noqa: PT018
    bench.commit_log.groups.commit(SYSTEM, "g", bench.topic, 0, 1)
    bench.bench.settle()
    bench.bench.restart()
    bench.begin()
    assert bench.bodies() == [b"1"]  # the third is in flight


def reset(bench: PopBench, offset: int) -> None:
    bench.commit_log.groups.reset(SYSTEM, "g", bench.topic, 0, offset)
    bench.bench.settle()


@pytest.mark.parametrize("ending", ["restart", "kill", "crash"])
def test_an_offset_reset_in_order_releases_the_messages_in_flight_also_after_a_restart(ending: str) -> None:
    bench = PopBench()
    bench.send(*(b"%d" % number for number in range(10)))
    held = bench.receive(3, is_ordered=True).messages
    reset(bench, 5)
    getattr(bench.bench, ending)()
    bench.begin()
    assert bench.bodies(3, is_ordered=True) == [b"5", b"6", b"7"]
    assert not bench.ack(held[0])
    bench.bench.advance(10 * SECOND)
    assert bench.bodies(3, is_ordered=True) == [b"5", b"6", b"7"]


def test_an_offset_reset_in_order_delivers_the_same_messages_again_as_if_for_the_first_time() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2", b"3")
    bench.receive(3, SECOND, is_ordered=True)
    bench.bench.advance(SECOND)
    bench.receive(2, is_ordered=True, attempt_id="a")  # 0 and 1 are in flight, 2 is returned
    reset(bench, 0)
    again = bench.receive(3, is_ordered=True, attempt_id="a").messages
    assert [(bytes(popped.unit().body), popped.tries) for popped in again] == [(b"0", 0), (b"1", 0), (b"2", 0)]


def test_an_offset_reset_delivers_later_messages_in_flight_again_and_leaves_earlier_ones_in_flight() -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2")
    held = bench.receive().messages
    reset(bench, 1)
    bench.bench.advance(1)  # receipts of one millisecond are equal
    assert bench.bodies() == [b"1", b"2"]
    assert [bench.ack(popped) for popped in held] == [True, False, False]


def test_an_offset_reset_wakes_the_requests_that_wait() -> None:
    bench = PopBench()
    bench.send(b"0")
    bench.receive(is_ordered=True)
    woken: list[int] = []
    bench.pop_service.watch("g", bench.topic, [0], lambda: woken.append(1))
    reset(bench, 0)
    assert (len(woken), bench.bodies(is_ordered=True)) == (1, [b"0"])


def test_a_retry_that_is_being_stored_does_not_settle_a_message_popped_again_after_an_offset_reset() -> None:
    bench = PopBench()
    bench.send(b"0", b"1")
    bench.receive(1, SECOND)
    bench.bench.advance(SECOND)  # the retry topic exists now
    bench.receive(1, SECOND)
    until_ms = bench.bench.time.now_ms() + SECOND
    while bench.bench.time.step(until_ms):
        pass
    bench.commit_log.groups.reset(SYSTEM, "g", bench.topic, 0, 1)
    popped = bench.pop_service.receive(SYSTEM, "g", bench.topic, PopRequest([0], 1, 10 * SECOND)).messages
    bench.bench.settle()
    assert bodies_of(popped) == [b"1"]
    assert bench.ack(popped[0])


@pytest.mark.parametrize("seed", range(10))
def test_an_offset_reset_that_a_power_cut_keeps_in_part_loses_no_message(seed: int) -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2", b"3")
    bench.receive(3, is_ordered=bool(seed % 2))
    bench.commit_log.groups.reset(SYSTEM, "g", bench.topic, 0, 0)
    bench.bench.runner.end_pass()
    bench.bench.crash(AnyChanges(seed))
    bench.begin()
    seen: set[bytes] = set()
    for _ in range(4):
        seen.update(bench.bodies(is_ordered=bool(seed % 2)))
        bench.bench.advance(10 * SECOND)
    assert seen == {b"0", b"1", b"2", b"3"}


def test_deleting_a_group_or_a_topic_drops_its_leases() -> None:
    bench = PopBench()
    bench.send(b"0")
    bench.commit_log.groups.define(SYSTEM, CommitLogGroup("g"))
    bench.receive()
    bench.commit_log.groups.delete(SYSTEM, "g", forgets_cursors=True)
    bench.bench.advance(60 * SECOND)
    assert bench.commit_log.topics.find(SYSTEM, "%RETRY%g_t") is None
    assert bench.bodies() == [b"0"]
    bench.commit_log.topics.delete(SYSTEM, bench.topic)
    bench.bench.advance(60 * SECOND)
    assert bench.commit_log.topics.find(SYSTEM, "%RETRY%g_t") is None


def test_a_message_revived_right_before_a_power_cut_is_revived_once() -> None:
    bench = PopBench()
    bench.send(b"0")
    bench.receive()
    bench.bench.fail_writes("taken")  # the message is revived, but the revival is not stored
    bench.bench.advance(10 * SECOND)
    bench.bench.crash()
    bench.begin()
    bench.bench.advance(20 * SECOND)
    assert (bench.bodies(), bench.bodies()) == ([b"0"], [])


@pytest.mark.parametrize("seed", range(30))
def test_after_power_cuts_at_any_moment_nothing_is_lost_and_no_acked_message_is_popped_again(seed: int) -> None:
    rng = random.Random(seed)
    bench = PopBench(streams=2)
    sent: set[bytes] = set()
    settled: set[bytes] = set()
    out: list[PoppedMessage] = []
    for step in range(40):
        body = b"%d" % step
        bench.send(body, number=rng.randrange(2))
        sent.add(body)
        if rng.random() < 0.6:
            out += bench.receive(rng.randrange(1, 5), rng.choice((1, 20)) * SECOND).messages
        if out and rng.random() < 0.7:
            popped = out.pop(rng.randrange(len(out)))
            if bench.ack(popped):
                settled.add(bytes(popped.unit().body))
        bench.bench.advance(rng.choice((0, SECOND, 3 * SECOND)))
        if rng.random() < 0.15:
            for _ in range(rng.randrange(3)):
                pop_request = PopRequest(range(2), 2, SECOND)
                bench.pop_service.receive(SYSTEM, "g", bench.topic, pop_request)  # the result is never delivered
                bench.bench.runner.end_pass()
            bench.bench.crash(AnyChanges(rng.randrange(1 << 30)))
            bench.begin()
    seen: set[bytes] = set()
    for _ in range(20):
        for popped in bench.receive().messages:
            body = bytes(popped.unit().body)
            assert body not in settled
            seen.add(body)
            bench.ack(popped)
        bench.bench.advance(10 * SECOND)
    assert seen == sent - settled


# -- retry limit


def test_a_message_beyond_the_retry_limit_is_dead_lettered() -> None:
    bench = PopBench()
    bench.commit_log.groups.define(SYSTEM, CommitLogGroup("g", retry_limit=2))
    bench.send(b"0")
    for tries in range(3):
        (popped,) = bench.receive().messages
        assert popped.unit().reconsume_times == tries
        bench.bench.advance(10 * SECOND)
    assert bench.bodies() == []
    dead = bench.commit_log.topics.get(SYSTEM, "%DLQ%g").stream(0).unit(0)
    assert (bytes(dead.body), dead.reconsume_times) == (b"0", 3)
    assert read_properties(dead.properties)["RETRY_TOPIC"] == "t"


def test_in_order_a_message_beyond_the_retry_limit_does_not_block_the_next() -> None:
    bench = PopBench()
    bench.commit_log.groups.define(SYSTEM, CommitLogGroup("g", retry_limit=1))
    bench.send(b"0", b"1")
    for _ in range(2):
        assert bench.bodies(1, is_ordered=True) == [b"0"]
        bench.bench.advance(10 * SECOND)
    assert bench.cursor() == 1
    assert bench.bodies(1, is_ordered=True) == [b"1"]
    assert bytes(bench.commit_log.topics.get(SYSTEM, "%DLQ%g").stream(0).unit(0).body) == b"0"


def test_a_message_dead_lettered_right_before_a_crash_is_dead_lettered_once() -> None:
    bench = PopBench()
    bench.commit_log.groups.define(SYSTEM, CommitLogGroup("g", retry_limit=0))
    bench.send(b"0")
    bench.receive()
    bench.bench.fail_writes("taken")  # the message is dead-lettered, but this is not stored
    bench.bench.advance(10 * SECOND)
    bench.bench.crash()
    bench.begin()
    bench.bench.advance(60 * SECOND)
    dead = bench.commit_log.topics.get(SYSTEM, "%DLQ%g").stream(0)
    assert dead.readable_end == 1
    assert bench.bodies() == []


def test_a_receipt_is_valid_although_the_clock_moved_while_messages_were_popped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = PopBench()
    bench.send(b"0", b"1")
    begin_ms, ticks = bench.bench.time.now_ms(), count()
    with monkeypatch.context() as moving:
        moving.setattr(bench.bench.time, "now_ms", lambda: begin_ms + next(ticks))
        received = bench.pop_service.receive(SYSTEM, "g", bench.topic, PopRequest([0], 2, 10 * SECOND))
    bench.bench.settle()
    assert [bench.ack(popped) for popped in received.messages] == [True, True]
    assert len({popped.receipt.pop_time_ms for popped in received.messages}) == 1


def receipts_of(bench: PopBench) -> list[Receipt]:
    """Returns receipts of two queues and of revived messages: in flight, replaced by a later receipt, acked before,
    never given out."""
    for number in (0, 1):
        bench.send(*(b"%d" % (2 * at + number) for at in range(4)), number=number)
    early = [popped.receipt for popped in bench.receive(2).messages]
    bench.bench.advance(10 * SECOND)
    found = [popped.receipt for popped in bench.receive(20, 60 * SECOND).messages]
    bench.bench.advance(SECOND)
    later, _ = bench.pop_service.change_invisible(SYSTEM, "g", bench.topic, found[-1], 60 * SECOND)
    bench.pop_service.ack(SYSTEM, "g", bench.topic, found[-2])
    bench.bench.settle()
    return [*early, *found, later, found[0]._replace(offset=99), found[0]._replace(number=7)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=12), st.integers(0, 12), st.booleans())
def test_receipts_are_acked_together_as_they_are_one_by_one(places: list[int], first: int, has_stopped: bool) -> None:
    outcomes: list[list[object]] = []
    for is_together in (True, False):
        bench = PopBench(streams=2)
        receipts = receipts_of(bench)
        if has_stopped:
            bench.pop_service.stop()
        acknowledger = bench.pop_service.acknowledger(SYSTEM, "g", bench.topic)
        chosen = [receipts[place % len(receipts)] for place in places]
        if is_together:
            found = acknowledger.ack_all(chosen[:first]) + acknowledger.ack_all(chosen[first:])  # in the same pass
        else:
            found = [outcome for receipt in chosen for outcome in acknowledger.ack_all([receipt])]
        bench.bench.settle()
        numbers: list[object] = [getattr(each, "number", None if each is None else type(each)) for each in found]
        kept = sorted(key.partition("/")[2] for key, _ in bench.pop_service._queues._table.items())
        outcomes.append([numbers, kept])
    assert outcomes[0] == outcomes[1]


def test_messages_of_one_queue_are_read_together_as_they_are_one_by_one() -> None:
    bench = PopBench(streams=2)
    for at in range(6):
        bench.send(b"x" * (1 + at * 900), number=0)
        if at != 2:
            bench.send(b"between", number=1)
    stream = bench.topic.stream(0)
    entries = list(stream.entries(0, 10))
    for chosen in (entries, entries[2:4], entries[:1], entries[::-1], [*entries[3:], entries[0]], []):
        assert stream.views(chosen) == [stream.view(entry) for entry in chosen]


# Without a filter no message is read before its lease; by tags the queue entry is read, by properties the whole
# message.
INTERESTS = [
    None,
    MessageFilter(lambda code: code == 7, lambda written: b"UNIQ_KEY" in written),
    MessageFilter(None, bool),
]


def damage(bench: PopBench, body: bytes) -> None:
    log = bench.topic.stream(0)._store.log
    log.unverified_end = log.end  # as after a restart
    segment = log.journal.segments[0]
    segment.file.write(bytes(segment.view(0, segment.size)).index(body), [body.lower()])


@pytest.mark.parametrize("message_filter", INTERESTS, ids=["any", "tags", "properties"])
@pytest.mark.parametrize("count", [32, 3, 1])
def test_a_damaged_message_blocks_no_other_message(count: int, message_filter: MessageFilter | None) -> None:
    bench = PopBench()
    bench.send(b"good0", b"good1", b"BAD__", b"good3", code=7)
    damage(bench, b"BAD__")
    found: set[bytes] = set()
    for _ in range(8):
        with suppress(DamagedSegment):
            found.update(bench.bodies(max_count=count, message_filter=message_filter))
        bench.bench.advance(11 * SECOND)
    assert found == {b"good0", b"good1", b"good3"}


@pytest.mark.parametrize("message_filter", INTERESTS[1:], ids=["tags", "properties"])
def test_messages_before_a_damaged_one_are_popped_first_and_those_after_it_with_the_second_next_request(
    message_filter: MessageFilter,
) -> None:
    bench = PopBench()
    bench.send(b"good0", b"good1", b"BAD__", b"good3", code=7)
    damage(bench, b"BAD__")
    assert bench.bodies(message_filter=message_filter) == [b"good0", b"good1"]
    with pytest.raises(DamagedSegment):
        bench.bodies(message_filter=message_filter)
    assert bench.bodies(message_filter=message_filter) == [b"good3"]


def test_a_damaged_message_that_the_filter_excludes_is_skipped() -> None:
    bench = PopBench()
    bench.send(b"good0", code=7)
    bench.send(b"BAD__", code=8)
    bench.send(b"good2", code=7)
    damage(bench, b"BAD__")
    assert bench.bodies(message_filter=INTERESTS[1]) == [b"good0", b"good2"]


@pytest.mark.parametrize("failing", [0, 2], ids=["the first", "one amid others"])
@pytest.mark.parametrize("name", ["_unit", "entries"])
def test_a_file_that_cannot_be_opened_for_a_moment_loses_no_message(
    monkeypatch: pytest.MonkeyPatch, failing: int, name: str
) -> None:
    bench = PopBench()
    bench.send(b"0", b"1", b"2", b"3")
    message_filter, seen = MessageFilter(None, bool), count()
    whole, read_unit = MessageQueue.entries, MessageQueue._unit

    def entries(stream: MessageQueue, offset: int, limit: int) -> Iterator[QueueEntry]:
        for entry in whole(stream, offset, limit):
            if entry.offset == failing:
                raise OSError(EMFILE, "too many open files")
            yield entry

    def unit(stream: MessageQueue, position: int, size: int) -> Unit:
        if next(seen) == failing:
            raise OSError(EMFILE, "too many open files")
        return read_unit(stream, position, size)

    monkeypatch.setattr(MessageQueue, name, {"_unit": unit, "entries": entries}[name])
    if failing:
        assert bench.bodies(message_filter=message_filter) == [b"0", b"1"]
    else:
        with pytest.raises(OSError, match="too many"):
            bench.bodies(message_filter=message_filter)
    monkeypatch.undo()
    assert bench.bodies(message_filter=message_filter) == [b"0", b"1", b"2", b"3"][failing:]


def test_the_byte_limit_of_a_pop_counts_over_all_queues() -> None:
    bench = PopBench(streams=2)
    for number in range(2):
        bench.send(*[b"x" * 1000] * 4, number=number)
    one = len(bench.bodies(max_count=32, max_bytes=3000))
    assert 1 <= one <= 3


def test_a_message_is_not_revived_before_its_lease_is_durable() -> None:
    """Otherwise a power cut could lose the lease and keep the revival, and the message would be delivered twice."""
    bench = PopBench()
    bench.send(b"0")
    pop_request = PopRequest([0], 32, 10 * SECOND)
    bench.pop_service.receive(SYSTEM, "g", bench.topic, pop_request)
    bench.bench.runner.end_pass()
    until_ms = bench.bench.time.now_ms() + 10 * SECOND
    while bench.bench.time.step(until_ms):  # no sync ends
        bench.bench.runner.end_pass()
    assert bench.pop_service.has_any(SYSTEM, "g", bench.topic, [0]) is False
    bench.bench.settle()
    assert bench.bodies() == []
    bench.bench.advance(SECOND)
    assert bench.bodies() == [b"0"]


def test_popping_finds_cold_data_before_it_reads() -> None:
    bench = PopBench(streams=2)
    bench.send(b"0")
    bench.send(b"1", number=1)
    bench.bench.restart()
    bench.begin()
    bench.bench.files.is_cold = True
    pop_request = PopRequest([0, 1], 32, 10 * SECOND)
    cold = bench.pop_service.find_cold("g", bench.topic, pop_request)
    assert cold is not None
    cold.warm()
    assert bench.pop_service.find_cold("g", bench.topic, pop_request) is None
    assert bench.bodies() == [b"0", b"1"]
    bench.bench.files.is_cold = True
    assert bench.pop_service.find_cold("g", bench.topic, pop_request) is None
