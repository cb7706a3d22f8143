"""A real broker process under RocketMQ load, killed with -9 at random moments: acknowledged messages are at their
offsets; and a transaction, a retry and a delayed message survive a kill in every phase."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from compat.rocketmq_wire import COMMIT, ROLLBACK, Wire
from crash.rocketmq_process import Broker, eventually

ROUNDS = 20
QUEUES = 2
CHECK = 39


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.mark.timeout(300)
def test_acknowledged_messages_survive_every_kill(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    acknowledged: dict[tuple[int, int], bytes] = {}
    sent = 0
    try:
        for _ in range(ROUNDS):
            broker.start()
            # The kill comes at a random moment: during a send, or after any number of sends.
            timer = threading.Timer(random.uniform(0, 0.01), broker.kill)
            last = sent + random.randrange(100)
            with suppress(OSError), Wire(broker.address) as wire:
                while True:
                    if sent == last:
                        timer.start()
                    body = b"%08d" % sent + random.randbytes(random.randrange(1, 500))
                    sent += 1
                    placed = wire.send("t", body, sent % QUEUES, KEYS=f"k{sent}")
                    place = int(placed["queueId"]), int(placed["queueOffset"])
                    assert acknowledged.setdefault(place, body) == body
            assert timer.ident is not None, "the broker ended by itself"
            timer.join()
            broker.wait()
        broker.start()
        with Wire(broker.address) as wire:
            for queue in range(QUEUES):
                units = wire.pull("t", queue=queue)
                assert [unit.queue_offset for unit in units] == list(range(len(units)))
                found = {(queue, unit.queue_offset): bytes(unit.body) for unit in units}
                assert [
                    place for place, body in acknowledged.items() if place[0] == queue and found.get(place) != body
                ] == []
        assert len(acknowledged) > ROUNDS
        broker.stop()
    finally:
        broker.end()


@pytest.mark.timeout(120)
def test_a_delayed_message_survives_a_kill_before_and_after_it_is_due(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.send("t", b"warm")
        wire.send("t", b"by level", DELAY=1)
        wire.send("t", b"at a time", TIMER_DELIVER_MS=int(time.time() * 1000) + 1500)
        assert wire.bodies("t") == [b"warm"]
    broker.restart()
    with Wire(broker.address) as wire:
        assert wire.bodies("t")[:1] == [b"warm"]
        eventually(lambda: len(wire.bodies("t")) == 3)
    broker.restart()
    with Wire(broker.address) as wire:
        assert sorted(wire.bodies("t")) == [b"at a time", b"by level", b"warm"]
        wire.send("t", b"last", DELAY=1)
        eventually(lambda: b"last" in wire.bodies("t"))
        assert len(wire.bodies("t")) == 4


@pytest.mark.timeout(120)
def test_a_retry_survives_a_kill_before_and_after_its_redelivery(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.send("t", b"hard")
        (unit,) = wire.pull("t")
        wire.send_back("g", unit, level=1)
    broker.restart()
    with Wire(broker.address) as wire:
        eventually(lambda: wire.bodies("%RETRY%g") == [b"hard"])
        (again,) = wire.pull("%RETRY%g")
        assert again.reconsume_times == 1
        wire.send_back("g", again, level=2)
    broker.restart()
    with Wire(broker.address) as wire:
        eventually(lambda: len(wire.bodies("%RETRY%g")) == 2)
        (_, again) = wire.pull("%RETRY%g")
        wire.send_back("g", again, level=-1)
    broker.restart()
    with Wire(broker.address) as wire:
        assert wire.bodies("%DLQ%g") == [b"hard"]
        assert wire.bodies("%RETRY%g") == [b"hard", b"hard"]


def await_check(wire: Wire) -> dict[str, str]:
    """Waits for a transaction check-back, and returns the fields of the newest one."""
    wire.heartbeat("g", "t")
    eventually(lambda: bool(wire.bodies("t")) and any(header["code"] == CHECK for header, _ in wire.asked))
    fields: dict[str, str] = [header["extFields"] for header, _ in wire.asked if header["code"] == CHECK][-1]
    return fields


@pytest.mark.timeout(120)
def test_a_transaction_survives_a_kill_in_every_phase(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.send("t", b"warm")
        halves = {body: wire.prepare("t", body) for body in (b"committed", b"taken back", b"asked for")}
        assert wire.bodies("t") == [b"warm"]
    broker.restart()
    with Wire(broker.address) as wire:
        assert wire.bodies("t") == [b"warm"]
        wire.decide(halves[b"committed"], COMMIT)
        wire.decide(halves[b"taken back"], ROLLBACK)
    broker.restart()
    with Wire(broker.address) as wire:
        assert wire.bodies("t") == [b"warm", b"committed"]
        await_check(wire)
    broker.restart()
    with Wire(broker.address) as wire:
        fields = await_check(wire)
        half = {"queueOffset": fields["tranStateTableOffset"], "transactionId": fields["transactionId"]}
        wire.decide({**half, "msgId": f"{int(fields['commitLogOffset']):032X}"}, COMMIT, asked=True)
    broker.restart()
    with Wire(broker.address) as wire:
        assert wire.bodies("t") == [b"warm", b"committed", b"asked for"]
