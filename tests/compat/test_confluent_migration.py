"""confluent-kafka (librdkafka): a group changes between the classic protocol and KIP-848 while its members read on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker import running

PATIENCE_S = 40
PARTITIONS = 4

NEWER = {"group.protocol": "consumer"}
CLASSIC = [{"partition.assignment.strategy": name} for name in ("range", "cooperative-sticky")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["kafka"]


class Member:
    """A consumer that commits what it has read before it gives a partition up."""

    def __init__(self, broker: str, group: str, topic: str, **settings: object) -> None:
        fixed = {"bootstrap.servers": broker, "group.id": group, "auto.offset.reset": "earliest"}
        if "group.protocol" not in settings:
            fixed |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
        self.consumer = Consumer({**fixed, "enable.auto.commit": False, **settings})
        self.read: Counter[bytes] = Counter()
        self.is_open = True
        self.consumer.subscribe([topic], on_revoke=self._revoked)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        known = [each for each in consumer.position(partitions) if each.offset >= 0]
        if known:
            consumer.commit(offsets=known, asynchronous=False)

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            self.read[message.value()] += 1

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.consumer.close()


class Group:
    """Members, those that have left too, and what was sent to them."""

    def __init__(self, broker: str, name: str) -> None:
        self.broker, self.name = broker, name
        self.members: list[Member] = []
        self.sent: Counter[bytes] = Counter()
        self._producer = Producer({"bootstrap.servers": broker})
        admin = AdminClient({"bootstrap.servers": broker})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(PATIENCE_S)

    def join(self, **settings: object) -> Member:
        member = Member(self.broker, self.name, self.name, **settings)
        self.members.append(member)
        return member

    def share(self, *sizes: int) -> None:
        """Waits until the open members have shares of these sizes, then sends and reads messages."""
        self._poll_until(lambda: self._is_divided(sorted(sizes)))
        for number in range(len(self.sent), len(self.sent) + 40):
            body = b"%d" % number
            self._producer.produce(self.name, body, partition=number % PARTITIONS)
            self.sent[body] += 1
        assert self._producer.flush(PATIENCE_S) == 0
        self._poll_until(lambda: self.read.keys() == self.sent.keys())

    @property
    def read(self) -> Counter[bytes]:
        return sum((member.read for member in self.members), Counter())

    def _is_divided(self, sizes: list[int]) -> bool:
        shares = [member.owned for member in self.members if member.is_open]
        return sorted(map(len, shares)) == sizes and set().union(*shares) == set(range(PARTITIONS))

    def _poll_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, [(each.owned, each.is_open) for each in self.members]
            for member in self.members:
                if member.is_open:
                    member.poll()

    def close(self) -> None:
        for member in self.members:
            member.close()


@pytest.mark.parametrize("classic", CLASSIC, ids=["range", "cooperative-sticky"])
def test_a_group_changes_its_protocol_member_by_member_and_back(broker: str, classic: dict[str, str]) -> None:
    group = Group(broker, f"there-and-back-{next(iter(classic.values()))}")
    try:
        old = [group.join(**classic), group.join(**classic)]
        group.share(2, 2)
        new = [group.join(**NEWER)]
        group.share(1, 1, 2)
        old[0].close()
        group.share(2, 2)
        new.append(group.join(**NEWER))
        old[1].close()
        group.share(2, 2)
        back = [group.join(**classic)]
        new[0].close()
        group.share(2, 2)
        new[1].close()
        group.share(4)
        back.append(group.join(**classic))
        group.share(2, 2)
        assert group.read == group.sent  # nothing is lost, nothing is read twice
    finally:
        group.close()
