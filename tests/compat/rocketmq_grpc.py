"""Expectations of every RocketMQ client over gRPC, by the output of its program: one judge per scenario. Topics and
groups are created before: these clients cannot create any."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compat.programs import Conversation, Line, Program
from compat.rocketmq_wire import PATIENCE_S, Wire

from trimq.testing import Broker

KINDS = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION"}
GROUPS: dict[str, dict[str, object]] = {
    **{name: {} for name in ("g", "tags", "twin", "sql")},
    "orderly": {"consumeMessageOrderly": True},
    "few": {"retryMaxTimes": 2},
}


@contextmanager
def serving(folder: Path | None = None) -> Iterator[Broker]:
    """Broker with the topics and groups of the scenarios."""
    with Broker(folder=folder, rocketmq_grpc_listen="127.0.0.1:0") as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            for name, kind in KINDS.items():
                fields = {"topic": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
                wire.done(17, {**fields, "attributes": f"+message.type={kind}"})
            for name, settings in GROUPS.items():
                wire.done(200, body=json.dumps({"groupName": name, **settings}).encode())
        yield broker


def judge_sync(program: Program, broker: Broker) -> None:
    (line,) = program.run(broker.rocketmq_grpc, "sync")
    assert (line["ids"], line["same"]) == (20, True)
    assert line["read"] == {str(i): ["tag", f"key{i}", f"blue {i}", 1] for i in range(20)}


def judge_async(program: Program, broker: Broker) -> None:
    (line,) = program.run(broker.rocketmq_grpc, "asynchronous")
    assert line == {"ids": 20, "read": [str(i) for i in range(20)]}


def judge_filters(program: Program, broker: Broker) -> None:
    """Uses the tags `Aa` and `BB`, which have the same hash."""
    (line,) = program.run(broker.rocketmq_grpc, "filters")
    assert line == {"tags": ["Aa0", "Aa3", "C2"], "twin": ["BB1"], "sql": ["Aa3", "C2"]}


def judge_large(program: Program, broker: Broker) -> None:
    (line,) = program.run(broker.rocketmq_grpc, "large")
    assert line == {"intact": True, "refused": True}


def judge_push(program: Program, broker: Broker) -> None:
    (line,) = program.run(broker.rocketmq_grpc, "push_all")
    assert line["taken"] == list(range(100))


def judge_fifo(program: Program, broker: Broker) -> None:
    (line,) = program.run(broker.rocketmq_grpc, "fifo")
    assert line["steps"] == {str(order): list(range(6)) for order in range(5)}


# -- with the broker's clock


def judge_invisible(program: Program, broker: Broker) -> None:
    with program.talking(broker.rocketmq_grpc, "invisible") as talk:
        assert talk.heard() == {"done": "held"}
        broker.advance("21s")
        talk.go_on()
        assert talk.heard() == {"again": [["back", 2], ["forgotten", 2]]}


def judge_delays(program: Program, broker: Broker) -> None:
    with program.talking(broker.rocketmq_grpc, "delays") as talk:
        for taken in ("[]", "['half']"):
            assert talk.heard() == {"done": f"taken {taken}"}
            broker.advance("31m")
            talk.go_on()
        assert talk.heard() == {"done": "taken ['half', 'hour']"}


def judge_transactions(program: Program, broker: Broker) -> None:
    """Undecided half messages are checked back."""
    with program.talking(broker.rocketmq_grpc, "transactions") as talk:
        assert talk.heard() == {"done": "taken ['commit']"}
        broker.advance("40s")
        talk.go_on()
        assert talk.heard() == {"taken": ["commit", "asked-commit"], "asked": ["asked-commit", "asked-not"]}


def judge_dead_letter(program: Program, broker: Broker, step: str = "1s") -> None:
    """The group delivers each message three times at most. `step` is shorter than the delay between two deliveries."""
    with program.talking(broker.rocketmq_grpc, "dead_letter") as talk:
        for number in range(1, 4):
            line = talk.heard()
            assert line["done"] == f"tried {number}"
            assert line["attempt"] == number
            advance_to_redelivery(broker, talk, step)
        assert _dead(broker) == [b"bad"]
        assert talk.heard() == {"tries": 3}


def advance_to_redelivery(broker: Broker, talk: Conversation, step: str) -> None:
    """Advances just past the delay between two deliveries: the client reacts at once."""
    deadline = time.monotonic() + PATIENCE_S
    before = _returned(broker)
    while _returned(broker) == before:
        assert time.monotonic() < deadline, "the message is not redelivered"
        broker.advance(step)
    talk.go_on()


def _returned(broker: Broker) -> int:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        ends = [wire.ask(30, {"topic": topic, "queueId": 0})[0] for topic in ("%RETRY%few_normal", "%DLQ%few")]
    return sum(int(end["extFields"]["offset"]) for end in ends if end["code"] == 0)


def _dead(broker: Broker) -> list[bytes]:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        return wire.bodies("%DLQ%few")


def judge_restart(program: Program, broker: Broker) -> None:
    """The broker is stopped cleanly and restarted, and then crashes."""
    with program.talking(broker.rocketmq_grpc, "restart") as talk:
        for number, wreck in enumerate((broker.restart, lambda: (broker.crash(), broker.restart()), lambda: None), 1):
            line: Line = talk.heard()
            assert line == {"taken": list(range(10 * number))}
            wreck()
            talk.go_on()
