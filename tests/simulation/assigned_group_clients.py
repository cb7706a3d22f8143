"""Members of groups with broker-side assignment (KIP-848) in the simulation: they confirm a revocation after they have
released the partitions, and only then another member may own them."""

from __future__ import annotations

from random import Random

from group_clients import Member
from group_promises import NOTHING, AssignedPromises, Holder, Share
from session_clients import TOPICS, Partition
from surroundings import Surroundings

from trimq.core.groups.coordinator import SESSION_MS
from trimq.protocols.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from trimq.protocols.kafka.names.codes import Code

# Longer than a session: the session expires before the rebalance time-out.
_REBALANCE_MS = 600_000


class AssignedMember(Member):
    group: AssignedPromises

    def __init__(self, name: str, random: Random, surroundings: Surroundings, group: AssignedPromises) -> None:
        super().__init__(name, random, surroundings, group)
        self._names = 0
        self._epoch = 0
        self._must_send_all = True
        self._leaving: Share = NOTHING
        self.vanish()

    def vanish(self) -> None:
        self._names += 1
        self.member = f"{self.name}-{self._names}"
        self._start_over()

    def _start_over(self) -> None:
        self._epoch = 0
        self._leaving = NOTHING
        self._must_send_all = True

    def _holder(self) -> Holder:
        return self.group.holder(self.member)

    def share(self) -> Share | None:
        return self._holder().share - self._leaving if self._epoch > 0 else None

    def generation(self) -> int:
        return self._epoch

    def owner(self) -> object:
        return self.member

    def may_commit(self, partition: Partition) -> bool:
        return self.group.other_holder(self.member, frozenset({partition}), self._now_ms()) is None

    def _now_ms(self) -> int:
        return self.surroundings.now_ms()

    def refused(self, code: int) -> None:
        super().refused(code)
        if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND):
            self._holder().share = NOTHING
            self._start_over()

    async def keep_up(self) -> bool:
        await self.connection()
        holder = self._holder()
        if self._leaving or self._epoch == 0:
            holder.share = holder.share - self._leaving if self._epoch else NOTHING
            self._leaving = NOTHING
            self._must_send_all = True
        sent_ms, sends_all, member = self._now_ms(), self._must_send_all, self.member
        self._must_send_all = True  # unless a response arrives
        request = self._request(holder.share, sends_all)
        response = await self.ask(ConsumerGroupHeartbeatResponse, request)
        if response.error_code:
            self.note(f"is answered {response.error_code} to a heartbeat in{self._epoch}")
            self.refused(response.error_code)
            return False
        self._epoch = response.member_epoch
        if response.assignment is None:
            self._must_send_all = False
        else:
            share = self._read(response.assignment)
            if share is None:
                return False
            self._take(holder, member, share, sent_ms)
        holder.alive_until_ms = sent_ms + SESSION_MS
        return True

    def _take(self, holder: Holder, member: str, share: Share, sent_ms: int) -> None:
        self.note(f"is assigned in {self._epoch}: {sorted(share)}")
        new = share - holder.share
        if self._now_ms() < sent_ms + SESSION_MS:  # after that its session may have expired again
            self.group.give(member, new, self._now_ms())
        self._leaving = holder.share - share
        self._must_send_all = bool(new)
        holder.share |= new

    def _request(self, share: Share, sends_all: bool) -> ConsumerGroupHeartbeatRequest:
        if not sends_all:
            return ConsumerGroupHeartbeatRequest(self.group.name, self.member, self._epoch)
        return ConsumerGroupHeartbeatRequest(
            self.group.name,
            self.member,
            self._epoch,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_names=list(TOPICS),
            topic_partitions=self._write(share),
        )

    def _write(self, share: Share) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        assert self._ids is not None
        held = {name: sorted(number for topic, number in share if topic == name) for name in TOPICS}
        return [ConsumerGroupHeartbeatTopicPartitions(self._ids[name], held[name]) for name in TOPICS if held[name]]

    def _read(self, assignment: ConsumerGroupHeartbeatAssignment) -> Share | None:
        """Returns None if a topic id is unknown to the member: a power cut may have removed a topic without records."""
        assert self._ids is not None
        names = {id: name for name, id in self._ids.items()}
        if any(topic.topic_id not in names for topic in assignment.topic_partitions):
            self._ids = None
            return None
        return frozenset(
            (names[topic.topic_id], number) for topic in assignment.topic_partitions for number in topic.partitions
        )

    async def leave(self) -> bool:
        self._holder().share = NOTHING
        self._epoch = 0
        request = ConsumerGroupHeartbeatRequest(self.group.name, self.member, -1)
        response = await self.ask(ConsumerGroupHeartbeatResponse, request)
        self._start_over()
        if response.error_code:
            self.refused(response.error_code)
        return not response.error_code
