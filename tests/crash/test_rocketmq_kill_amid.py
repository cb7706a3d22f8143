"""A real broker process, killed with -9 during its own work: transaction check-back, discarding of transactions,
dead-lettering, revival of popped messages, delivery of delayed messages. No message is lost, and none is delivered
twice that must not be."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from compat.rocketmq_wire import COMMIT, Wire, position_of
from crash.rocketmq_process import Broker, eventually

from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import Unit, iterate_units

CHECK, END, RESUME = 39, 37, 323
POP, ACK = 200050, 200051
LETTERS = "TRANS_CHECK_MAX_TIME_TOPIC"

Start = Callable[..., Broker]

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a broker that checks for undecided transactions often."""
    made: list[Broker] = []

    def start(*flags: str) -> Broker:
        often = ("--rocketmq-transaction-timeout-ms", "50", "--rocketmq-transaction-check-interval-ms", "200")
        made.append(Broker(tmp_path, *often, *flags))
        made[-1].start()
        return made[-1]

    try:
        yield start
    finally:
        for broker in made:
            broker.end()


def checks_received(wire: Wire) -> list[dict[str, Any]]:
    """Returns the check-backs received so far, oldest first: the fields, and the number of the check."""
    wire.heartbeat("g", "t")
    found = [(header["extFields"], body) for header, body in wire.asked if header["code"] == CHECK]
    return [{**fields, "times": int(properties_of(body)["TRANSACTION_CHECK_TIMES"])} for fields, body in found]


def properties_of(body: bytes) -> dict[str, str]:
    (unit,) = iterate_units(body)
    return read_properties(unit.properties)


def commit(wire: Wire, check: dict[str, Any]) -> int:
    """Commits a half message; returns the code of the response."""
    place = {name: check[name] for name in ("tranStateTableOffset", "commitLogOffset", "transactionId")}
    fields = {"producerGroup": "pg", **place, "commitOrRollback": COMMIT, "fromTransactionCheck": True}
    code: int = wire.ask(END, fields)[0]["code"]
    return code


def test_a_half_message_with_several_check_backs_survives_each_kill_and_is_committed_once(start: Start) -> None:
    broker = start()
    with Wire(broker.address) as wire:
        wire.send("t", b"warm")
        wire.prepare("t", b"half", UNIQ_KEY="U")
    times = 0
    for _ in range(3):
        with Wire(broker.address) as wire:
            eventually(lambda wire=wire: len(checks_received(wire)) >= 2)  # type: ignore[misc]
            counted = [check["times"] for check in checks_received(wire)]
            assert counted == list(range(counted[0], counted[0] + len(counted)))
            assert counted[0] > times
            times = counted[-1]
        broker.restart()
    with Wire(broker.address) as wire:
        eventually(lambda: any(commit(wire, check) == 0 for check in checks_received(wire)[-1:]))
    broker.restart()
    with Wire(broker.address) as wire:
        wire.prepare("t", b"another", UNIQ_KEY="V")
        eventually(lambda: len(checks_received(wire)) >= 2)
        assert {check["transactionId"] for check in checks_received(wire)} == {"V"}
        assert wire.bodies("t") == [b"warm", b"half"]


def test_a_discarded_half_message_survives_a_kill_and_is_restored_once(start: Start) -> None:
    broker = start("--rocketmq-transaction-check-max", "1")
    with Wire(broker.address) as wire:
        wire.send("t", b"warm")
        wire.prepare("t", b"first", UNIQ_KEY="U")
        eventually(lambda: bool(checks_received(wire)) and wire.bodies(LETTERS) == [b"first"])
    broker.restart()
    with Wire(broker.address) as wire:
        wire.prepare("t", b"second", UNIQ_KEY="V")
        eventually(lambda: bool(checks_received(wire)) and wire.bodies(LETTERS) == [b"first", b"second"])
        letter = wire.pull(LETTERS)[0]
        id = (letter.store_host + letter.position.to_bytes(8, "big")).hex().upper()
    broker.restart()
    with Wire(broker.address) as wire:
        wire.done(RESUME, {"topic": "t", "msgId": id})
    broker.restart()
    with Wire(broker.address) as wire:
        assert wire.ask(RESUME, {"topic": "t", "msgId": id})[0]["code"] == 1
        eventually(lambda: any(commit(wire, check) == 0 for check in checks_received(wire)[-1:]))
    broker.restart()
    with Wire(broker.address) as wire:
        assert wire.bodies("t") == [b"warm", b"first"]
        assert wire.bodies(LETTERS) == [b"first", b"second"]


def test_a_dead_letter_beyond_the_retry_limit_survives_a_kill(start: Start) -> None:
    broker = start()

    def send_back(wire: Wire, unit: Unit) -> None:
        fields = {"offset": unit.position, "group": "g", "delayLevel": 1, "originTopic": unit.topic.decode()}
        wire.done(36, {**fields, "maxReconsumeTimes": 1})

    with Wire(broker.address) as wire:
        wire.send("t", b"hard")
        send_back(wire, *wire.pull("t"))
    broker.restart()
    with Wire(broker.address) as wire:
        eventually(lambda: wire.bodies("%RETRY%g") == [b"hard"])
        send_back(wire, *wire.pull("%RETRY%g"))
    for _ in range(2):
        broker.restart()
        with Wire(broker.address) as wire:
            assert (wire.bodies("%DLQ%g"), wire.bodies("%RETRY%g")) == ([b"hard"], [b"hard"])


def pop(wire: Wire) -> tuple[dict[str, Any], list[Unit]]:
    """Pops for the group `g`; returns the header of the response and the messages."""
    fields = {"consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 1000}
    header, body = wire.ask(POP, {**fields, "pollTime": 0, "bornTime": int(time.time() * 1000), "initMode": 0})
    return header.get("extFields") or {}, list(iterate_units(body)) if header["code"] == 0 else []


def test_popped_messages_are_revived_after_a_kill_until_they_are_acknowledged(start: Start) -> None:
    broker = start()
    with Wire(broker.address) as wire:
        wire.create_topic("t", 1)
        for body in (b"kept", b"settled"):
            wire.send("t", body)
        _, units = pop(wire)
        assert [bytes(unit.body) for unit in units] == [b"kept", b"settled"]
        assert pop(wire)[1] == []
    broker.restart()
    back: dict[bytes, tuple[Unit, dict[str, Any]]] = {}

    def pop_all(wire: Wire) -> bool:
        header, units = pop(wire)
        back.update({bytes(unit.body): (unit, header) for unit in units})
        return len(back) == 2

    with Wire(broker.address) as wire:
        eventually(lambda: pop_all(wire))
        unit, _ = back[b"settled"]
        assert unit.reconsume_times == 1
        receipt = read_properties(unit.properties)["POP_CK"]
        place = {"queueId": unit.queue_id, "offset": unit.queue_offset, "extraInfo": receipt}
        wire.done(ACK, {"consumerGroup": "g", "topic": "%RETRY%g_t", **place})
    broker.restart()
    again: list[bytes] = []
    with Wire(broker.address) as wire:
        eventually(lambda: bool(again.extend(bytes(unit.body) for unit in pop(wire)[1])) or len(again) >= 2)
    assert again == [b"kept", b"kept"]


def test_a_recalled_message_stays_recalled_after_a_kill(start: Start) -> None:
    broker = start()
    with Wire(broker.address) as wire:
        wire.send("t", b"warm")
        due_ms = int(time.time() * 1000) + 3000
        handle = wire.send("t", b"recalled", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="R")["recallHandle"]
        wire.send("t", b"kept", TIMER_DELIVER_MS=due_ms + 1, UNIQ_KEY="K")
        wire.done(370, {"producerGroup": "pg", "topic": "t", "recallHandle": handle})
    for _ in range(2):
        broker.restart()
        with Wire(broker.address) as wire:
            eventually(lambda wire=wire: b"kept" in wire.bodies("t"))  # type: ignore[misc]
            assert wire.bodies("t") == [b"warm", b"kept"]


def begin_all(wire: Wire, count: int, properties: Callable[[int], str], sys_flag: int = 0) -> list[dict[str, Any]]:
    """Sends `count` messages without waiting for the responses in between; returns the fields of the responses."""
    given = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": sys_flag, "h": 0, "j": 0, "k": False}
    for number in range(count):
        wire.begin(310, {**given, "g": int(time.time() * 1000), "i": properties(number)}, b"%d" % number)
    answers = [wire.read()[0] for _ in range(count)]
    assert {answer["code"] for answer in answers} == {0}
    return [answer["extFields"] for answer in answers]


def test_each_delayed_message_is_delivered_once_although_kills_interrupt_deliveries(start: Start) -> None:
    count, broker = 1500, start()
    with Wire(broker.address) as wire:
        wire.send("t", b"warm")
        due_ms = int(time.time() * 1000) + 2000
        begin_all(wire, count, lambda number: f"UNIQ_KEY\x01U{number}\x02TIMER_DELIVER_MS\x01{due_ms}\x02")
    for _ in range(3):
        # A moment after they are due, or after the start if they were due before: some hundred are delivered in each.
        wait_s = max(due_ms / 1000 - time.time(), 0) + random.uniform(0, 0.06)
        timer = threading.Timer(wait_s, broker.kill)
        timer.start()
        timer.join()
        broker.wait()
        broker.start()
    with Wire(broker.address) as wire:
        eventually(lambda: len(wire.pull("t")) > count)
        found = Counter(wire.bodies("t"))
    assert found == Counter([b"warm", *(b"%d" % number for number in range(count))])


def test_each_transaction_is_committed_once_although_kills_interrupt_decisions(start: Start) -> None:
    count, broker = 600, start()
    with Wire(broker.address) as wire:
        wire.send("t", b"warm")
        text = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01U{}\x02"
        halves = begin_all(wire, count, text.format, sys_flag=4)
    acknowledged = 0
    for killed_after in (1, 100, 250):
        with Wire(broker.address) as wire, suppress(OSError):
            for half in halves[acknowledged:]:
                place = {"tranStateTableOffset": half["queueOffset"], "commitLogOffset": position_of(half["msgId"])}
                wire.begin(END, {"producerGroup": "pg", **place, "commitOrRollback": COMMIT})
            while acknowledged < killed_after:
                acknowledged += wire.read()[0]["flag"] & 1
            broker.kill()
        broker.wait()
        broker.start()
        with Wire(broker.address) as wire:
            assert len(wire.pull("t")) > acknowledged
    with Wire(broker.address) as wire:
        eventually(lambda: commit_all(wire) and len(wire.pull("t")) > count)
        found = Counter(wire.bodies("t"))
    assert found == Counter([b"warm", *(b"%d" % number for number in range(count))])


def commit_all(wire: Wire) -> bool:
    """Commits all half messages that were checked so far."""
    for check in checks_received(wire):
        commit(wire, check)
    wire.asked.clear()
    return True
