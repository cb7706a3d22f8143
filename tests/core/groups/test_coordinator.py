from __future__ import annotations

import errno
import random

import pytest
from doubles import FaultyFiles, PassRunner
from no_rocketmq import NO_ROCKETMQ

from trimq.clock import Clock, ManualTime
from trimq.config import Kafka, Settings
from trimq.core.assembly.core import open_core
from trimq.core.groups.assigned_group import MemberHeartbeat
from trimq.core.groups.coordinator import SESSION_MS, GroupCallback, GroupCoordinator
from trimq.core.groups.group import (
    Claim,
    CursorChange,
    GroupKind,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    OfferedProtocol,
    SyncRequest,
    SyncResult,
)
from trimq.core.groups.store import GroupSettings
from trimq.errors import GroupNotEmpty, Refusal, UnknownGroup, WriteFailed
from trimq.errors.groups import NothingInCommon, Rebalancing, StaleGeneration, UnknownAssignor, UnknownMember
from trimq.metrics import Metrics
from trimq.model import SYSTEM, Layout, StreamId
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.memory_files import MemoryFiles

DAY_MS = 86_400_000
SWEEP_MS = 600_000


class Groups:
    """The groups of a core; the test controls its clock, passes and crashes."""

    def __init__(self, initial_delay_ms: int = 0) -> None:
        self.memory = MemoryFiles()
        self.files = FaultyFiles(self.memory)
        self.message, self.liveness = ManualTime(1_700_000_000_000), ManualTime(5_000)
        self.settings = Settings(kafka=Kafka(group_initial_rebalance_delay_ms=initial_delay_ms), rocketmq=NO_ROCKETMQ)
        self.open()
        topic, _ = self.core.broker.topics.create(SYSTEM, "orders", Layout.PARTITION_LOG, 3, {})
        self.stream = StreamId(topic.id, 0)
        self.settle()

    def open(self) -> None:
        self.runner = PassRunner(self.files)
        clock = Clock(self.message, self.liveness)
        rng = random.Random(3)
        self.core = open_core(self.settings, self.files, self.runner.passes, clock, self.runner.offload, rng, Metrics())
        self.runner.settle()
        self.core.start()

    @property
    def registry(self) -> GroupCoordinator:
        return self.core.groups

    def settle(self) -> None:
        self.runner.settle()

    def crash(self) -> None:
        self.core.stop_writes()
        self.memory.crash()
        self.open()

    def pass_liveness(self, passed_ms: int) -> None:
        until_ms = self.liveness.now_ms() + passed_ms
        while self.liveness.step(until_ms):
            self.settle()

    def pass_messages(self, passed_ms: int) -> None:
        until_ms = self.message.now_ms() + passed_ms
        while self.message.step(until_ms):
            self.settle()

    def fail_writes(self, is_failing: bool) -> None:
        def refuse(operation: str, name: str) -> None:
            if is_failing and operation == "write":
                raise OSError(errno.ENOSPC, "full", name)

        self.files.before = refuse

    # -- members

    def join(self, member: str = "", name: str = "c", metadata: bytes = b"") -> RecordingWaiter:
        asked = JoinRequest(
            member=member,
            instance=None,
            protocol_type="consumer",
            offers=(OfferedProtocol("range", metadata),),
            session_ms=10_000,
            rebalance_ms=30_000,
            client_id=name,
            host="here",
            requires_member_id=False,
        )
        waiter = RecordingWaiter()
        self.registry.join("g", asked, waiter)
        return waiter

    def sync(self, member: str, generation: int, shares: dict[str, bytes] | None = None) -> RecordingWaiter:
        waiter = RecordingWaiter()
        asked = SyncRequest(member, None, generation, "consumer", "range", shares or {})
        self.registry.sync("g", asked, waiter)
        return waiter

    def stable_member(self) -> str:
        joined = self.join().outcome
        assert isinstance(joined, JoinResult)
        self.sync(joined.member, joined.generation, {joined.member: b"share"})
        self.settle()
        return joined.member

    def heartbeat(self, member: str, epoch: int = 0, **changes: object) -> tuple[object, Ticket | None]:
        fields = {"rebalance_ms": 30_000, "topics": ("orders",), "owned": frozenset()} if epoch == 0 else {}
        quiet = {"instance": None, "rack": None, "rebalance_ms": None, "topics": None, "pattern": None}
        quiet |= {"assignor": None, "owned": None, "protocol_type": "consumer", "client_id": "c", "host": "here"}
        return self.registry.heartbeat_assigned(
            "g", MemberHeartbeat(member=member, epoch=epoch, **{**quiet, **fields, **changes})
        )

    def commit(self, claim: Claim, offset: int = 7) -> Ticket | Refusal:
        (outcome,) = self.registry.commit("g", claim, [CursorChange(self.stream, offset)])
        self.settle()
        return outcome


class RecordingWaiter:
    """A waiter that records its result."""

    def __init__(self) -> None:
        self.outcome: JoinResult | SyncResult | Refusal | None = None
        self.ticket: Ticket | None = None

    def __call__(self, outcome: JoinResult | SyncResult | Refusal, ticket: Ticket | None) -> None:
        assert self.outcome is None, "the waiter was called twice"
        self.outcome, self.ticket = outcome, ticket


_: GroupCallback = RecordingWaiter()


def test_a_group_is_created_by_its_first_member_and_is_described() -> None:
    groups = Groups()
    with pytest.raises(UnknownGroup):
        groups.registry.describe("g")
    member = groups.stable_member()
    assert member.startswith("c-")
    description = groups.registry.describe("g")
    assert (description.state, description.kind) == (GroupState.STABLE, GroupKind.MEMBER_ASSIGNED)
    assert [(each.id, each.assignment) for each in description.members] == [(member, b"share")]
    assert list(groups.registry.names()) == ["g"]


def test_an_assignment_is_sent_once_durable_and_survives_a_crash() -> None:
    groups = Groups()
    joined = groups.join().outcome
    waiter = groups.sync(joined.member, 1, {joined.member: b"share"})
    assert isinstance(waiter.outcome, SyncResult)
    assert waiter.ticket is not None
    assert groups.runner.passes.durable < waiter.ticket.number, "the response must wait for this ticket"
    groups.settle()
    groups.crash()
    description = groups.registry.describe("g")
    assert (description.generation, description.state) == (1, GroupState.STABLE)
    groups.registry.heartbeat("g", joined.member, None, 1)
    groups.pass_liveness(10_000)
    assert groups.registry.describe("g").state is GroupState.EMPTY


def test_an_assignment_that_was_not_durable_is_lost_after_a_crash() -> None:
    groups = Groups()
    joined = groups.join().outcome
    groups.sync(joined.member, 1, {joined.member: b"share"})
    groups.runner.end_pass()
    groups.crash()
    with pytest.raises(UnknownMember):
        groups.registry.heartbeat("g", joined.member, None, 1)


def test_an_assignment_whose_write_failed_is_refused_and_made_again() -> None:
    groups = Groups()
    joined = groups.join().outcome
    waiter = groups.sync(joined.member, 1, {joined.member: b"share"})
    groups.fail_writes(True)
    groups.settle()
    assert isinstance(waiter.ticket.refusal, WriteFailed)
    with pytest.raises(Rebalancing):
        groups.registry.heartbeat("g", joined.member, None, 1)
    groups.fail_writes(False)
    joined = groups.join(joined.member).outcome
    waiter = groups.sync(joined.member, joined.generation, {joined.member: b"share"})
    groups.settle()
    assert waiter.ticket.refusal is None
    groups.crash()
    assert groups.registry.describe("g").generation == joined.generation


def test_members_expire_by_liveness_time() -> None:
    groups = Groups()
    member = groups.stable_member()
    groups.pass_liveness(9_999)
    groups.registry.heartbeat("g", member, None, 1)
    groups.pass_liveness(9_999)
    assert groups.registry.describe("g").state is GroupState.STABLE
    groups.pass_liveness(1)
    assert groups.registry.describe("g").state is GroupState.EMPTY
    with pytest.raises(UnknownMember):
        groups.registry.heartbeat("g", member, None, 1)


def test_members_do_not_expire_by_message_time() -> None:
    groups = Groups()
    groups.stable_member()
    groups.pass_messages(30 * DAY_MS)
    assert groups.registry.describe("g").state is GroupState.STABLE


def test_generations_continue_after_a_restart_of_an_empty_group() -> None:
    groups = Groups()
    member = groups.stable_member()
    groups.commit(Claim(member, 1))
    groups.registry.leave("g", [LeaveRequest(member, None)])
    groups.settle()
    groups.crash()
    assert groups.join().outcome.generation == 3


def refuse_join(groups: Groups, name: str) -> None:
    with pytest.raises(NothingInCommon):
        groups.registry.join(name, JoinRequest("", None, "", (), 10_000, 10_000, "c", "h"), RecordingWaiter())


def test_a_group_of_a_refused_first_join_is_known_until_the_next_sweep() -> None:
    groups = Groups()
    refuse_join(groups, "g")
    assert list(groups.registry.names()) == ["g"]
    assert groups.registry.describe("g").state is GroupState.EMPTY
    groups.pass_messages(SWEEP_MS)
    assert list(groups.registry.names()) == []
    with pytest.raises(UnknownGroup):
        groups.registry.describe("g")


def test_a_group_is_known_after_its_last_cursor_was_deleted_until_the_next_sweep() -> None:
    groups = Groups()
    groups.commit(Claim("", -1))
    assert groups.registry.delete_cursor("g", groups.stream) is not None
    assert groups.registry.has("g")
    assert groups.registry.delete("g") is None
    assert not groups.registry.has("g")


def test_the_first_commit_of_a_non_member_creates_the_group_without_a_good_offset() -> None:
    groups = Groups()
    assert groups.registry.commit("g", Claim("", -1), []) == []
    groups.registry.check_claim("g", Claim("", -1))
    assert groups.registry.delete("g") is None
    with pytest.raises(UnknownGroup):
        groups.registry.delete("g")


def test_groups_that_clients_only_tried_are_few() -> None:
    groups = Groups()
    for number in range(1_500):
        refuse_join(groups, f"g{number}")
    assert list(groups.registry.names()) == [f"g{number}" for number in range(500, 1_500)]


# -- groups with broker-side assignment


def test_a_group_with_broker_side_assignment_survives_a_crash() -> None:
    groups = Groups()
    heartbeat, ticket = groups.heartbeat("m")
    assert (len(heartbeat.streams), heartbeat.epoch) == (3, 2)
    assert ticket is not None
    groups.settle()
    assert groups.heartbeat("m", 2) == (heartbeat.__class__("m", 2, None), None)
    groups.crash()
    assert groups.registry.describe("g").kind is GroupKind.BROKER_ASSIGNED
    assert groups.heartbeat("m", 2)[0].streams is None
    assert groups.commit(Claim("m", 2)).refusal is None
    groups.pass_liveness(SESSION_MS)
    assert groups.registry.describe("g").state is GroupState.EMPTY
    groups.settle()
    groups.crash()
    assert groups.registry.describe("g").members == ()


def test_a_response_waits_for_pending_writes_of_its_group() -> None:
    groups = Groups()
    groups.heartbeat("m")
    _, ticket = groups.heartbeat("m", 2)
    assert ticket is not None


def test_a_change_whose_write_failed_is_written_with_the_next_heartbeat() -> None:
    groups = Groups()
    groups.fail_writes(True)
    _, ticket = groups.heartbeat("m")
    groups.settle()
    assert isinstance(ticket.refusal, WriteFailed)
    groups.fail_writes(False)
    _, ticket = groups.heartbeat("m", 2)
    groups.settle()
    assert ticket.refusal is None
    groups.crash()
    assert [member.id for member in groups.registry.describe("g").members] == ["m"]


def test_a_member_that_left_stays_removed_although_the_write_of_its_removal_failed() -> None:
    groups = Groups()
    groups.heartbeat("m")
    groups.heartbeat("n")
    groups.settle()
    quiet = MemberHeartbeat("m", -1, None, None, None, None, None, None, None, "consumer", "", "")
    groups.fail_writes(True)
    groups.registry.leave_assigned("g", quiet)
    groups.runner.end_pass()
    groups.fail_writes(False)
    groups.heartbeat("n", 3)  # builds on the removal before its failed write is reported
    groups.settle()
    groups.crash()
    assert [member.id for member in groups.registry.describe("g").members] == ["n"]


def test_a_topic_that_grows_is_assigned_with_the_next_heartbeat() -> None:
    groups = Groups()
    groups.heartbeat("m")
    topic = groups.core.broker.topics.get(SYSTEM, "orders")
    groups.core.broker.topics.grow(SYSTEM, topic, 5)
    assert len(groups.heartbeat("m", 2)[0].streams) == 5


def test_a_member_without_an_id_gets_one() -> None:
    groups = Groups()
    heartbeat, _ = groups.heartbeat("")
    assert len(heartbeat.member) == 22


@pytest.mark.parametrize("assignor", ["unknown", ""])
def test_a_heartbeat_with_an_unknown_assignor_leaves_no_group(assignor: str) -> None:
    groups = Groups()
    with pytest.raises(UnknownAssignor):
        groups.heartbeat("m", assignor=assignor)
    assert list(groups.registry.names()) == []


def test_only_an_empty_group_changes_its_kind() -> None:
    groups = Groups()
    member = groups.stable_member()
    with pytest.raises(UnknownGroup):
        groups.heartbeat("m")
    groups.registry.leave("g", [LeaveRequest(member, None)])
    heartbeat, _ = groups.heartbeat("m")
    assert heartbeat.epoch == Groups().heartbeat("m")[0].epoch, "the group does not begin anew"
    with pytest.raises(NothingInCommon):
        groups.join()
    with pytest.raises(UnknownMember):
        groups.registry.heartbeat("g", "m", None, heartbeat.epoch)
    quiet = MemberHeartbeat("m", -1, None, None, None, None, None, None, None, "consumer", "", "")
    groups.registry.leave_assigned("g", quiet)
    assert groups.join().outcome.generation == 1, "the group does not begin anew"
    groups.settle()
    groups.crash()
    assert groups.registry.describe("g").members == ()


def test_settings_of_a_group_are_stored() -> None:
    groups = Groups()
    groups.registry.change_settings("g", GroupSettings(session_ms=60_000))
    groups.settle()
    groups.crash()
    assert groups.registry.settings("g") == GroupSettings(session_ms=60_000)
    groups.heartbeat("m")
    groups.pass_liveness(SESSION_MS)
    assert groups.registry.describe("g").state is GroupState.STABLE
    groups.pass_liveness(15_000)
    assert groups.registry.describe("g").state is GroupState.EMPTY
    groups.registry.change_settings("g", GroupSettings())
    assert groups.registry.change_settings("g", GroupSettings()) is None


# -- cursors


def test_a_commit_without_a_member_id_creates_a_group() -> None:
    groups = Groups()
    assert groups.commit(Claim()).refusal is None
    description = groups.registry.describe("g")
    assert (description.state, description.protocol_type, description.members) == (GroupState.EMPTY, "", ())


@pytest.mark.parametrize("claim", [Claim("x", 0), Claim("x", 5)])
def test_a_member_of_an_unknown_group_cannot_commit(claim: Claim) -> None:
    assert isinstance(Groups().commit(claim), UnknownGroup)


def test_a_member_of_an_old_generation_cannot_commit() -> None:
    groups = Groups()
    member = groups.stable_member()
    assert isinstance(groups.commit(Claim(member, 0)), StaleGeneration)
    assert groups.commit(Claim(member, 1)).refusal is None


def test_a_group_is_deleted_with_its_cursors_when_it_is_empty() -> None:
    groups = Groups()
    member = groups.stable_member()
    groups.commit(Claim(member, 1))
    with pytest.raises(GroupNotEmpty):
        groups.registry.delete("g")
    groups.registry.leave("g", [LeaveRequest(member, None)])
    assert groups.registry.delete("g") is not None
    groups.settle()
    groups.crash()
    assert list(groups.registry.names()) == []
    with pytest.raises(UnknownGroup):
        groups.registry.delete("g")


@pytest.mark.parametrize("was_member", [True, False])
def test_cursors_of_an_unused_group_are_deleted_after_a_week(was_member: bool) -> None:
    groups = Groups()
    if was_member:
        member = groups.stable_member()
        groups.commit(Claim(member, 1))
        groups.pass_messages(10 * DAY_MS)
        assert groups.core.cursors.all("g"), "a cursor of a group in use was deleted"
        groups.registry.leave("g", [LeaveRequest(member, None)])
    else:
        groups.commit(Claim())
    groups.settle()
    groups.pass_messages(6 * DAY_MS)
    groups.crash()
    assert groups.core.cursors.all("g")
    groups.pass_messages(2 * DAY_MS)
    assert list(groups.registry.names()) == []
    groups.crash()
    assert list(groups.registry.names()) == []


def test_an_empty_group_without_cursors_is_deleted_soon() -> None:
    groups = Groups()
    groups.registry.leave("g", [LeaveRequest(groups.stable_member(), None)])
    groups.settle()
    groups.pass_messages(DAY_MS // 24)
    assert list(groups.registry.names()) == []
    groups.crash()
    assert list(groups.registry.names()) == []


def test_the_first_member_waits_for_the_initial_rebalance_delay() -> None:
    groups = Groups(initial_delay_ms=3_000)
    waiter = groups.join()
    assert waiter.outcome is None
    groups.pass_liveness(2_999)
    assert waiter.outcome is None
    groups.pass_liveness(1)
    assert isinstance(waiter.outcome, JoinResult)
