"""Attack t30: thousands of messages whose invisible time ends at once must not flood the log."""

from __future__ import annotations

from pathlib import Path

from security.attacked import others_are_served

from tools.broker import running
from tools.rocketmq_wire import Wire

MESSAGES = 1_000
ROUNDS = 5
MOST_LINES = 10


def test_messages_with_a_tiny_invisible_time_do_not_flood_the_log(tmp_path: Path) -> None:
    with running(tmp_path) as addresses, Wire(addresses["rocketmq_broker"]) as wire:
        wire.create_topic("t", 1)
        for number in range(MESSAGES):
            wire.send("t", b"%d" % number)
        log = tmp_path / "broker.log"
        before = len(log.read_text().splitlines())
        popped = 0

        def attack() -> None:
            nonlocal popped
            for _ in range(ROUNDS * MESSAGES // 32):
                header, _ = wire.ask(
                    200050,
                    {
                        "consumerGroup": "g",
                        "topic": "t",
                        "queueId": 0,
                        "maxMsgNums": 32,
                        "invisibleTime": 20,
                        "pollTime": 0,
                        "bornTime": 0,
                        "initMode": 0,
                        "exp": "*",
                        "expType": "TAG",
                        "order": False,
                    },
                )
                popped += header["code"] == 0

        others_are_served(addresses["http"], attack)
        assert popped >= MESSAGES // 32
    lines = log.read_text().splitlines()[before:]
    assert len(lines) - 10 <= MOST_LINES, "\n".join(lines[:40])  # ten lines of the stop
