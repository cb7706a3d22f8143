"""Consumer groups against their invariants: no stream has two owners, all streams are assigned once the group is
stable, generations only grow, and no request waits for ever. Members join, leave, stop, lose responses and commit, in
any order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trimq.core.groups.assigned_group import (
    AssignableTopic,
    AssignedGroup,
    HeartbeatResult,
    KnownTopics,
    MemberHeartbeat,
)
from trimq.core.groups.assigned_member import LEFT_EPOCH, STATIC_LEAVE_EPOCH, StoredAssignedMember
from trimq.core.groups.assignors import ASSIGNORS
from trimq.core.groups.classic_group import ClassicGroup
from trimq.core.groups.group import (
    Claim,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    OfferedProtocol,
    SyncRequest,
    SyncResult,
    WaiterResult,
)
from trimq.errors import Refusal
from trimq.errors.groups import MemberNameNeeded, Rebalancing
from trimq.model import StreamId

SESSION_MS, REBALANCE_MS = 10_000, 30_000
STREAMS = 5
NAMES = st.sampled_from(["a", "b", "c"])


@dataclass
class Consumer:
    """A client of a group with client-side assignment. `waits` is the kind of response that it waits for."""

    instance: str | None = None
    member: str = ""
    generation: int = -1
    share: bytes = b""
    waits: str = ""
    is_leader: bool = False
    members: tuple[str, ...] = ()


class ClassicMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ClassicGroup("g", initial_delay_ms=0)
        self.now_ms = 0
        self.consumers: dict[str, Consumer] = {}
        self.hanging: list[Consumer] = []
        self.names = 0
        self.generations = [0]
        self.kept = self.group.kept(0)
        self.rosters: dict[int, set[str]] = {}

    # -- client actions

    @rule(name=NAMES, is_static=st.booleans(), data=st.integers(0, 2))
    def join(self, name: str, is_static: bool, data: int) -> None:
        consumer = self.consumers.setdefault(name, Consumer(name if is_static else None))
        consumer.waits, consumer.share = "", b""  # a client that repeats a request does not wait for the old response
        asked = JoinRequest(
            member=consumer.member,
            instance=consumer.instance,
            protocol_type="consumer",
            offers=(OfferedProtocol("p", b"%d" % data),),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            client_id=name,
            host="",
        )
        self.names += 1
        waiter = (name, self.names)
        try:
            decisions = self.group.join(asked, f"{name}-{self.names}", waiter, self.now_ms)
        except MemberNameNeeded as needed:
            consumer.member = needed.member
            self.join(name, is_static, data)
        except Refusal:
            self.consumers[name] = Consumer(consumer.instance)
        else:
            consumer.waits = f"join {self.names}"
            self.handle(decisions)

    @rule(name=NAMES)
    def take_next_step(self, name: str) -> None:
        """Sends the next request of a well-behaved client."""
        consumer = self.consumers.get(name)
        if consumer is None or consumer.waits:
            return
        if self.group.state is GroupState.PREPARING_REBALANCE or not self.may_commit(consumer):
            self.join(name, False, 0)
        elif not consumer.share:
            self.sync(name)
        else:
            self.heartbeat(name)

    @rule(times=st.integers(1, 4))
    def all_take_steps(self, times: int) -> None:
        for _ in range(times):
            for name in list(self.consumers):
                self.take_next_step(name)

    @rule(name=NAMES)
    def sync(self, name: str) -> None:
        consumer = self.consumers.get(name)
        if consumer is None or consumer.generation < 0 or consumer.waits:
            return
        shares = {}
        if consumer.is_leader:
            for number in range(STREAMS):
                owner = consumer.members[number % len(consumer.members)]
                shares[owner] = shares.get(owner, b"") + b"%d" % number
        asked = SyncRequest(consumer.member, consumer.instance, consumer.generation, "consumer", "p", shares)
        self.names += 1
        try:
            decisions = self.group.sync(asked, (name, self.names), self.now_ms)
        except Refusal:
            consumer.share = b""
        else:
            consumer.waits = f"sync {self.names}"
            self.handle(decisions)

    @rule(name=NAMES)
    def heartbeat(self, name: str) -> None:
        consumer = self.consumers.get(name)
        if consumer is not None:
            try:
                self.group.heartbeat(consumer.member, consumer.instance, consumer.generation, self.now_ms)
            except Rebalancing:
                pass  # the client keeps its assignment until it joins again
            except Refusal:
                consumer.share = b""

    @rule(disturbance=st.sampled_from(["leave", "hang", "restart", "silence"]), name=NAMES)
    def disturb(self, disturbance: str, name: str) -> None:
        match disturbance:
            case "leave":
                self.leave(name)
            case "hang":
                self.rejoin_as_a_new_process(name)
            case "restart":
                self.restart()
            case "silence":
                self.all_stop_heartbeats()

    def leave(self, name: str) -> None:
        consumer = self.consumers.pop(name, None)
        if consumer is not None:
            _, decisions = self.group.leave([LeaveRequest(consumer.member, consumer.instance)], self.now_ms)
            self.handle(decisions)

    @rule(name=NAMES)
    def commit(self, name: str) -> None:
        """Commits are accepted from current members of the group only."""
        consumer = self.consumers.get(name, Consumer())
        claim = Claim(consumer.member, consumer.generation, consumer.instance)
        is_ours = self.may_commit(consumer) and self.group.state is not GroupState.ASSIGNING
        is_anyones = consumer.generation < 0 and self.group.state is GroupState.EMPTY
        try:
            self.group.check_claim(claim, is_transactional=False, now_ms=self.now_ms)
        except Refusal:
            assert not is_ours
            assert not is_anyones
        else:
            assert is_ours or is_anyones

    def rejoin_as_a_new_process(self, name: str) -> None:
        """The old process hangs, and may still assume that it owns its assignment."""
        if name in self.consumers:
            self.hanging.append(self.consumers[name])
            self.consumers[name] = Consumer(self.consumers[name].instance)

    @rule(passed_ms=st.sampled_from([1, 1, 1_000, 5_000, 5_000, SESSION_MS, REBALANCE_MS, 400_000]))
    def pass_time(self, passed_ms: int) -> None:
        until_ms = self.now_ms + passed_ms
        while (due_ms := self.group.next_due_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.handle(self.group.expire(self.now_ms))
            self.no_stream_is_owned_twice_and_generations_grow()
        self.now_ms = until_ms

    def all_stop_heartbeats(self) -> None:
        self.pass_time(1_000_000)
        assert not any(each.waits for each in self.consumers.values()), "a request waits for ever"
        assert self.group.state is GroupState.EMPTY
        assert self.group.is_unused

    def restart(self) -> None:
        """A generation without an assignment is not stored, and may be lost."""
        self.group = ClassicGroup.restore("g", self.kept, 0, self.now_ms)
        self.generations = [self.kept.generation]
        self.rosters = {
            generation: roster for generation, roster in self.rosters.items() if generation <= self.kept.generation
        }
        for consumer in self.consumers.values():
            consumer.waits = ""

    # -- responses

    def handle(self, decisions: list[WaiterResult]) -> None:
        if self.group.needs_save:
            self.group.needs_save = False
            self.kept = self.group.kept(0)
        for waiter, outcome in decisions:
            name, number = waiter
            consumer = self.consumers.get(name)
            if consumer is None or not consumer.waits.endswith(f" {number}"):
                continue  # the client disconnected, or repeated its request
            consumer.waits = ""
            if isinstance(outcome, JoinResult):
                consumer.member, consumer.generation = outcome.member, outcome.generation
                consumer.is_leader = outcome.leader == outcome.member and not outcome.skips_assignment
                consumer.members = tuple(member.member for member in outcome.members)
                if consumer.is_leader:
                    known = self.rosters.setdefault(outcome.generation, set(consumer.members))
                    assert known == set(consumer.members), "a generation has other members than before"
            elif isinstance(outcome, SyncResult):
                consumer.share = outcome.assignment
            else:
                consumer.share = b""

    # -- invariants

    @invariant()
    def no_stream_is_owned_twice_and_generations_grow(self) -> None:
        assert self.group.generation >= self.generations[-1], "the generation went down"
        self.generations.append(self.group.generation)
        everybody = [*self.consumers.values(), *self.hanging]
        accepted = [each for each in everybody if each.share and self.may_commit(each)]
        owned = b"".join(each.share for each in accepted)
        assert len(owned) == len(set(owned)), "a stream has two owners"

    def may_commit(self, consumer: Consumer) -> bool:
        is_member = consumer.member in {member.id for member in self.group.describe().members}
        return is_member and consumer.generation == self.group.generation

    def teardown(self) -> None:
        """All remaining members join, sync and send heartbeats: all streams have owners. Then all stop their
        heartbeats."""
        if not self.consumers:
            self.join("a", False, 0)
        for _ in range(20):
            self.all_take_steps(4)
            self.pass_time(SESSION_MS // 2)
        settled = [each for each in self.consumers.values() if self.is_stable(each)]
        owned = b"".join(each.share for each in settled)
        assert sorted(owned) == sorted(b"".join(b"%d" % number for number in range(STREAMS))), "a stream has no owner"
        self.all_stop_heartbeats()

    def is_stable(self, consumer: Consumer) -> bool:
        return self.may_commit(consumer) and not consumer.waits and self.group.state is GroupState.STABLE


@dataclass
class Subscriber:
    """A client of a group with broker-side assignment; gives up revoked streams after a while."""

    member: str
    instance: str | None
    epoch: int = 0
    owned: frozenset[StreamId] = frozenset()
    giving_up: frozenset[StreamId] = frozenset()
    is_away: bool = False
    has_lost_answer: bool = False
    subscription: tuple[str, ...] = ()


TOPICS = ["x", "y", "z"]
QUIET = MemberHeartbeat("", 0, None, None, None, None, None, None, None, "consumer", "", "")
SUBSCRIPTIONS = st.sampled_from([("x",), ("x", "y"), ("x", "y", "z"), ("z",), ()])


class AssignedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = AssignedGroup("g")
        self.now_ms = 0
        self.revision = 0
        self.sizes = {"x": 3, "y": 1}
        self.clients: dict[str, Subscriber] = {}
        self.kept: dict[str, StoredAssignedMember] = {}
        self.names = 0
        self.epoch = 0

    def known(self) -> KnownTopics:
        shapes = {name: AssignableTopic(UUID(int=TOPICS.index(name) + 1), size) for name, size in self.sizes.items()}
        return KnownTopics(self.revision, shapes)

    # -- client actions

    @rule(name=NAMES, is_static=st.booleans(), subscription=SUBSCRIPTIONS, assignor=st.sampled_from([None, *ASSIGNORS]))
    def join(self, name: str, is_static: bool, subscription: tuple[str, ...], assignor: str | None) -> None:
        known = self.clients.get(name)
        if known is None or (known.is_away and is_static):
            self.names += 1
            known = Subscriber(f"{name}-{self.names}", name if is_static or known is not None else None)
        asked = replace(
            QUIET,
            member=known.member,
            instance=known.instance,
            rebalance_ms=REBALANCE_MS,
            topics=subscription,
            assignor=assignor,
            owned=frozenset(),
        )
        try:
            heartbeat = self.group.heartbeat(asked, self.known(), SESSION_MS, self.now_ms)
        except Refusal:
            return
        known.owned = known.giving_up = frozenset()  # a joining member owns nothing
        known.is_away = False
        known.subscription = subscription
        self.clients[name] = known
        self.handle(known, heartbeat)

    @rule(name=NAMES, says_owned=st.booleans(), loses_answer=st.booleans())
    def heartbeat(self, name: str, says_owned: bool, loses_answer: bool = False) -> None:
        client = self.clients.get(name)
        if client is None or client.is_away:
            return
        owned = client.owned | client.giving_up if says_owned or client.has_lost_answer else None
        asked = replace(QUIET, member=client.member, instance=client.instance, epoch=client.epoch, owned=owned)
        if client.has_lost_answer:  # a client that lost a response sends everything, and gets everything
            asked = replace(asked, rebalance_ms=REBALANCE_MS, topics=client.subscription)
        try:
            heartbeat = self.group.heartbeat(asked, self.known(), SESSION_MS, self.now_ms)
        except Refusal:
            del self.clients[name]  # a fenced client drops its assignment
            self.keep()
            return
        client.has_lost_answer = loses_answer
        if loses_answer:
            self.keep()
        else:
            self.handle(client, heartbeat)

    @rule(revokes=st.booleans(), times=st.integers(1, 3))
    def all_take_steps(self, revokes: bool, times: int) -> None:
        for _ in range(times):
            for name in list(self.clients):
                self.heartbeat(name, says_owned=True)
                if revokes:
                    self.revoke(name)

    @rule(name=NAMES)
    def revoke(self, name: str) -> None:
        if name in self.clients:
            self.clients[name].giving_up = frozenset()

    @rule(name=NAMES, for_a_while=st.booleans())
    def leave(self, name: str, for_a_while: bool) -> None:
        client = self.clients.get(name)
        if client is None or client.is_away:
            return
        epoch = STATIC_LEAVE_EPOCH if for_a_while and client.instance is not None else LEFT_EPOCH
        try:
            self.group.leave(replace(QUIET, member=client.member, instance=client.instance, epoch=epoch))
        except Refusal:
            epoch = LEFT_EPOCH
        if epoch == STATIC_LEAVE_EPOCH:
            client.is_away, client.owned, client.giving_up = True, frozenset(), frozenset()
        else:
            del self.clients[name]
        self.keep()

    @rule(name=st.sampled_from(TOPICS), size=st.integers(1, 4))
    def grow_or_make_topic(self, name: str, size: int) -> None:
        self.sizes[name] = max(self.sizes.get(name, 0), size)
        self.revision += 1

    @rule(passed_ms=st.sampled_from([1, 1, 1, 4_000, 4_000, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, passed_ms: int) -> None:
        until_ms = self.now_ms + passed_ms
        while (due_ms := self.group.next_due_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.group.expire(self.now_ms)
        self.now_ms = until_ms
        self.keep()

    @rule()
    def restart(self) -> None:
        members = list(self.kept.values())
        self.group = AssignedGroup.restore("g", self.group.kept(0), members, SESSION_MS, self.now_ms)

    # -- responses, and stored state

    def handle(self, client: Subscriber, heartbeat: HeartbeatResult) -> None:
        assert heartbeat.member == client.member
        client.epoch = heartbeat.epoch
        if heartbeat.streams is not None:
            client.giving_up = (client.owned | client.giving_up) - heartbeat.streams
            client.owned = heartbeat.streams
        self.keep()

    def keep(self) -> None:
        for name, member in self.group.changed.items():
            if member is None:
                self.kept.pop(name, None)
            else:
                self.kept[name] = StoredAssignedMember.of(member)
        self.group.changed.clear()

    # -- invariants

    @invariant()
    def no_stream_has_two_owners(self) -> None:
        present = {member.id for member in self.group.describe().members}
        owned = [
            stream
            for client in self.clients.values()
            if client.member in present and not client.is_away
            for stream in client.owned | client.giving_up
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def epochs_grow(self) -> None:
        assert self.group.generation >= self.epoch
        self.epoch = self.group.generation

    def teardown(self) -> None:
        """The remaining members send heartbeats and follow the assignments: soon all subscribed streams have owners."""
        self.now_ms += SESSION_MS  # static members that left temporarily do not rejoin
        for name in [name for name, client in self.clients.items() if client.is_away]:
            del self.clients[name]
        for _ in range(8):
            for name in list(self.clients):
                self.revoke(name)
                self.heartbeat(name, says_owned=True)
            self.pass_time(1)
        described = self.group.describe()
        wanted = {topic for member in described.members for topic in member.topics if topic in self.sizes}
        owned = sorted(stream for client in self.clients.values() for stream in client.owned)
        shapes = self.known().shapes
        expected = [StreamId(shapes[name].id, index) for name in wanted for index in range(shapes[name].streams)]
        assert owned == sorted(expected), "a subscribed stream has no owner"
        assert described.state is (GroupState.STABLE if self.clients else GroupState.EMPTY)


ClassicMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
test_a_group_whose_leader_divides = ClassicMachine.TestCase
AssignedMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
test_a_group_that_the_broker_divides = AssignedMachine.TestCase
