"""OffsetCommit, versions 2 to 10: commits offsets of a group; answered when they are durable.

Accepted from members of the current generation, or from any client while the group has no members. An error applies to
one partition, or to all if the group refuses the client. Version 9 adds member epochs, version 10 topic ids.
Not served: the retention time of versions 2 to 4 (offsets are kept for seven days after the group's last use).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from trimq.core.groups.group import Claim, CursorChange
from trimq.core.security.resources import Action
from trimq.errors import Refusal, UnknownGroup, UnknownTopic
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTicket, ChangeTickets
from trimq.protocols.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from trimq.protocols.kafka.names.codes import Code, group_code
from trimq.protocols.kafka.wire.connection import Request, encode_response

_METADATA_CHARACTERS = 4096
_EPOCHS_SINCE, _IDS_SINCE = 9, 10
_DOES_NOT_EXIST = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID)


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(OffsetCommitRequest)
    attempt = _CommitAttempt(context, request.api_version, message.group_id)
    response = OffsetCommitResponse(topics=_merge_topics([attempt.read_topic(topic) for topic in message.topics]))
    claim = Claim(
        message.member_id,
        message.generation_id_or_member_epoch,
        message.group_instance_id,
        uses_member_epoch=request.api_version >= _EPOCHS_SINCE,
    )
    tickets = attempt.commit(message.group_id, claim)

    def build() -> Parts:
        attempt.apply_refusals(tickets)
        return encode_response(request, response)

    return Reply.when_durable(tickets.number, build)


class _CommitAttempt:
    """Offsets of a request that can be committed, and the results of its partitions."""

    def __init__(self, context: Context, version: int, group: str) -> None:
        self._context = context
        self._group = group
        self._version = version
        self._changes: list[CursorChange] = []
        self._answers: list[OffsetCommitResponsePartition] = []
        self._too_large: list[OffsetCommitResponsePartition] = []

    def read_topic(self, topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        partitions = [self._read_partition(topic, asked) for asked in topic.partitions]
        return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    def _read_partition(
        self, topic: OffsetCommitRequestTopic, asked: OffsetCommitRequestPartition
    ) -> OffsetCommitResponsePartition:
        index = asked.partition_index
        metadata = asked.committed_metadata or ""
        try:
            self._context.broker.groups.require(self._context.caller, Action.READ, self._group)
            if self._version >= _IDS_SINCE:
                found = self._context.readable_topic("", topic.topic_id, Action.READ)
            else:
                found = self._context.readable_topic(topic.name, b"", Action.READ)
            stream = self._context.broker.partitions.readable(self._context.caller, found, index)
        except Refusal as refusal:
            return OffsetCommitResponsePartition(partition_index=index, error_code=self._code(refusal))
        answer = OffsetCommitResponsePartition(partition_index=index, error_code=Code.NONE)
        if len(metadata) > _METADATA_CHARACTERS:
            answer.error_code = Code.OFFSET_METADATA_TOO_LARGE
            self._too_large.append(answer)
            return answer
        self._changes.append(CursorChange(stream.id, asked.committed_offset, asked.committed_leader_epoch, metadata))
        self._answers.append(answer)
        return answer

    def commit(self, group: str, claim: Claim) -> ChangeTickets:
        """Commits the offsets. Returns the tickets by the index of the offset."""
        tickets = ChangeTickets()
        if not self._answers and not self._too_large:
            return tickets
        outcomes: Sequence[object]
        try:
            groups = self._context.broker.groups
            groups.check_commit(self._context.caller, group, claim)
            outcomes = groups.commit(self._context.caller, group, claim, self._changes)
        except Refusal as refusal:
            outcomes = [refusal] * len(self._changes)
            for answer in self._too_large:
                answer.error_code = self._code(refusal)
        for number, outcome in enumerate(outcomes):
            if isinstance(outcome, Refusal):
                self._answers[number].error_code = self._code(outcome)
            else:
                tickets.add(number, cast(ChangeTicket, outcome))
        return tickets

    def apply_refusals(self, tickets: ChangeTickets) -> None:
        for number, answer in enumerate(self._answers):
            refusal = tickets.refusal(number)
            if refusal is not None:
                answer.error_code = self._code(refusal)

    def _code(self, refusal: Refusal) -> Code:
        if isinstance(refusal, UnknownGroup) and self._version < _EPOCHS_SINCE:
            return Code.ILLEGAL_GENERATION
        if isinstance(refusal, UnknownTopic) and self._version >= _IDS_SINCE:
            return Code.UNKNOWN_TOPIC_ID
        return group_code(refusal)


def _merge_topics(topics: list[OffsetCommitResponseTopic]) -> list[OffsetCommitResponseTopic]:
    """Merges entries of the same topic if a partition does not exist, as Kafka does; otherwise each entry of the
    request has one in the response."""
    if not any(each.error_code in _DOES_NOT_EXIST for topic in topics for each in topic.partitions):
        return topics
    merged: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for topic in topics:
        known = merged.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions += topic.partitions
    return list(merged.values())


HANDLERS = {"OffsetCommit": handle}
