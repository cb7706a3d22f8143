"""What the two clients for Node that speak remoting must see, whichever it is. They cannot make topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from compat.node import node_client
from compat.programs import Program
from compat.rocketmq_wire import PATIENCE_S, Wire

from trimq.testing import Broker

TOPICS = ("push", "retry", "restart", "ordered", "level", "broadcast")


def client() -> Program:
    return node_client("rocketmq-node")


@contextmanager
def broker_with_topics() -> Iterator[Broker]:
    with Broker() as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            for topic in TOPICS:
                wire.create_topic(topic, 4)
        yield broker


def judge_push(program: Program, broker: Broker, library: str, status: str) -> None:
    # Not to its end: rocketmq-nodejs sometimes hangs in the threads of its own C++ after everything was closed.
    with program.talking(broker.addresses["rocketmq"], "push", library=library) as talk:
        line = talk.heard()
    assert line["statuses"] == [status]
    assert line["all"] == list(range(50))
    assert line["even"] == [*range(0, 40, 2), *range(40, 50)]
    assert line["seventh"] == ["odd", "k7"]


def judge_retries(program: Program, broker: Broker, library: str) -> list[int | None]:
    """What each try knew of those before it."""
    with program.talking(broker.addresses["rocketmq"], "retry", library=library) as talk:
        for number, (level, pause) in enumerate(((3, "10s"), (4, "30s"), (0, "0s")), 1):
            assert talk.heard() == {"done": f"tried {number}"}
            if level:
                await_waiting(broker, level)
                broker.advance(pause)
            talk.go_on()
        line = talk.heard()
        assert line["bodies"] == ["again"] * 3
        times: list[int | None] = line["times"]
        return times


def await_waiting(broker: Broker, level: int) -> None:
    """Until a message waits at this level."""
    deadline = time.monotonic() + PATIENCE_S
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        while wire.done(30, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": level - 1})["offset"] == "0":
            assert time.monotonic() < deadline, f"nothing came to wait at level {level}"
            time.sleep(0.02)


def judge_restart(program: Program, broker: Broker, library: str) -> None:
    with program.talking(broker.addresses["rocketmq"], "restart", library=library) as talk:
        assert talk.heard() == {"done": "taken 0"}
        broker.restart()
        talk.go_on()
        assert talk.heard() == {"taken": list(range(11))}
