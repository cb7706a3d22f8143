"""The verbs on topics whose streams share one log, and on the groups that read them. Each asks whether the caller may,
then delegates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from trimq.core.api.commit_log_groups import CommitLogGroupAdmin
from trimq.core.commit_log.config_sync import ConfigSync
from trimq.core.commit_log.dead_letters import CommitLogDeadLetters
from trimq.core.commit_log.groups import CommitLogGroup, CommitLogGroups
from trimq.core.commit_log.kv_config import KvConfig
from trimq.core.commit_log.retention import CommitLogRetention
from trimq.core.commit_log.retry_topics import find_retry_topics
from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition, CommitLogTopics
from trimq.core.metadata.cursors import Cursor, Cursors
from trimq.core.pop.pop import PopService
from trimq.core.security.access import BROKER, Access, Action, Resource, ResourceKind
from trimq.core.write_gate import WriteGate
from trimq.errors import ColdRead, MessageTooLong, PropertiesTooLong
from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, QueueTarget
from trimq.formats.rocketmq_unit.unit import LONGEST_PROPERTIES, Unit, UnitDraft, draft_size
from trimq.model import Caller, StreamId, TopicName
from trimq.offload import Offload
from trimq.storage.commit_log.log import AppendedUnit, AppendedUnits
from trimq.storage.commit_log.lookup import find_key, search_key, units_between
from trimq.storage.commit_log.store import CommitStore
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import Space


class OutgoingMessage(NamedTuple):
    """A message for a stream; `code` is what readers compare before they look at it."""

    topic: CommitLogTopic
    stream: MessageQueue
    draft: UnitDraft
    code: int


AppendTargets = Collection[tuple[CommitLogTopic, MessageQueue, QueueTarget]]
"""Where messages go."""


class CommitLogApi:
    def __init__(
        self,
        topics: CommitLogTopics,
        store: CommitStore,
        cursors: Cursors,
        groups: CommitLogGroups,
        kv_config: KvConfig,
        config: ConfigSync,
        access: Access,
        gate: WriteGate,
        message_bytes: int,
        pop_service: PopService,
        failures: CommitLogDeadLetters,
        group_admin: CommitLogGroupAdmin,
        on_durable: Callable[[Ticket, Callable[[Ticket], object]], None],
        retention: CommitLogRetention,
        offload: Offload,
    ) -> None:
        self._topics = topics
        self._store = store
        self._cursors = cursors
        self._groups = groups
        self._kv_config = kv_config
        self.config = config
        self._access = access
        self._gate = gate
        self.message_bytes = message_bytes
        self.pop_service = pop_service
        """What groups take out message by message; it asks for rights itself."""

        self.failures = failures
        """What was given up is noted there."""
        self.group_admin = group_admin
        """The groups as operators see them; it asks for rights itself."""

        self.on_durable = on_durable
        """Call back once the ticket's pass is durable, or refused: before any reply that waits for it is sent. A
        callback that fails is told of in the log and harms nobody else."""
        self.retention = retention
        """Whoever lets messages wait in the log says so there."""
        self._offload = offload

        self._start_listeners: list[Callable[[], None]] = []
        self._stop_listeners: list[Callable[[], None]] = []
        self._delete_listeners: list[Callable[[CommitLogTopic], None]] = []

    def on_start(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the broker takes writes: what appends by itself may begin."""
        self._start_listeners.append(listener)

    def on_stop(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the broker takes no more writes: what appends by itself must end."""
        self._stop_listeners.append(listener)

    def on_delete(self, listener: Callable[[CommitLogTopic], None]) -> None:
        """Call `listener` when a topic goes, whoever wanted that."""
        self._delete_listeners.append(listener)

    def start(self) -> None:
        for listener in self._start_listeners:
            listener()

    def stop(self) -> None:
        self.pop_service.stop()
        for listener in self._stop_listeners:
            listener()

    # -- topics

    @property
    def revision(self) -> int:
        """Another number whenever a topic or a right has changed."""
        return self._topics.revision + self._access.revision

    def topics(self, caller: Caller) -> list[CommitLogTopic]:
        """Those of the caller's namespace that the caller may see."""
        return [
            topic
            for topic in self._topics
            if topic.name.namespace == caller.namespace
            and self._access.allowed(caller, Action.DESCRIBE, topic.resource)
        ]

    def topic(self, caller: Caller, name: str) -> CommitLogTopic:
        full = TopicName(caller.namespace, name)
        self._access.require_topic(caller, Action.DESCRIBE, full)
        return self._topics.get(full)

    def find(self, caller: Caller, name: str) -> CommitLogTopic | None:
        """The topic, unless there is none or it is kept in another home."""
        full = TopicName(caller.namespace, name)
        self._access.require_topic(caller, Action.DESCRIBE, full)
        return self._topics.find(full)

    def check_name(self, name: str) -> None:
        """Refuse a name that no topic can have."""
        self._topics.check_name(name)

    def create(self, caller: Caller, definition: CommitLogTopicDefinition) -> tuple[CommitLogTopic, Ticket]:
        self._access.require(caller, Action.CONFIGURE, _resource(TopicName(definition.namespace, definition.name)))
        self._gate.require_writable()
        return self._topics.create(definition)

    def prepare(self, definition: CommitLogTopicDefinition) -> None:
        """See that a topic is there that the broker itself needs, before anything is served."""
        self._topics.prepare(definition)

    def change(self, caller: Caller, topic: CommitLogTopic, definition: CommitLogTopicDefinition) -> Ticket:
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        return self._topics.change(topic, definition)

    def enable_ttl(self, topic: CommitLogTopic) -> None:
        """Before a message that is of use for a time only is appended to it."""
        self._topics.enable_ttl(topic)

    def delete(self, caller: Caller, topic: CommitLogTopic) -> Ticket:
        """What came back of it goes with it: it must not be given to the readers of another topic of that name."""
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        for own in find_retry_topics(self._topics, self._cursors, topic):
            self._topics.delete(own)
        ticket = self._topics.delete(topic)
        for listener in self._delete_listeners:
            listener(topic)
        return ticket

    # -- messages

    def append(
        self,
        caller: Caller,
        topic: CommitLogTopic,
        stream: MessageQueue,
        draft: UnitDraft,
        code: int,
        store_host: bytes,
    ) -> AppendedUnit:
        """Give a message its place. Pending until its pass is durable. `topic` is the one that it is for, and that the
        caller must be allowed to write; until then it may wait in a stream of another."""
        self._access.require(caller, Action.WRITE, topic.resource)
        self._gate.require_writable()
        size = len(draft.body)
        if size > self.message_bytes:
            raise MessageTooLong(size, self.message_bytes)
        self._gate.count(size)
        return stream.append(draft, code, store_host)

    def append_all(self, caller: Caller, messages: Sequence[OutgoingMessage], store_host: bytes) -> list[AppendedUnit]:
        """Give several messages their places: all of them, or none, and all in one pass."""
        for message in messages:
            self._access.require(caller, Action.WRITE, message.topic.resource)
        self._gate.require_writable()
        sizes = [len(message.draft.body) for message in messages]
        if max(sizes, default=0) > self.message_bytes:
            raise MessageTooLong(max(sizes), self.message_bytes)
        longest = max((len(message.draft.properties) for message in messages), default=0)
        if longest > LONGEST_PROPERTIES:
            raise PropertiesTooLong(longest, LONGEST_PROPERTIES)
        self._store.log.ensure_room(sum(draft_size(message.draft, store_host) for message in messages))
        for size in sizes:
            self._gate.count(size)
        return [message.stream.append(message.draft, message.code, store_host) for message in messages]

    def append_batch(
        self,
        caller: Caller,
        targets: AppendTargets,
        messages: Sequence[BatchMessage],
        keys: Sequence[str],
        more_keys: Mapping[int, str],
        store_host: bytes,
    ) -> AppendedUnits:
        """Give several messages, which go these ways, their places, in one pass, where each of them alone could be
        given one. Each has a unique key; some, by their numbers, have more."""
        if self._access.is_enforced:
            for topic, _, _ in targets:
                self._access.require(caller, Action.WRITE, topic.resource)
        self._gate.require_writable()
        sizes = [len(message[1]) for message in messages]
        if max(sizes) > self.message_bytes:
            raise MessageTooLong(max(sizes), self.message_bytes)
        queues = [stream.queue for _, stream, _ in targets]
        placed = self._store.append_batch(queues, messages, keys, more_keys, store_host)
        count = len(placed.places)
        self._gate.count_all(count, sum(sizes) if count == len(sizes) else sum(sizes[:count]))
        return placed

    def may_write(self, caller: Caller, topic: CommitLogTopic) -> bool:
        return self._access.allowed(caller, Action.WRITE, topic.resource)

    def readable(self, caller: Caller, topic: CommitLogTopic, number: int) -> MessageQueue:
        """The stream, for a caller who may read it."""
        self._access.require(caller, Action.READ, topic.resource)
        return topic.stream(number)

    def warm(self, cold: ColdRead, done: Callable[[BaseException | None], None]) -> None:
        """Load cold data off the event loop, then call back with the disk's error, if there was one."""
        self._offload(cold.warm, lambda _, error: done(error))

    def unit_at(self, caller: Caller, position: int) -> Unit:
        """The message that stands at this position of the log. OffsetOutOfRange: none does."""
        unit = self._store.log.unit_at(position)
        name = TopicName(caller.namespace, unit.topic.decode("utf-8", "replace"))
        self._access.require(caller, Action.READ, _resource(name))
        return unit

    def log_ends(self) -> tuple[int, int, int]:
        """Positions: of the first byte that is kept, behind the last that is durable, and behind the last."""
        log = self._store.log
        return log.start, log.durable_end, log.end

    @property
    def last_store_ms(self) -> int:
        """When the last message was stored; none was at a later time."""
        return self._store.log.last_store_ms

    def units_from(self, caller: Caller, position: int) -> Iterator[Unit]:
        """The messages of all topics in the order in which they stand in the log, up to its end as it is now.
        OffsetOutOfRange: one cannot be read."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return units_between(self._store.log, position, self._store.log.durable_end)

    def space(self) -> Space:
        """Of the disk. Asks it."""
        return self._gate.space()

    def expire(self, caller: Caller, now_ms: int) -> Ticket | None:
        """Let go now what has been kept long enough. None: nothing has."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._store.expire(now_ms, self.retention.oldest_held_position(now_ms))

    def set_retention(self, caller: Caller, retention_ms: int, hours: str) -> None:
        """From now on messages are kept for so long, and go in these hours."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        self.retention.retention_ms = retention_ms
        self.retention.set_hours(hours)
        self._store.settings = replace(self._store.settings, retention_ms=retention_ms)

    def drop_strays(self, caller: Caller) -> None:
        """Let go what is left of topics that are no more."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        self._topics.drop_strays()

    def find_key(self, caller: Caller, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[Unit]:
        """Messages of a topic that have this key and were stored between these times, newest first."""
        self._access.require(caller, Action.READ, _resource(TopicName(caller.namespace, topic)))
        return find_key(self._store.log, self._store.keys, topic, key, begin_ms, end_ms)

    def search_key(self, caller: Caller, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[Unit | None]:
        """As `find_key`. None: some were looked at; whoever keeps others waiting may go on later."""
        self._access.require(caller, Action.READ, _resource(TopicName(caller.namespace, topic)))
        return search_key(self._store.log, self._store.keys, topic, key, begin_ms, end_ms)

    # -- groups

    def group(self, caller: Caller, name: str) -> CommitLogGroup | None:
        return self._groups.find(name)

    def groups(self, caller: Caller) -> list[CommitLogGroup]:
        return list(self._groups)

    def define_group(self, caller: Caller, group: CommitLogGroup) -> Ticket:
        """Make a group, or change it."""
        self._access.require(caller, Action.READ, Resource(ResourceKind.GROUP, caller.namespace, group.name))
        return self._groups.define(group)

    def delete_group(self, caller: Caller, name: str, forgets_cursors: bool) -> Ticket | None:
        """None: nothing had to change."""
        self._access.require(caller, Action.CONFIGURE, Resource(ResourceKind.GROUP, caller.namespace, name))
        forgotten = self._cursors.delete(name) if forgets_cursors else None
        self.pop_service.forget_group(name)
        return self._groups.delete(name) or forgotten

    def require_administrator(self, caller: Caller) -> None:
        self._access.require(caller, Action.ADMINISTER, BROKER)

    # -- notes

    def kv_config(self, caller: Caller, namespace: str) -> Mapping[str, str] | None:
        """The small texts that clients have left here. None: the namespace never had any."""
        return self._kv_config.all(namespace)

    def put_kv_config(self, caller: Caller, namespace: str, key: str, text: str) -> Ticket:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._kv_config.put(namespace, key, text)

    def delete_kv_config(self, caller: Caller, namespace: str, key: str) -> Ticket | None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._kv_config.delete(namespace, key)

    # -- cursors

    def commit(
        self, caller: Caller, group: str, topic: CommitLogTopic, number: int, offset: int, metadata: str = ""
    ) -> Ticket:
        """Remember that `group` has read a stream up to `offset`, and what it says of that."""
        self._access.require(caller, Action.READ, topic.resource)
        stream = StreamId(topic.id, number)
        self.pop_service.cursor_moved(group, stream, offset)
        return self._cursors.commit(group, stream, offset, metadata)

    def cursor(self, caller: Caller, group: str, topic: CommitLogTopic, number: int) -> Cursor | None:
        self._access.require(caller, Action.DESCRIBE, topic.resource)
        return self._cursors.fetch(group, StreamId(topic.id, number))

    def cursor_groups(self, caller: Caller) -> list[str]:
        """The groups that have a cursor."""
        return self._cursors.groups()

    def cursors(self, caller: Caller, group: str) -> Mapping[StreamId, Cursor]:
        return self._cursors.all(group)


def _resource(name: TopicName) -> Resource:
    return Resource(ResourceKind.TOPIC, name.namespace, name.name)
