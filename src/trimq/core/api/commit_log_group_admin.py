"""Consumer groups of commit-log topics as operators see them: members, subscriptions and lag. The front-end that the
members connect to supplies the members on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from trimq.core.api.groups import group_resource
from trimq.core.commit_log.groups import CommitLogGroups
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopics
from trimq.core.groups.group import GroupState
from trimq.core.metadata.cursors import Cursors
from trimq.core.security.access import Access, Action
from trimq.errors import GroupNotEmpty, UnknownGroup, UnknownStream
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
    """Members of a group, and the subscription in effect for all of them."""

    members: tuple[GroupMember, ...] = ()
    subscription: GroupSubscription = frozenset()

    def inconsistent_members(self) -> set[str]:
        """Members whose subscription differs from the most common one; all members if there is a tie."""
        words = Counter(member.subscription for member in self.members)
        if len(words) < 2:
            return set()
        (common, most), (_, next_most) = words.most_common(2)
        return {member.client_id for member in self.members if most == next_most or member.subscription != common}


class MemberSource(Protocol):
    """Supplies the members of groups; implemented by a front-end."""

    def names(self) -> Iterable[str]:
        """Names of groups that have members."""

    def group_members(self, group: str) -> GroupMembers: ...

    def retry_topics(self, group: str) -> Iterable[str]:
        """Retry topics of the group, which it reads from their first message on."""

    def forget(self, group: str) -> None:
        """Called when the group is deleted."""


class ConsumeProgress(NamedTuple):
    """Committed offset of a group in one queue, and the queue's end."""

    topic: str
    number: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        return max(self.end - self.offset, 0)


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

    def groups(self, caller: Caller) -> list[GroupSummary]:
        """Groups that the caller may see."""
        return [
            self._summarize(name)
            for name in self._names()
            if self._access.allowed(caller, Action.DESCRIBE, group_resource(caller, name))
        ]

    def has(self, name: str) -> bool:
        return name in self._names()

    def describe(self, caller: Caller, name: str) -> GroupSummary:
        self._access.require(caller, Action.DESCRIBE, group_resource(caller, name))
        if not self.has(name):
            raise UnknownGroup(name)
        return self._summarize(name)

    def consume_progress(self, caller: Caller, name: str) -> list[ConsumeProgress]:
        """Progress in the topics that the caller may see."""
        found: dict[tuple[str, int], ConsumeProgress] = {}
        if self._member_source is not None:
            for each in self._member_source.retry_topics(name):
                topic = self._topics.find(TopicName(caller.namespace, each))
                for stream in [] if topic is None or not self._may_see(caller, topic) else topic.streams():
                    found[each, stream.id.number] = ConsumeProgress(
                        each, stream.id.number, stream.start, stream.readable_end
                    )
        for id, cursor in self._cursors.all(name).items():
            topic = self._topics.find_id(id.topic)
            if topic is None or topic.name.namespace != caller.namespace or not self._may_see(caller, topic):
                continue
            try:
                end = topic.stream(id.number).readable_end
            except UnknownStream:
                continue  # the topic has shrunk
            found[topic.name.name, id.number] = ConsumeProgress(topic.name.name, id.number, max(cursor.offset, 0), end)
        return sorted(found.values())

    @property
    def latest(self) -> Ticket | None:
        """Ticket of the last cursor change: once its pass is durable, so is the state that callers have seen."""
        return self._cursors.latest

    def delete(self, caller: Caller, name: str) -> Ticket | None:
        """Deletes an empty group and its cursors."""
        self._access.require(caller, Action.CONFIGURE, group_resource(caller, name))
        if not self.has(name):
            raise UnknownGroup(name)
        if self._summarize(name).state is not GroupState.EMPTY:
            raise GroupNotEmpty(name)
        if self._member_source is not None:
            self._member_source.forget(name)
        self._forget_in_flight(name)
        forgotten = self._cursors.delete(name)
        return self._groups.delete(name) or forgotten

    def _may_see(self, caller: Caller, topic: CommitLogTopic) -> bool:
        return self._access.allowed(caller, Action.DESCRIBE, topic.resource)

    def _names(self) -> dict[str, None]:
        here = () if self._member_source is None else self._member_source.names()
        return dict.fromkeys([*(group.name for group in self._groups), *self._cursors.groups(), *here])

    def _summarize(self, name: str) -> GroupSummary:
        group_members = GroupMembers() if self._member_source is None else self._member_source.group_members(name)
        return GroupSummary(name, GroupState.STABLE if group_members.members else GroupState.EMPTY, group_members)
