"""Members of groups with client-side assignment in the simulation: join, sync, heartbeat; some are static members."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from random import Random

from group_clients import Member
from group_promises import NOTHING, ClassicPromises, Share
from session_clients import ALL_PARTITIONS, NEWEST, TOPICS, Partition
from simulated_trace import SimulationFailure
from surroundings import Surroundings

from trimq.protocols.kafka.messages.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from trimq.protocols.kafka.names.codes import Code

_STRATEGY = "range"


def _subscription() -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in TOPICS)
    return struct.pack(">hi", 0, len(TOPICS)) + names + struct.pack(">i", -1)


def _divide(members: Sequence[JoinGroupResponseMember]) -> dict[str, Share]:
    return {member.member_id: frozenset(ALL_PARTITIONS[place :: len(members)]) for place, member in enumerate(members)}


def _encode(share: Share) -> bytes:
    return json.dumps(sorted(share)).encode()


def _decode(assignment: bytes) -> Share:
    return frozenset((name, number) for name, number in json.loads(assignment)) if assignment else NOTHING


class ClassicMember(Member):
    group: ClassicPromises

    def __init__(self, name: str, random: Random, surroundings: Surroundings, group: ClassicPromises) -> None:
        super().__init__(name, random, surroundings, group)
        self.versions = {**NEWEST, 11: random.choice((5, 9))}
        self.instance = name if random.random() < 0.25 else None
        self._session_ms = random.choice((6_000, 30_000))
        self._rebalance_ms = random.choice((5_000, 60_000))
        self._generation = -1
        self._share: Share | None = None

    def share(self) -> Share | None:
        return self._share

    def generation(self) -> int:
        return self._generation

    def owner(self) -> object:
        return self.instance or self.member, self._generation

    def may_commit(self, partition: Partition) -> bool:
        return self.group.newest <= self._generation

    def refused(self, code: int) -> None:
        super().refused(code)
        if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
            self.member = ""
        if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID, Code.ILLEGAL_GENERATION):
            self._share = None
        if code == Code.REBALANCE_IN_PROGRESS:
            self._share = None

    def vanish(self) -> None:
        self.member = ""
        self._share = None

    async def keep_up(self) -> bool:
        return await (self._join() if self._share is None else self._heartbeat())

    async def _heartbeat(self) -> bool:
        await self.connection()
        may = self.group.newest <= self._generation
        request = HeartbeatRequest(self.group.name, self._generation, self.member, self.instance)
        code = (await self.ask(HeartbeatResponse, request)).error_code
        if code:
            self.note(f"is answered {code} to a heartbeat in{self._generation}")
            self.refused(code)
        elif not may:
            raise SimulationFailure(f"{self.name} may continue in {self._generation} after {self.group.newest}")
        return not code

    async def _join(self) -> bool:
        request = JoinGroupRequest(
            self.group.name,
            self._session_ms,
            self._rebalance_ms,
            self.member,
            self.instance,
            "consumer",
            [JoinGroupRequestProtocol(_STRATEGY, _subscription())],
        )
        joined = await self.ask(JoinGroupResponse, request)
        self.note(f"is answered {joined.error_code} to a join: {joined.member_id} in {joined.generation_id}")
        if joined.error_code == Code.MEMBER_ID_REQUIRED:
            self.member = joined.member_id
            return True
        if joined.error_code:
            self.refused(joined.error_code)
            return False
        self.member, self._generation = joined.member_id, joined.generation_id
        return await self._sync(joined)

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        shares: dict[str, Share] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares = _divide(joined.members)
            places = {member.member_id: member.group_instance_id or member.member_id for member in joined.members}
            self.group.divided(self._generation, {places[member]: share for member, share in shares.items()})
        handed_in = [SyncGroupRequestAssignment(member, _encode(share)) for member, share in shares.items()]
        request = SyncGroupRequest(
            self.group.name, self._generation, self.member, self.instance, "consumer", _STRATEGY, handed_in
        )
        synced = await self.ask(SyncGroupResponse, request)
        self.note(f"is answered {synced.error_code} to a sync in {self._generation}: {synced.assignment!r}")
        if synced.error_code:
            self.refused(synced.error_code)
            return False
        self._share = _decode(synced.assignment)
        self.group.synced(self._generation, self.instance or self.member, self._share)
        return True

    async def leave(self) -> bool:
        identity = MemberIdentity(self.member, self.instance)
        self._share = None
        request = LeaveGroupRequest(self.group.name, members=[identity])
        response = await self.ask(LeaveGroupResponse, request)
        code = response.error_code or response.members[0].error_code
        if code:
            self.refused(code)
        self.member = ""
        return not code
