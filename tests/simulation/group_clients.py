"""Actions of group members in the simulation, for both kinds of assignment: commit and fetch cursors, leave, disappear
and rejoin, until the group is stable."""

from __future__ import annotations

import asyncio
from random import Random

from group_promises import NOBODY, GroupPromises, Share
from session_clients import TOPICS, Partition, SessionClient
from simulated_trace import SimulationFailure
from surroundings import Surroundings

from trimq.protocols.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from trimq.protocols.kafka.names.codes import Code

SEED: Partition = (TOPICS[0], 0)

# Error codes by which a member learns that it was removed or is outdated.
OUTDATED = (
    Code.UNKNOWN_MEMBER_ID,
    Code.ILLEGAL_GENERATION,
    Code.REBALANCE_IN_PROGRESS,
    Code.FENCED_MEMBER_EPOCH,
    Code.STALE_MEMBER_EPOCH,
    Code.FENCED_INSTANCE_ID,
    Code.UNRELEASED_INSTANCE_ID,
    Code.GROUP_ID_NOT_FOUND,
)


class Member(SessionClient):
    def __init__(self, name: str, random: Random, surroundings: Surroundings, group: GroupPromises) -> None:
        super().__init__(name, random, surroundings)
        self.group = group
        self.member = ""
        self.instance: str | None = None
        group.enter(name)

    # -- for both kinds to define

    def share(self) -> Share | None:
        """Returns its assignment; None if it belongs to no generation."""
        raise NotImplementedError

    def generation(self) -> int:
        raise NotImplementedError

    async def keep_up(self) -> bool:
        """Joins, or sends a heartbeat."""
        raise NotImplementedError

    async def leave(self) -> bool:
        raise NotImplementedError

    def vanish(self) -> None:
        """Continues as a new process without state; the broker is not notified."""
        raise NotImplementedError

    def may_commit(self, partition: Partition) -> bool:
        """Returns whether a commit that is sent now may be accepted."""
        raise NotImplementedError

    def owner(self) -> object:
        """Returns the owner of its commits: late commits of the same owner may still be applied."""
        raise NotImplementedError

    # -- actions

    async def act(self) -> bool:
        if await self.find_topics() is None or not await self._seed():
            return False
        if self.surroundings.is_finishing:
            return await self._wait_until_stable()
        share, rng = self.share(), self.random.random()
        if share is None or rng < 0.5:
            return await self.keep_up()
        if rng < 0.75 and share:
            return await self._commit(self.random.choice(sorted(share)))
        if rng < 0.9:
            return await self._fetch_cursor(self.random.choice(sorted(self.group.commits)))
        if rng < 0.95:
            return await self.leave()
        self.vanish()
        return True

    async def _wait_until_stable(self) -> bool:
        """Does nothing until every member has an assignment, and all partitions are assigned."""
        if self.group.is_settled:
            return True
        await self.keep_up()
        share = self.share()
        if share is None:
            self.group.forget_share(self.name)
        else:
            self.group.note_share(self.name, self.generation(), share)
            await asyncio.sleep(self.random.random() * 4)
        return self.group.is_settled

    async def _seed(self) -> bool:
        """Commits a cursor before any member joins, so that the group is not deleted when its members leave."""
        if self.group.is_seeded:
            return True
        if self.group.seeder not in (None, self.name):
            return False
        self.group.seeder = self.name
        return await self._commit(SEED, is_member=False)

    # -- cursors

    async def _commit(self, partition: Partition, is_member: bool = True) -> bool:
        commits = self.group.commits[partition]
        await self.connection()
        owner = self.owner() if is_member else NOBODY
        may = not is_member or self.may_commit(partition)
        number = commits.ask(owner)
        name, index = partition
        topic = OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(index, number, -1, "")])
        identity = (self.generation(), self.member, self.instance) if is_member else (-1, "", None)
        request = OffsetCommitRequest(self.group.name, *identity, topics=[topic])
        code = (await self.ask(OffsetCommitResponse, request)).topics[0].partitions[0].error_code
        self.note(f"is answered {code} to commit {number} of {partition} as {identity}")
        if code:
            commits.refused(number)
            self.refused(code)
            return False
        if not may:
            raise SimulationFailure(
                f"{self.name} may commit {number} of {partition} as {identity}, which another member owns"
            )
        commits.confirmed(number, owner)
        self.group.is_seeded = True
        return True

    def refused(self, code: int) -> None:
        """The client must join again, or repeat the request."""
        self.expect(code, *OUTDATED)

    async def _fetch_cursor(self, partition: Partition) -> bool:
        await self.connection()
        is_expected = self.group.commits[partition].expectation()
        name, index = partition
        wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=[index])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group.name, topics=wanted)])
        response = (await self.ask(OffsetFetchResponse, request)).groups[0]
        code = response.error_code or response.topics[0].partitions[0].error_code
        if code:
            self.expect(code)
            return False
        number = max(response.topics[0].partitions[0].committed_offset, 0)
        if not is_expected(number):
            raise SimulationFailure(f"{self.name} finds {self.group.name} in {partition} at {number}")
        return True
