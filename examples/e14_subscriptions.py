"""E14, RocketMQ: all members of a group must have the same subscription, or the group misses messages.

The members of a group divide the queues, not the tags; the broker keeps one subscription per group and topic, the
latest. If member A subscribes to tag a and member B to tag b, A gets messages with tag b from its queue and drops them,
and no member gets those with tag a. Uses the protocol directly, with two members. Needs TRIMQ_ROCKETMQ_BROKER."""

from __future__ import annotations

import os
import uuid

from tools.rocketmq_wire import Wire
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import iterate_units

BROKER = os.environ["TRIMQ_ROCKETMQ_BROKER"]
RUN = uuid.uuid4().hex[:8]
TAGS = ("a", "b")


def pull(wire: Wire, topic: str, group: str, queue: int, version: int) -> list[tuple[str, str]]:
    """Returns tag and body of the messages that the broker delivers to the group by its current subscription."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 0,
    }
    header, body = wire.ask(11, {**fields, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": version})
    assert header["code"] in (0, 20), header  # found, or no match
    return [(read_properties(unit.properties)["TAGS"], bytes(unit.body).decode()) for unit in iterate_units(body)]


def consume(name: str, wanted: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Subscribes member 0, then member 1. Returns the messages that each takes from its own queue."""
    topic = group = f"e14-{name}-{RUN}"
    with Wire(BROKER) as one, Wire(BROKER) as other:
        members = (one, other)
        one.create_topic(topic, 2)
        for queue in (0, 1):
            for tag in TAGS:
                one.send(topic, f"{tag} in queue {queue}".encode(), queue, TAGS=tag)
        for version, (member, expression) in enumerate(zip(members, wanted, strict=True), 1):
            member.heartbeat(group, topic, expression, version, f"member {version}")
        taken = []
        for number, (member, expression) in enumerate(zip(members, wanted, strict=True)):
            given = pull(member, topic, group, number, number + 1)
            # A client checks the tag too: the broker compares only hashes.
            taken.append([body for tag, body in given if tag in expression.split(" || ")])
        return taken[0], taken[1]


def main() -> None:
    everything = {f"{tag} in queue {queue}" for tag in TAGS for queue in (0, 1)}
    right = consume("right", ("a || b", "a || b"))
    print(f"right, both want a || b:     {right}")
    assert {*right[0], *right[1]} == everything
    wrong = consume("wrong", ("a", "b"))
    lost = sorted(everything - {*wrong[0], *wrong[1]})
    print(f"wrong, one wants a, one b:   {wrong}; no member gets {lost}")
    assert wrong == ([], ["b in queue 1"])
    apart = [consume(f"apart-{tag}", (tag, tag)) for tag in TAGS]
    print(f"right, a group for each tag: {apart}")
    assert {body for of_group in apart for of_member in of_group for body in of_member} == everything


if __name__ == "__main__":
    main()
