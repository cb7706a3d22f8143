"""E13, RocketMQ: a message that fails is tried 16 times more, then it is a dead letter, and sent again.

In order it is otherwise: the message that fails holds those behind it, and is tried where it lies until it has been
tried often enough. Written against the protocol, with the codes that clients send; the broker is in this process, so
that nearly five hours pass at once.
"""

from __future__ import annotations

import json

from tools.rocketmq_wire import Wire
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.testing import Broker

TOPIC, GROUP = "e13", "warehouse"
RETRIES, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
PAUSES = ("10s", "30s", *(f"{minutes}m" for minutes in (*range(1, 11), 20, 30, 60, 120)))
LOCK_QUEUES, SEND = 41, 310


def fail_until_dead(broker: Broker, wire: Wire) -> Unit:
    """The dead letter."""
    wire.send(TOPIC, b"order 1", KEYS="1")
    (unit,) = wire.pull(TOPIC, group=GROUP)
    waited = []
    for retry, pause in enumerate(PAUSES, 1):
        wire.send_back(GROUP, unit)
        before = broker.now()
        broker.advance(pause)
        waited.append(str(broker.now() - before))
        found = wire.pull(RETRIES, retry - 1, group=GROUP)
        assert [each.reconsume_times for each in found] == [retry], (retry, found)
        (unit,) = found
    print(
        f"tried {unit.reconsume_times + 1} times, the last after {waited[-1]}; between them: {', '.join(waited[:4])}, …"
    )
    wire.send_back(GROUP, unit)
    broker.advance("2h")
    assert wire.pull(RETRIES, len(PAUSES), group=GROUP) == []
    (dead,) = wire.pull(DEAD, group=GROUP)
    return dead


def send_again(wire: Wire, dead: Unit) -> None:
    """A dead letter knows where it came from; sent there again it begins from the start."""
    origin = read_properties(dead.properties)["RETRY_TOPIC"]
    wire.send(origin, bytes(dead.body))
    (again,) = wire.pull(origin, 1, group=GROUP)
    print(f"dead letter {bytes(dead.body)!r} of {origin} sent again: tried {again.reconsume_times} times so far")
    assert again.reconsume_times == 0


def fail_in_order(wire: Wire) -> None:
    """Messages of a queue that one member has for itself, up to three tries each."""
    for number in (1, 2, 3):
        wire.send("e13-orderly", b"step %d" % number)
    queue = {"topic": "e13-orderly", "brokerName": "broker-trimq", "queueId": 0}
    wire.done(LOCK_QUEUES, body=json.dumps({"consumerGroup": GROUP, "clientId": "wire", "mqSet": [queue]}).encode())
    tried = []
    for unit in wire.pull("e13-orderly", group=GROUP):
        for attempt in (1, 2, 3):
            tried.append(bytes(unit.body).decode())
            if unit.body != b"step 2":
                break
            if attempt == 3:  # a locked queue's message that is sent to the retries has no place in the order any more
                give_up(wire, unit, attempt)
    dead = [bytes(unit.body) for unit in wire.pull(DEAD, 1, group=GROUP)]
    print(f"in order: {', '.join(tried)}; given up: {dead}")
    assert tried == ["step 1", "step 2", "step 2", "step 2", "step 3"]
    assert dead == [b"step 2"]


def give_up(wire: Wire, unit: Unit, attempts: int) -> None:
    fields = {"a": GROUP, "b": RETRIES, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": unit.born_ms, "h": 0}
    text = f"RETRY_TOPIC\x01{unit.topic.decode()}\x02"
    wire.done(SEND, {**fields, "i": text, "j": attempts, "k": False, "l": attempts - 1}, bytes(unit.body))


def main() -> None:
    with (
        Broker() as broker,
        Wire(broker.addresses["rocketmq_broker"]) as wire,
    ):
        wire.create_topic(TOPIC, 1)
        wire.create_topic("e13-orderly", 1)
        wire.heartbeat(GROUP, TOPIC)
        send_again(wire, fail_until_dead(broker, wire))
        fail_in_order(wire)


if __name__ == "__main__":
    main()
