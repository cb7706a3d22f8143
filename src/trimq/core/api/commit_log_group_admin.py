"""Consumer groups of commit-log topics as operators see them: members, subscriptions and lag. The front-end that the
members connect to supplies the members on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol
from uuid import UUID

from trimq.core.commit_log.groups import CommitLogGroups
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopics
from trimq.core.groups.group import GroupState
from trimq.core.metadata.cursors import Cursors
from trimq.core.security.access import Access, Action, group_resource
from trimq.errors import GroupNotEmpty, UnknownGroup
from trimq.model import Caller, TopicName
from trimq.storage.group_commit.passes import Ticket

GroupSubscription = frozenset[tuple[str, str]]


class GroupMember(NamedTuple):
    """A member and the subscription that it reported: topics and filter expressions."""

    client_id: str
    host: str
    language: str
    version: str
    subscription: GroupSubscription = frozenset()


class GroupMembers(NamedTuple):
    """Members of a group, and the subscription in effect for all of them. `is_broadcasting`: each member consumes every
    message and stores its offsets itself."""

    members: tuple[GroupMember, ...] = ()
    subscription: GroupSubscription = frozenset()
    is_broadcasting: bool = False

    def inconsistent_members(self) -> set[str]:
        """Members whose subscription differs from the most common one; all members if there is a tie."""
        words = Counter(member.subscription for member in self.members)
        if len(words) < 2:
            return set()
        (common, most), (_, next_most) = words.most_common(2)
        return {member.client_id for member in self.members if most == next_most or member.subscription != common}


class LiveProducer(NamedTuple):
    """A connected producer. `heartbeat_age_ms`: time since its last heartbeat."""

    group: str
    client_id: str
    host: str
    language: str
    version: str
    heartbeat_age_ms: int


class MemberSource(Protocol):
    """Supplies producers and the members of groups; implemented by a front-end."""

    def names(self) -> Iterable[str]:
        """Names of groups that have members."""

    def has(self, group: str) -> bool:
        """Whether the group has members."""

    def group_members(self, group: str) -> GroupMembers: ...

    def retry_topics(self, group: str) -> Iterable[str]:
        """Retry topics of the group, which it reads from their first message on."""

    def producers(self) -> list[LiveProducer]: ...

    def forget(self, group: str) -> None:
        """Called when the group is deleted."""


class ConsumeProgress(NamedTuple):
    """Committed offset of a group in one queue, and the queue's ends. `offset` None: nothing was committed, and the lag
    counts from the queue's first message."""

    topic: str
    number: int
    offset: int | None
    start: int
    end: int

    @property
    def lag(self) -> int:
        return max(self.end - (self.start if self.offset is None else self.offset), 0)


class GroupSummary(NamedTuple):
    name: str
    state: GroupState
    group_members: GroupMembers


class CommitLogGroupAdmin:
    """`forget_in_flight` drops the leases of messages that the group has popped."""

    def __init__(
        self,
        topics: CommitLogTopics,
        groups: CommitLogGroups,
        cursors: Cursors,
        access: Access,
        forget_in_flight: Callable[[str], None],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._cursors = cursors
        self._access = access
        self._forget_in_flight = forget_in_flight
        self._member_source: MemberSource | None = None

    def set_member_source(self, member_source: MemberSource) -> None:
        self._member_source = member_source

    def has_members(self, name: str) -> bool:
        return self._member_source is not None and self._member_source.has(name)

    def groups(self, caller: Caller) -> list[GroupSummary]:
        """Groups that the caller may see."""
        return [group for group in self.iterate(caller) if group is not None]

    def iterate(self, caller: Caller) -> Iterator[GroupSummary | None]:
        """As `groups`, one at a time: the broker may work meanwhile. Yields None for each group that is left out."""
        for name in self._names():
            is_seen = self._access.allowed(caller, Action.DESCRIBE, group_resource(name))
            yield self._summarize(name) if is_seen else None

    def has(self, name: str) -> bool:
        is_known = self._groups.find(name) is not None or bool(self._cursors.all(name))
        return is_known or (self._member_source is not None and self._member_source.has(name))

    def describe(self, caller: Caller, name: str) -> GroupSummary:
        self._access.require(caller, Action.DESCRIBE, group_resource(name))
        if not self.has(name):
            raise UnknownGroup(name)
        return self._summarize(name)

    def producers(self, caller: Caller) -> list[LiveProducer]:
        """Connected producers of the groups that the caller may see."""
        found = [] if self._member_source is None else self._member_source.producers()
        groups = {
            name: self._access.allowed(caller, Action.DESCRIBE, group_resource(name))
            for name in {producer.group for producer in found}
        }
        return [producer for producer in found if groups[producer.group]]

    def find_topic(self, caller: Caller, id: UUID) -> CommitLogTopic | None:
        """Topic of the caller's namespace by its id, if there is one and the caller may see it."""
        topic = self._topics.find_id(id)
        if topic is None or topic.name.namespace != caller.namespace or not self._may_see(caller, topic):
            return None
        return topic

    def topic_ids(self) -> list[UUID]:
        """Ids of all topics of the commit log."""
        return [topic.id for topic in self._topics]

    def consume_progress(self, caller: Caller, name: str) -> list[ConsumeProgress]:
        """Progress in all queues of the topics that the group subscribes to or has committed an offset of, as far as
        the caller may see them."""
        found: dict[tuple[str, int], ConsumeProgress] = {}
        for topic, first in self._consumed_topics(caller, name):
            for stream in topic.streams():
                number, start = stream.id.number, stream.start
                cursor = self._cursors.fetch(name, stream.id)
                offset = (start if first else None) if cursor is None else max(cursor.offset, 0)
                found[topic.name.name, number] = ConsumeProgress(
                    topic.name.name, number, offset, start, stream.readable_end
                )
        return sorted(found.values())

    def _consumed_topics(self, caller: Caller, name: str) -> Iterator[tuple[CommitLogTopic, bool]]:
        """Yields the topics that the group consumes; True for those that it reads from the first message on."""
        for id in dict.fromkeys(stream.topic for stream in self._cursors.all(name)):
            if (topic := self.find_topic(caller, id)) is not None:
                yield topic, False
        if self._member_source is None:
            return
        group_members = self._member_source.group_members(name)
        subscribed = [] if group_members.is_broadcasting else [topic for topic, _ in group_members.subscription]
        retried = list(self._member_source.retry_topics(name))
        for each in dict.fromkeys([*subscribed, *retried]):
            topic = self._topics.find(TopicName(caller.namespace, each))
            if topic is not None and self._may_see(caller, topic):
                yield topic, each in retried

    @property
    def latest(self) -> Ticket | None:
        """Ticket of the last cursor change: once its pass is durable, so is the state that callers have seen."""
        return self._cursors.latest

    def delete(self, caller: Caller, name: str) -> Ticket | None:
        """Deletes an empty group and its cursors."""
        self._access.require(caller, Action.DELETE, group_resource(name))
        if not self.has(name):
            raise UnknownGroup(name)
        if self._summarize(name).state is not GroupState.EMPTY:
            raise GroupNotEmpty(name)
        if self._member_source is not None:
            self._member_source.forget(name)
        self._forget_in_flight(name)
        forgotten = self._cursors.delete(name)
        ticket = self._groups.delete(name) or forgotten
        self._access.audit.changed(caller, "delete", "group", name)
        return ticket

    def _may_see(self, caller: Caller, topic: CommitLogTopic) -> bool:
        return self._access.allowed(caller, Action.DESCRIBE, topic.resource)

    def _names(self) -> Iterator[str]:
        """Yields groups that were created, then others with cursors, then others with members."""
        seen = {group.name: None for group in self._groups}
        yield from seen
        with_cursors = self._cursors.groups()
        for name in with_cursors:
            if name not in seen:
                yield name
        for name in () if self._member_source is None else self._member_source.names():
            if name not in seen and not self._cursors.all(name):
                yield name

    def _summarize(self, name: str) -> GroupSummary:
        group_members = GroupMembers() if self._member_source is None else self._member_source.group_members(name)
        return GroupSummary(name, GroupState.STABLE if group_members.members else GroupState.EMPTY, group_members)
