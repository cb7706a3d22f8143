"""kafka-python in groups, against a broker process: every assignor, static members, commits that survive a restart, and
the administrator's group calls."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import RebalanceInProgressError

from tools.broker import running

PATIENCE_S = 30
PARTITIONS = 4
NUDGE = b"nudge"
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), ["--kafka-num-partitions", str(PARTITIONS)]) as addresses:
        yield addresses["kafka"]


def send(broker: str, topic: str, bodies: range) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker, enable_idempotence=False, acks="all")) as producer:
        for number in bodies:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS).get(PATIENCE_S)


def nudge(broker: str, topic: str) -> None:
    """Sends a record to each partition, so that every poll returns."""
    with closing(KafkaProducer(bootstrap_servers=broker, enable_idempotence=False, acks="all")) as producer:
        for index in range(PARTITIONS):
            producer.send(topic, NUDGE, partition=index).get(PATIENCE_S)


class Member:
    """One consumer in a thread of its own, and the records that it has read.

    Its polls wait until a record arrives: version 3.0.12 forgets that it has joined if a poll ends just before the
    response."""

    def __init__(self, broker: str, group: str, topic: str, **settings: object) -> None:
        own = {"enable_auto_commit": False, "session_timeout_ms": 6000, "heartbeat_interval_ms": 300, **settings}
        self.consumer = KafkaConsumer(
            topic, bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest", **own
        )
        self.read: list[bytes] = []
        self._nudge = partial(nudge, broker, topic)
        self._must_commit = threading.Event()
        self._must_stop = threading.Event()
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._must_stop.is_set():
                for records in self.consumer.poll(timeout_ms=1000 * PATIENCE_S).values():
                    self.read += [record.value for record in records if record.value != NUDGE]
                if self._must_commit.is_set():
                    self._commit()
        except Exception as failure:
            self._failures.append(failure)
        finally:
            self.consumer.close(autocommit=False)

    def _commit(self) -> None:
        try:
            self.consumer.commit()
        except RebalanceInProgressError:
            self._nudge()
            return  # retried after the next poll
        self._must_commit.clear()

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self._must_commit.set()
        self._nudge()
        wait_until(lambda: not self._must_commit.is_set())

    def close(self) -> None:
        self._must_stop.set()
        self._nudge()
        self._thread.join(PATIENCE_S)
        assert self._failures == []


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_divided(members: list[Member], sizes: list[int]) -> bool:
    """Tells whether each partition has exactly one owner, with assignments of these sizes."""
    shares = [member.owned for member in members]
    return sorted(map(len, shares)) == sizes and set.union(*shares) == set(range(PARTITIONS))


def has_read(members: list[Member], bodies: range) -> bool:
    return {body for member in members for body in member.read} == {b"%d" % number for number in bodies}


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: str(each.name))
def test_two_groups_of_two_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    broker: str, assignor: type
) -> None:
    topic = f"shared-{assignor.name}"
    send(broker, topic, range(40))
    with ExitStack() as stack:
        groups = [
            [
                stack.enter_context(
                    closing(Member(broker, f"{topic}-{name}", topic, partition_assignment_strategy=[assignor]))
                )
                for _ in range(2)
            ]
            for name in ("one", "two")
        ]
        everybody = groups[0] + groups[1]
        wait_until(lambda: all(is_divided(group, [2, 2]) for group in groups))
        wait_until(lambda: all(has_read(group, range(40)) for group in groups))
        for member in everybody:
            member.commit()
        groups[0].pop().close()
        wait_until(lambda: is_divided(groups[0], [PARTITIONS]))
        assert is_divided(groups[1], [2, 2])
        survivor = groups[0][0]
        survivor.read.clear()
        send(broker, topic, range(40, 60))
        wait_until(lambda: has_read([survivor], range(40, 60)))


def test_reading_resumes_at_the_committed_offset_after_a_restart(tmp_path: Path) -> None:
    arguments = ["--kafka-num-partitions", str(PARTITIONS)]
    with running(tmp_path, arguments) as addresses:
        send(addresses["kafka"], "kept", range(20))
        with closing(Member(addresses["kafka"], "keepers", "kept")) as member:
            wait_until(lambda: has_read([member], range(20)))
            member.commit()
    (tmp_path / "ready.json").unlink()
    with running(tmp_path, arguments) as addresses:
        send(addresses["kafka"], "kept", range(20, 30))
        with closing(Member(addresses["kafka"], "keepers", "kept")) as member:
            wait_until(lambda: len(member.read) >= 10)
            assert has_read([member], range(20, 30))


def test_a_static_member_gets_its_partitions_back_without_a_rebalance(broker: str) -> None:
    send(broker, "static", range(4))
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(Member(broker, "static", "static", group_instance_id=name)))
            for name in ("first", "second")
        )
        wait_until(lambda: is_divided([first, second], [2, 2]))
        owned, generation = second.owned, first.consumer._coordinator._generation.generation_id
        second.close()  # a static member does not leave the group
        again = stack.enter_context(closing(Member(broker, "static", "static", group_instance_id="second")))
        wait_until(lambda: len(again.owned) == 2)
        assert again.owned == owned
        assert first.consumer._coordinator._generation.generation_id == generation


def test_the_administrator_sees_and_changes_groups(broker: str) -> None:
    send(broker, "administered", range(8))
    with ExitStack() as stack:
        admin = stack.enter_context(closing(KafkaAdminClient(bootstrap_servers=broker)))
        with closing(Member(broker, "administered", "administered")) as member:
            wait_until(lambda: has_read([member], range(8)))
            member.commit()
            listed = {each["group_id"]: each for each in admin.list_groups()}
            assert listed["administered"]["group_state"] == "Stable"
            described = admin.describe_groups(["administered"])["administered"]
            assert described["group_state"] == "Stable"
            assert len(described["members"]) == 1
        offsets = admin.list_group_offsets({"administered": None})["administered"]
        assert {at.partition for at in offsets} == set(range(PARTITIONS))
        assert all(found.offset >= 2 for found in offsets.values())
        moved = {TopicPartition("administered", 0): OffsetAndMetadata(1, "", -1)}
        admin.alter_group_offsets("administered", moved)
        offsets = admin.list_group_offsets({"administered": list(moved)})["administered"]
        assert [found.offset for found in offsets.values()] == [1]
        admin.delete_groups(["administered"])
        assert "administered" not in {each["group_id"] for each in admin.list_groups()}
