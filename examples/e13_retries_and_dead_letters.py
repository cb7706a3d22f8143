"""E13, RocketMQ: a message that fails is retried 16 times, becomes a dead letter and is sent again.

An orderly consumer is blocked instead: the failed message holds back those behind it, and is retried in place up to a
limit. Uses the request codes of the protocol directly; the broker runs in this process, so that its clock can be
advanced by nearly five hours."""

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
    """Fails the message until it is a dead letter, which is returned."""
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
    """Sends a dead letter to its origin, where its count of retries starts again."""
    origin = read_properties(dead.properties)["RETRY_TOPIC"]
    wire.send(origin, bytes(dead.body))
    (again,) = wire.pull(origin, 1, group=GROUP)
    print(f"dead letter {bytes(dead.body)!r} of {origin} sent again: {again.reconsume_times} retries so far")
    assert again.reconsume_times == 0


def fail_in_order(wire: Wire) -> None:
    """Consumes a queue that is locked by one member, with up to three attempts per message."""
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
            if attempt == 3:  # a message of a locked queue that goes to the retry topic loses its place in the order
                give_up(wire, unit, attempt)
    dead = [bytes(unit.body) for unit in wire.pull(DEAD, 1, group=GROUP)]
    print(f"in order: {', '.join(tried)}; dead-lettered: {dead}")
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
