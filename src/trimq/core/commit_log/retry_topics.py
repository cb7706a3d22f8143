"""Retry and dead-letter topics of consumer groups: one retry topic for each topic with messages returned to the group,
and one dead-letter topic per group. Each is created when first needed. Nothing is written before the topic's creation
is durable; otherwise a message could be acknowledged at its source and lost with the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from trimq.core.commit_log.dead_letters import CommitLogDeadLetters
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition, CommitLogTopics
from trimq.core.failures.ledger import Reason
from trimq.core.metadata.cursors import Cursors
from trimq.core.write_gate import WriteGate
from trimq.formats.rocketmq_unit.properties import TAGS, UNIQUE_KEY, find_property, tags_code
from trimq.formats.rocketmq_unit.retries import dead_letter_draft, dead_letter_topic, pop_retry_topic, retry_draft
from trimq.formats.rocketmq_unit.ttl import expiry_ms
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft
from trimq.model import SYSTEM, TopicName
from trimq.storage.commit_log.log import AppendedUnit
from trimq.storage.group_commit.passes import Ticket

FindKey = Callable[[str, str, int, int], Iterable[Unit]]
"""Messages of a topic that have a key and were stored between two times."""

_FOR_EVER_MS = 2**62

# Messages of one id that are looked at, about 1 ms: with one id for thousands, each return would take too long.
_MAX_SEARCHED = 128


class RetryTopics:
    """Appends returned and failed messages. `store_host` returns the broker address that stored messages carry."""

    def __init__(
        self,
        topics: CommitLogTopics,
        gate: WriteGate,
        find_key: FindKey,
        store_host: Callable[[], bytes],
        failures: CommitLogDeadLetters,
    ) -> None:
        self._topics = topics
        self._gate = gate
        self._find_key = find_key
        self._store_host = store_host
        self._failures = failures

    def find_retry_topic(self, group: str, topic: CommitLogTopic) -> CommitLogTopic | None:
        return self._topics.find(TopicName(topic.name.namespace, pop_retry_topic(group, topic.name.name)))

    def make_retry_topic(self, group: str, topic: CommitLogTopic) -> CommitLogTopic:
        """Returns the topic for messages that the group took from `topic` and did not acknowledge. Messages from a
        retry topic are returned to that same retry topic."""
        return self._make(topic.name.namespace, _returned_name(group, topic))

    def make_dead_letter_topic(self, group: str, topic: CommitLogTopic) -> CommitLogTopic:
        return self._make(topic.name.namespace, dead_letter_topic(group))

    def append_retry(self, own: CommitLogTopic, group: str, unit: Unit, pop_time_ms: int) -> Ticket:
        """Returns a message to its group. `own` is the result of `make_retry_topic`."""
        draft = retry_draft(unit, own.raw_name, group, pop_time_ms)
        if expiry_ms(draft.properties, 0) is not None:
            self._topics.enable_ttl(own)
        return self._append(own, draft).ticket

    def was_already_stored(
        self, group: str, topic: CommitLogTopic, unit: Unit, pop_time_ms: int, is_dead: bool
    ) -> bool:
        """Whether the broker had already stored the message as retry or dead letter before a restart and crashed before
        it recorded that. Prevents a duplicate, unless very many messages have one id."""
        unique = find_property(unit.properties, UNIQUE_KEY)
        name = dead_letter_topic(group) if is_dead else _returned_name(group, topic)
        if unique is None or self._topics.find(TopicName(topic.name.namespace, name)) is None:
            return False
        found = islice(self._find_key(name, unique, pop_time_ms, _FOR_EVER_MS), _MAX_SEARCHED)
        return any(each.reconsume_times == unit.reconsume_times + 1 for each in found)

    def append_dead_letter(
        self, own: CommitLogTopic, group: str, topic: CommitLogTopic, unit: Unit, reason: Reason, is_ordered: bool
    ) -> Ticket:
        """Stores a message as dead letter. `own` is the result of `make_dead_letter_topic`. `topic` is the topic that
        the group reads, or its retry topic, which is never read in order."""
        asked_for = topic.name.name.removeprefix(pop_retry_topic(group, ""))
        draft = dead_letter_draft(unit, own.raw_name, asked_for)
        placed = self._append(own, draft)
        again = (asked_for, unit.queue_id) if is_ordered else (pop_retry_topic(group, asked_for), 0)
        self._failures.record_dead_letter(SYSTEM, own, placed, draft, reason, again)
        return placed.ticket

    def _make(self, namespace: str, name: str) -> CommitLogTopic:
        found = self._topics.find(TopicName(namespace, name))
        if found is None:
            found, _ = self._topics.create(CommitLogTopicDefinition(namespace, name, 1, 1))
        return found

    def _append(self, topic: CommitLogTopic, draft: UnitDraft) -> AppendedUnit:
        assert topic.creation is None, "the caller must wait until the topic's creation is durable"
        self._gate.require_writable()
        code = tags_code(find_property(draft.properties, TAGS) or "")
        return topic.stream(0).append(draft, code, self._store_host())


def _returned_name(group: str, topic: CommitLogTopic) -> str:
    name = topic.name.name
    return name if name.startswith(pop_retry_topic(group, "")) else pop_retry_topic(group, name)


def find_retry_topics(topics: CommitLogTopics, cursors: Cursors, topic: CommitLogTopic) -> list[CommitLogTopic]:
    """Retry topics of `topic`, for each group with a cursor in it. The name of a retry topic alone is ambiguous: it
    could belong to another group and topic."""
    found = []
    for group in cursors.groups():
        own = topics.find(TopicName(topic.name.namespace, pop_retry_topic(group, topic.name.name)))
        if own is not None and any(stream.topic == topic.id for stream in cursors.all(group)):
            found.append(own)
    return found


def oldest_dead_letter(topics: CommitLogTopics, since_ms: int) -> int | None:
    """Log position of the oldest dead letter of any group stored since this time. None: there is none."""
    positions = []
    for topic in topics:
        if topic.name.name.startswith(dead_letter_topic("")):
            for stream in topic.streams():
                entry = next(stream.entries(stream.find_time(since_ms), 1), None)
                if entry is not None:
                    positions.append(entry.position)
    return min(positions, default=None)
