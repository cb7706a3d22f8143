"""E20, Kafka: C0, C1 and C2 share two topics of three partitions; C2 leaves, and only its two partitions move.

The sticky assignor keeps the partitions of each member, and the cooperative protocol lets it go on reading during a
rebalance: C0 and C1 give up nothing and get one partition more each. Needs TRIMQ_KAFKA, the broker's address."""

from __future__ import annotations

import os
import time
import uuid

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = os.environ["TRIMQ_KAFKA"]
RUN = uuid.uuid4().hex[:8]
TOPICS = (f"e20-{RUN}-t0", f"e20-{RUN}-t1")
PATIENCE_S = 20


class Member:
    """A consumer with the partitions that were assigned to it and revoked from it."""

    def __init__(self, name: str) -> None:
        settings = {
            "bootstrap.servers": BROKER,
            "group.id": f"e20-{RUN}",
            "client.id": name,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
        }
        self.name = name
        self.held: set[str] = set()
        self.given: set[str] = set()
        self.taken: set[str] = set()
        self.consumer = Consumer(settings)
        self.consumer.subscribe(list(TOPICS), on_assign=self._get, on_revoke=self._give_up, on_lost=self._give_up)

    def forget_moves(self) -> None:
        self.given, self.taken = set(), set()

    def _get(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.given |= names(partitions)
        self.held |= names(partitions)

    def _give_up(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.taken |= names(partitions)
        self.held -= names(partitions)


def names(partitions: list[TopicPartition]) -> set[str]:
    return {f"{partition.topic.rpartition('-')[2]}p{partition.partition}" for partition in partitions}


def create_topics() -> None:
    admin = AdminClient({"bootstrap.servers": BROKER})
    for made in admin.create_topics([NewTopic(topic, 3) for topic in TOPICS]).values():
        made.result(PATIENCE_S)


def settle(members: list[Member], share: int) -> None:
    """Polls all members until each has `share` partitions, and prints the assignment."""
    deadline = time.monotonic() + PATIENCE_S
    while any(len(member.held) != share for member in members):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not yet assigned: { {member.name: member.held for member in members} }")
        for member in members:
            message = member.consumer.poll(0.02)
            if message is not None and message.error() is not None:
                raise RuntimeError(message.error().str())
    print("; ".join(f"{member.name}: {' '.join(sorted(member.held))}" for member in members))


def main() -> None:
    create_topics()
    c0, c1, c2 = members = [Member(name) for name in ("C0", "C1", "C2")]
    left = False
    try:
        settle(members, share=2)
        assert len(c0.held | c1.held | c2.held) == 6, "a partition has two owners"
        freed = set(c2.held)
        for member in members:
            member.forget_moves()

        c2.consumer.close()
        left = True
        settle([c0, c1], share=3)
        moved, taken = c0.given | c1.given, c0.taken | c1.taken
        print(f"C2 left; moved: {sorted(moved)}; taken from C0 and C1: {sorted(taken)}")
        assert moved == freed, (moved, freed)
        assert not taken, taken
        assert not c0.held & c1.held, "a partition has two owners"
    finally:
        for member in (c0, c1) if left else members:
            member.consumer.close()


if __name__ == "__main__":
    main()
