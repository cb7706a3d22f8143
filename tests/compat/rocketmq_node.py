"""Expectations of both Node clients that use remoting. They cannot create topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compat.cables import Cable
from compat.node import node_client
from compat.programs import Program
from compat.rocketmq_judges import PAUSES, await_dead_letters, await_waiting
from compat.rocketmq_wire import Wire

from trimq.testing import Broker

TOPICS = ("push", "retry", "restart", "ordered", "level", "broadcast", "dead", "names", "names-later", "time")


def client() -> Program:
    return node_client("rocketmq-node")


@contextmanager
def broker_with_topics(**settings: int) -> Iterator[Broker]:
    with Broker(**settings) as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            for topic in TOPICS:
                wire.create_topic(topic, 4)
        yield broker


def judge_push(program: Program, broker: Broker, library: str, status: str) -> None:
    # The program is not run to its end: rocketmq-nodejs sometimes hangs in its C++ threads after everything was closed.
    with program.talking(broker.addresses["rocketmq"], "push", library=library) as talk:
        line = talk.heard()
    assert line["statuses"] == [status]
    assert line["all"] == list(range(50))
    assert line["even"] == [*range(0, 40, 2), *range(40, 50)]
    assert line["seventh"] == ["odd", "k7"]


def judge_retries(program: Program, broker: Broker, library: str) -> list[int | None]:
    """Returns the number of earlier deliveries that each delivery reported."""
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


def judge_restart(program: Program, broker: Broker, library: str) -> None:
    with program.talking(broker.addresses["rocketmq"], "restart", library=library) as talk:
        assert talk.heard() == {"done": "taken 0"}
        broker.restart()
        talk.go_on()
        assert talk.heard() == {"taken": list(range(11))}


def judge_dead_letter(program: Program, broker: Broker, library: str) -> list[int | None]:
    """Sixteen retries, then a dead letter. Returns the number of earlier deliveries that each delivery reported."""
    with program.talking(broker.addresses["rocketmq"], "dead", library=library) as talk:
        for number, pause in enumerate(PAUSES):
            assert talk.heard() == {"done": f"tried {number + 1}"}
            await_waiting(broker, 3 + number)
            broker.advance(pause)
            talk.go_on()
        line = talk.heard()
        assert await_dead_letters(broker, "dead") == [b"bad"]
        assert line["bodies"] == ["bad"] * 17
        times: list[int | None] = line["times"]
        return times


def judge_names(program: Program, broker: Broker, library: str) -> None:
    """The name server is unreachable for a while: known topics work without it, new ones are found afterwards."""
    names = broker.addresses["rocketmq"]
    cable = Cable(names)
    try:
        with program.talking(cable.address, "names", library=library) as talk:
            assert talk.heard() == {"done": "taken 0"}
            cable.close()
            talk.go_on()
            assert talk.heard() == {"done": f"taken {','.join(map(str, range(11)))}"}
            cable = Cable(names, cable.port)
            talk.go_on()
            assert talk.heard() == {"taken": [*range(11), 12]}
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            assert [body for queue in range(4) for body in wire.bodies("names-later", queue=queue)] == [b"11"]
    finally:
        cable.close()
