"""confluent-kafka (librdkafka) in groups, against a broker process: both group protocols, every assignor, static
members, and the administrator's group calls."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, Producer, TopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions as GroupOffsets
from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker import running

PATIENCE_S = 30
PARTITIONS = 4

CLASSIC = [{"partition.assignment.strategy": name} for name in ("range", "roundrobin", "cooperative-sticky")]
NEWER = [{"group.protocol": "consumer", "group.remote.assignor": name} for name in ("uniform", "range")]
WAYS = [
    pytest.param(way, id=str(list(way.values())[-1]) + ("" if way in CLASSIC else "-848")) for way in CLASSIC + NEWER
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["kafka"]


def make_topic(broker: str, name: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)


def produce(broker: str, topic: str, bodies: range, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": broker})
    for number in bodies:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


class Member:
    """One consumer, its assignment and the records that it has read."""

    def __init__(self, broker: str, group: str, topics: list[str], **settings: object) -> None:
        fixed = {"bootstrap.servers": broker, "group.id": group, "auto.offset.reset": "earliest"}
        own = {"enable.auto.commit": False, **settings}
        if "group.protocol" not in settings:
            own = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300, **own}
        self.consumer = Consumer({**fixed, **own})
        self.read: Counter[bytes] = Counter()
        self.rebalances = 0
        self.consumer.subscribe(topics, on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None, message.error()
            self.read[message.value()] += 1

    @property
    def owned(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *error: object) -> None:
        self.consumer.close()


def poll_until(members: list[Member], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, [(each.owned, sum(each.read.values())) for each in members]
        for member in members:
            member.poll()


def is_divided(members: list[Member], topic: str, sizes: list[int]) -> bool:
    """Tells whether each partition has exactly one owner, with assignments of these sizes."""
    shares = [member.owned for member in members]
    everything = {(topic, index) for index in range(PARTITIONS)}
    return sorted(map(len, shares)) == sizes and set.union(*shares) == everything


def has_read(members: list[Member], bodies: range) -> bool:
    """Tells whether the members together have read these; some possibly twice, since a rebalance resumes at the
    committed offsets."""
    return set().union(*(member.read for member in members)) == {b"%d" % number for number in bodies}


def is_at(member: Member, end: int) -> bool:
    """Tells whether a member has reached the end of each partition that it owns now. A member that read everything
    alone says nothing about another one, which resumes at the committed offsets."""
    return {each.offset for each in member.consumer.position(member.consumer.assignment())} == {end}


@pytest.mark.parametrize("way", WAYS)
def test_two_groups_of_two_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    broker: str, way: dict[str, str], request: pytest.FixtureRequest
) -> None:
    topic = f"shared-{request.node.callspec.id}"
    make_topic(broker, topic)
    produce(broker, topic, range(100))
    with ExitStack() as stack:
        groups = [
            [stack.enter_context(Member(broker, f"{topic}-{group}", [topic], **way)) for _ in range(2)]
            for group in ("one", "two")
        ]
        everybody = groups[0] + groups[1]
        poll_until(everybody, lambda: all(is_divided(group, topic, [2, 2]) for group in groups))
        poll_until(everybody, lambda: all(has_read(group, range(100)) for group in groups))
        poll_until(everybody, lambda: all(is_at(member, 100 // PARTITIONS) for member in everybody))
        for group in groups:
            for member in group:
                member.consumer.commit(asynchronous=False)
        groups[0].pop().consumer.close()
        poll_until(everybody[:1] + everybody[2:], lambda: is_divided(groups[0], topic, [PARTITIONS]))
        assert is_divided(groups[1], topic, [2, 2])
        # Committed records are not read again by the new owner of the partition.
        before = groups[0][0].read.copy()
        produce(broker, topic, range(100, 120))
        new = {b"%d" % number for number in range(100, 120)}
        poll_until(groups[0] + groups[1], lambda: set(groups[0][0].read - before) == new)


def test_reading_resumes_at_the_committed_offset_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as addresses:
        make_topic(addresses["kafka"], "kept")
        produce(addresses["kafka"], "kept", range(40))
        with Member(addresses["kafka"], "keepers", ["kept"]) as member:
            poll_until([member], lambda: member.read.total() == 40)
            member.consumer.commit(asynchronous=False)
    (tmp_path / "ready.json").unlink()
    with running(tmp_path) as addresses:
        produce(addresses["kafka"], "kept", range(40, 60))
        with Member(addresses["kafka"], "keepers", ["kept"]) as member:
            poll_until([member], lambda: member.read.total() >= 20)
            assert set(member.read) == {b"%d" % number for number in range(40, 60)}


# A restart on a busy machine takes seconds, and librdkafka increases its reconnect delay: the session must not expire
# meanwhile.
PATIENT = {**CLASSIC[0], "session.timeout.ms": 45_000}


@pytest.mark.parametrize("way", [PATIENT, NEWER[0]], ids=["classic", "848"])
def test_a_member_survives_a_restart_of_the_broker(tmp_path: Path, way: dict[str, object]) -> None:
    with running(tmp_path) as addresses:
        kafka = addresses["kafka"]
        make_topic(kafka, "lasting")
        produce(kafka, "lasting", range(20))
        member = Member(kafka, "lasting", ["lasting"], **way, **{"reconnect.backoff.max.ms": 200})
        poll_until([member], lambda: member.read.total() == 20)
        member.consumer.commit(asynchronous=False)
    (tmp_path / "ready.json").unlink()
    with running(tmp_path, ["--kafka-listen", kafka]), member:
        produce(kafka, "lasting", range(20, 40))
        poll_until([member], lambda: member.read.total() >= 40)
        assert set(member.read) == {b"%d" % number for number in range(40)}
        member.consumer.commit(asynchronous=False)
        assert member.rebalances == 1, "the broker did not recognise its members"


@pytest.mark.parametrize("way", [CLASSIC[0], NEWER[0]], ids=["classic", "848"])
def test_a_static_member_gets_its_partitions_back_without_a_rebalance(
    broker: str, way: dict[str, str], request: pytest.FixtureRequest
) -> None:
    topic = f"static-{request.node.callspec.id}"
    make_topic(broker, topic)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(Member(broker, topic, [topic], **way, **{"group.instance.id": name}))
            for name in ("first", "second")
        )
        poll_until([first, second], lambda: is_divided([first, second], topic, [2, 2]))
        owned, before = second.owned, first.rebalances
        second.consumer.close()  # a static member does not leave the group
        again = stack.enter_context(Member(broker, topic, [topic], **way, **{"group.instance.id": "second"}))
        poll_until([first, again], lambda: len(again.owned) == 2)
        assert again.owned == owned
        assert first.rebalances == before


def test_a_second_static_member_of_the_same_name_fences_the_first(broker: str) -> None:
    make_topic(broker, "fenced")
    with ExitStack() as stack:
        first = stack.enter_context(Member(broker, "fenced", ["fenced"], **{"group.instance.id": "one"}))
        poll_until([first], lambda: len(first.owned) == PARTITIONS)
        second = stack.enter_context(Member(broker, "fenced", ["fenced"], **{"group.instance.id": "one"}))
        poll_until([second], lambda: len(second.owned) == PARTITIONS)
        with pytest.raises((KafkaException, AssertionError), match=r"FENCED_INSTANCE_ID|fenced"):
            poll_until([first], lambda: False)


def test_a_pattern_matches_topics_created_later(broker: str) -> None:
    make_topic(broker, "found-a", 1)
    with Member(broker, "finders", ["^found-.*"], **NEWER[0]) as member:
        poll_until([member], lambda: member.owned == {("found-a", 0)})
        make_topic(broker, "found-b", 1)
        make_topic(broker, "other", 1)
        poll_until([member], lambda: member.owned == {("found-a", 0), ("found-b", 0)})


def test_the_administrator_sees_and_changes_groups(broker: str) -> None:
    make_topic(broker, "administered")
    produce(broker, "administered", range(8))
    admin = AdminClient({"bootstrap.servers": broker})
    with Member(broker, "administered", ["administered"]) as member:
        poll_until([member], lambda: member.read.total() == 8)
        member.consumer.commit(asynchronous=False)
        listed = {each.group_id: each for each in admin.list_consumer_groups().result(PATIENCE_S).valid}
        assert listed["administered"].state == ConsumerGroupState.STABLE
        assert listed["administered"].type == ConsumerGroupType.CLASSIC
        described = admin.describe_consumer_groups(["administered"])["administered"].result(PATIENCE_S)
        assert [len(each.assignment.topic_partitions) for each in described.members] == [PARTITIONS]
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["administered"])["administered"].result(PATIENCE_S)
    moved = GroupOffsets("administered", [TopicPartition("administered", 0, 1)])
    admin.alter_consumer_group_offsets([moved])["administered"].result(PATIENCE_S)
    offsets = admin.list_consumer_group_offsets([GroupOffsets("administered")])["administered"].result(PATIENCE_S)
    assert {each.partition: each.offset for each in offsets.topic_partitions} == {0: 1, 1: 2, 2: 2, 3: 2}
    admin.delete_consumer_groups(["administered"])["administered"].result(PATIENCE_S)
    assert "administered" not in {each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid}


def test_the_administrator_sees_groups_of_the_newer_protocol(broker: str) -> None:
    make_topic(broker, "newer")
    admin = AdminClient({"bootstrap.servers": broker})
    with Member(broker, "newer", ["newer"], **NEWER[1]) as member:
        poll_until([member], lambda: len(member.owned) == PARTITIONS)
        described = admin.describe_consumer_groups(["newer"])["newer"].result(PATIENCE_S)
        assert described.state == ConsumerGroupState.STABLE
        assert described.type == ConsumerGroupType.CONSUMER
        assert described.partition_assignor == "range"
        assert [len(each.assignment.topic_partitions) for each in described.members] == [PARTITIONS]
