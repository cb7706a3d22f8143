"""Topics and their streams: create, delete, grow, describe. Definitions are stored in the catalogue, records in the
partition store."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from uuid import UUID

import msgspec

from trimq.config import Settings
from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.catalogue import Definition as Stored
from trimq.core.metadata.names import NameRegistry
from trimq.core.partitions.dynamic_settings import DynamicSettings
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topic import Topic, TopicDefinition
from trimq.core.partitions.topic_creation import StagedTopic, StagedTopicOpener
from trimq.core.partitions.topic_settings import (
    TopicSettings,
    check_sync,
    check_topic_settings,
    log_settings,
    message_limit,
    stream_rules,
)
from trimq.errors import (
    Busy,
    InvalidCount,
    InvalidName,
    InvalidSetting,
    LimitReached,
    NameTooLong,
    OtherHome,
    Refusal,
    StartupError,
    TopicExists,
    UnknownTopic,
)
from trimq.model import DEFAULT_NAMESPACE, Layout, StreamId, TopicName
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.guards.damages import DamageReports
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.store import PartitionStore

__all__ = ["Topic", "TopicDefinition", "Topics"]

log = logging.getLogger(__name__)

_KIND = "topic"
# Stream folders deleted in one loop turn, so that other work does not wait.
_REMOVED_PER_TURN = 50

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class Topics:
    def __init__(
        self,
        catalogue: Catalogue,
        names: NameRegistry,
        store: PartitionStore,
        passes: Passes,
        settings: Settings,
        now_ms: Callable[[], int],
        new_id: Callable[[], UUID],
        damages: DamageReports,
        dynamic: DynamicSettings,
    ) -> None:
        self._catalogue = catalogue
        self._names = names
        self._damages = damages
        self._dynamic = dynamic
        self._store = store
        self._passes = passes
        self._settings = settings
        self._now_ms = now_ms
        self._new_id = new_id
        self._by_name: dict[TopicName, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._stream_count = 0
        self._counted: dict[UUID, int] = {}  # streams of each topic, as counted
        self._deleting: dict[UUID, Topic] = {}
        self._staged = StagedTopicOpener(partial(self._open_streams, is_new=True), self._discard, passes.call_soon)
        self._refused: dict[UUID, TopicName] = {}  # topics with new folders that are not deleted yet
        self._deleted_listeners: list[Callable[[UUID], object]] = []
        names.add(Layout.PARTITION_LOG, self._by_name.__contains__)
        catalogue.watch(_KIND, self._definition_changed)
        dynamic.on_changed(self._defaults_changed)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: TopicName) -> Topic | None:
        return self._by_name.get(name)

    def get(self, name: TopicName, layout: Layout | None = None) -> Topic:
        """Returns the topic. Raises UnknownTopic, or OtherHome if its layout is not `layout`, the only one that the
        caller can serve."""
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopic(str(name))
        if layout is not None and topic.layout is not layout:
            raise OtherHome(str(name), topic.layout.value)
        return topic

    def find_id(self, id: UUID) -> Topic | None:
        return self._by_id.get(id)

    def by_id(self, id: UUID) -> Topic:
        topic = self._by_id.get(id)
        if topic is None:
            raise UnknownTopic(str(id))
        return topic

    def streams(self) -> Iterator[Stream]:
        """Streams of every topic."""
        return (stream for topic in self for stream in topic.streams)

    def find_stream(self, id: StreamId) -> Stream | None:
        topic = self._by_id.get(id.topic)
        return topic.streams[id.number] if topic is not None and id.number < len(topic.streams) else None

    # -- changes: visible at once, acknowledged when the ticket's pass is durable, rolled back when it is refused

    def create(self, name: TopicName, layout: Layout, streams: int, settings: TopicSettings) -> tuple[Topic, Ticket]:
        id = self.check_new(name, streams, settings)
        draft = self._staged.take(name)
        topic = self._new_topic(id, name, layout, settings) if draft is None else draft.topic
        new_streams = self._add_streams(topic, streams) if draft is None else draft.new_streams
        ticket = self._catalogue.put(_KIND, str(topic.id), msgspec.to_builtins(topic.definition()), None)
        self._remember(topic)
        self._confirm_streams(topic, new_streams, ticket)
        return topic, ticket

    def _new_topic(self, id: UUID, name: TopicName, layout: Layout, settings: TopicSettings) -> Topic:
        return Topic(id, TopicDefinition(name.namespace, name.name, layout.value, 0, self._now_ms(), dict(settings)), 0)

    def prepare(self, wanted: Iterable[tuple[TopicName, int, TopicSettings]], done: Callable[[], None]) -> None:
        """Opens the many streams of topics that are about to be created, a few in each loop turn, then calls `done`, in
        which `create` finds them. Skips invalid topics: `create` refuses them. Waits first if another request is
        creating one of them."""
        wanted = list(wanted)
        if self._staged.wait_until_done([name for name, _, _ in wanted], partial(self.prepare, wanted, done)):
            return
        drafts = []
        for name, streams, settings in wanted:
            try:
                id = self.check_new(name, streams, settings)
            except Refusal:
                continue
            drafts.append(StagedTopic(self._new_topic(id, name, Layout.PARTITION_LOG, settings), streams))
        self._staged.open(drafts, done)

    def prepare_growth(self, wanted: Iterable[tuple[Topic, int]], done: Callable[[], None]) -> None:
        """Same as `prepare`, for `grow`."""
        self._staged.open([StagedTopic.for_growth(topic, streams) for topic, streams in wanted], done)

    def check_new(self, name: TopicName, streams: int, settings: TopicSettings) -> UUID:
        """Raises the refusal that `create` would raise. Returns the id for the topic."""
        self.check_name(name.name)
        if name.namespace != DEFAULT_NAMESPACE:
            raise InvalidName(str(name), "topics on partition logs exist in the default namespace only")
        if not 1 <= streams <= self._settings.limits.streams_per_topic:
            raise InvalidCount(f"a topic has 1 to {self._settings.limits.streams_per_topic} streams, not {streams}")
        self.check_settings(settings)
        if name in self._by_name:
            raise TopicExists(str(name))
        self.check_layout(name)
        if any(topic.name == name for topic in self._deleting.values()):
            raise Busy(f"topic {name} is being deleted")
        if name in self._refused.values():
            raise Busy(f"topic {name} is being cleaned up after a failed creation")
        if self._staged.blocks_creation(name, streams, settings):
            raise Busy(f"topic {name} is being created")
        limit = self._settings.limits.topics
        if len(self._by_name) >= limit:
            raise LimitReached("topics", limit, "limits.topics")
        self._require_room_for(streams)
        return self._new_id()

    def _require_room_for(self, streams: int) -> None:
        limit = self._settings.limits.streams
        if self._stream_count + streams > limit:
            raise LimitReached("streams", limit, "limits.streams")

    def check_layout(self, name: TopicName) -> None:
        """Raises OtherHome if a topic or queue of another layout has this name."""
        if (layout := self._names.find(name, other_than=Layout.PARTITION_LOG)) is not None:
            raise OtherHome(str(name), layout.value)

    def check_name(self, name: str) -> None:
        limit = self._settings.limits.topic_name_length
        if len(name) > limit:
            raise NameTooLong(len(name), limit)
        if not _LEGAL.fullmatch(name):
            raise InvalidName(name, "a topic name may have only letters, digits, '.', '_' and '-'")
        if name in (".", ".."):
            raise InvalidName(name, "it is reserved by the file system")

    def grow(self, topic: Topic, streams: int) -> Ticket:
        """Adds streams. Existing streams keep their records and numbers."""
        self._require_known(topic)
        self.check_growth(topic, streams)
        draft = self._staged.take(topic.name)
        new_streams = self._add_streams(topic, streams) if draft is None else self._take_streams(topic, draft)
        self._count_streams(topic)
        ticket = self._save(topic, topic.definition())
        self._confirm_streams(topic, new_streams, ticket)
        return ticket

    def check_growth(self, topic: Topic, streams: int) -> None:
        """Raises the refusal that `grow` would raise."""
        if streams <= len(topic.streams):
            raise InvalidCount(f"topic {topic.name} has {len(topic.streams)} streams and cannot grow to {streams}")
        if streams > self._settings.limits.streams_per_topic:
            raise InvalidCount(f"a topic has at most {self._settings.limits.streams_per_topic} streams")
        if topic.id in self._refused:
            raise Busy(f"topic {topic.name} is being cleaned up after failing to grow")
        self._require_room_for(streams - len(topic.streams))
        if self._staged.blocks_growth(topic, streams):
            raise Busy(f"topic {topic.name} is being grown")

    def _add_streams(self, topic: Topic, count: int) -> list[Stream]:
        """Opens all of the new streams, or none of them and raises a refusal."""
        before = len(topic.streams)
        try:
            self._open_streams(topic, count, is_new=True)
        except Refusal:
            new_streams = topic.streams[before:]
            del topic.streams[before:]
            self._store.remove(topic.id, [stream.log for stream in new_streams])
            raise
        return topic.streams[before:]

    def _take_streams(self, topic: Topic, draft: StagedTopic) -> list[Stream]:
        topic.streams += draft.new_streams
        self._apply_settings(topic, topic.settings)  # they may have changed since the streams were opened
        return draft.new_streams

    def _discard(self, draft: StagedTopic) -> None:
        """Removes the streams of a staged topic that was not taken."""
        self._store.remove(draft.topic.id, [stream.log for stream in draft.new_streams])

    def _confirm_streams(self, topic: Topic, new_streams: list[Stream], ticket: Ticket) -> None:
        """Keeps the new streams if the ticket's pass is durable, removes them if it is refused."""
        logs = [stream.log for stream in new_streams]
        self._passes.on_durable(ticket, lambda done: self._take_back(topic, logs) if done.refusal else None)
        self._passes.on_synced(
            ticket, lambda done: None if done.refusal else self._store.write_topic_ids(topic.id, logs)
        )

    def _take_back(self, topic: Topic, logs: list[PartitionLog]) -> None:
        self._refused.pop(topic.id, None)
        self._store.remove(topic.id, logs)

    def _require_known(self, topic: Topic) -> None:
        """Raises UnknownTopic if the topic was deleted meanwhile."""
        if self._by_id.get(topic.id) is not topic:
            raise UnknownTopic(str(topic.name))

    def _definition_changed(self, key: str, found: Stored | None) -> None:
        """Rolls a topic back to its definition in the catalogue when a pass was refused. This happens at once:
        otherwise appends to a topic that is unknown after a restart would be acknowledged. Ignores our own changes,
        which are newer than the known version."""
        id = UUID(key)
        topic = self._by_id.get(id) or self._deleting.get(id)
        if topic is None or (found is not None and found.version >= topic.version):
            return
        self._deleting.pop(id, None)
        if found is None:
            self._refused[id] = topic.name
            self._forget(topic)
            return
        definition = msgspec.convert(found.value, TopicDefinition)
        if definition.streams < len(topic.streams):
            self._refused[id] = topic.name
            del topic.streams[definition.streams :]
        self._apply_settings(topic, definition.settings)
        self._remember(topic)

    def check_settings(self, settings: TopicSettings) -> None:
        """Raises the refusal that `change_settings` would raise."""
        check_topic_settings(self._with_defaults(settings), self._settings)

    def change_settings(self, topic: Topic, settings: TopicSettings) -> Ticket:
        self._require_known(topic)
        self.check_settings(settings)
        self._apply_settings(topic, settings)
        return self._save(topic, topic.definition())

    def _apply_settings(self, topic: Topic, settings: TopicSettings) -> None:
        topic.settings = dict(settings)
        applied = self._with_defaults(settings)
        for stream in topic.streams:
            stream.log.change_settings(log_settings(applied, self._settings))
            stream.message_bytes = message_limit(applied, self._settings)
            stream.rules = stream_rules(applied)

    def _with_defaults(self, settings: TopicSettings) -> TopicSettings:
        defaults = self._dynamic.topic_defaults
        return {**defaults, **settings} if defaults else settings

    def _defaults_changed(self) -> None:
        for topic in self:
            self._apply_settings(topic, topic.settings)

    def delete(self, topic: Topic) -> Ticket:
        """Hides the topic at once. Its files are deleted, and its name is free, when the deletion is on disk."""
        self._require_known(topic)
        marked = msgspec.structs.replace(topic.definition(), deleted=True)
        # The mark survives a crash during the removal; the next start then finishes it.
        ticket = self._save(topic, marked)
        self._forget(topic)
        self._deleting[topic.id] = topic
        self._passes.on_synced(ticket, lambda done: self._finish_delete(topic, done))
        return ticket

    def _finish_delete(self, topic: Topic, ticket: Ticket) -> None:
        if ticket.refusal is None:
            for stream in topic.streams:
                stream.wake()
            self._remove_some(topic, deque(stream.log for stream in topic.streams), is_whole=True)

    def _remove_some(self, topic: Topic, left: deque[PartitionLog], is_whole: bool) -> None:
        some = [left.popleft() for _ in range(min(_REMOVED_PER_TURN, len(left)))]
        removed = self._store.remove(topic.id, some)
        is_whole = is_whole and removed is not None
        if left:
            self._passes.call_soon(partial(self._remove_some, topic, left, is_whole))
            return
        del self._deleting[topic.id]
        if removed is not None and is_whole:
            self._passes.on_synced(removed, lambda done: self._unmark([topic.id]))
        for listener in self._deleted_listeners:
            listener(topic.id)

    def _unmark(self, ids: Iterable[UUID]) -> None:
        """Deletes the definitions of deleted topics: their folders cannot reappear, so the mark is no longer needed."""
        for id in ids:
            found = self._catalogue.get(_KIND, str(id))
            if found is not None:
                self._catalogue.delete(_KIND, str(id), found.version)

    def _save(self, topic: Topic, definition: TopicDefinition) -> Ticket:
        ticket = self._catalogue.put(_KIND, str(topic.id), msgspec.to_builtins(definition), topic.version)
        self._reread_version(topic)
        return ticket

    def _reread_version(self, topic: Topic) -> None:
        found = self._catalogue.get(_KIND, str(topic.id))
        if found is not None:
            topic.version = found.version

    def on_deleted(self, listener: Callable[[UUID], object]) -> None:
        """Calls `listener` when a topic is deleted for good, so that others delete their data about it."""
        self._deleted_listeners.append(listener)

    # -- opening

    def open(self) -> None:
        """Finishes interrupted deletions, opens every topic of the catalogue, and adopts partition folders copied from
        elsewhere."""
        definitions = {
            UUID(key): (msgspec.convert(found.value, TopicDefinition), found.version)
            for key, found in self._catalogue.all(_KIND)
        }
        deleted = [id for id, (definition, _) in definitions.items() if definition.deleted]
        removed = self._store.finish_removals(deleted)
        if removed is not None:
            self._passes.on_synced(removed, lambda done: self._unmark(deleted))
        for id, (definition, version) in definitions.items():
            if not definition.deleted:
                topic = Topic(id, definition, version)
                self._require_sync(topic)
                self._open_streams(topic, definition.streams)
                self._remember(topic)
        self._adopt()

    def _require_sync(self, topic: Topic) -> None:
        try:
            check_sync(topic.settings, self._settings)
        except InvalidSetting as refusal:
            raise StartupError(f"topic {topic.name} cannot be opened: {refusal}") from None

    def _adopt(self) -> None:
        known = {topic.name.name for topic in self}
        for name, id, streams in self._store.unknown_topics(known, quarantines_unknown=self._catalogue.was_truncated):
            try:
                self.check_new(TopicName(DEFAULT_NAMESPACE, name), streams, {})
            except Refusal as refusal:
                log.warning("topic %s: partition folders not adopted (%s)", name, refusal)
                continue
            log.info("topic %s: adopting %d partition folders", name, streams)
            definition = TopicDefinition(DEFAULT_NAMESPACE, name, Layout.PARTITION_LOG.value, 0, self._now_ms())
            is_free = id not in self._by_id and self._catalogue.get(_KIND, str(id)) is None
            topic = Topic(id if is_free else self._new_id(), definition, 0)
            self._open_streams(topic, streams, is_adopted=True)
            self._remember(topic)
            self._define_adopted(topic)

    def _define_adopted(self, topic: Topic) -> None:
        """Defines an adopted topic only when all of its logs have a checkpoint on disk: after an earlier crash its
        folders must be adopted again."""

        def define() -> None:
            if self._by_id.get(topic.id) is topic and not any(stream.log.needs_checkpoint for stream in topic.streams):
                self._catalogue.put(_KIND, str(topic.id), msgspec.to_builtins(topic.definition()), None)
                self._reread_version(topic)

        for stream in topic.streams:
            stream.log.on_first_checkpoint = define
        define()

    def _open_streams(self, topic: Topic, count: int, *, is_new: bool = False, is_adopted: bool = False) -> None:
        applied = self._with_defaults(topic.settings)
        limits = log_settings(applied, self._settings)
        message_bytes, rules = message_limit(applied, self._settings), stream_rules(applied)
        for index in range(len(topic.streams), count):
            opened = self._store.open(topic.name.name, index, topic.id, limits, is_new, is_adopted)
            id = StreamId(topic.id, index)
            topic.streams.append(Stream(id, str(topic.name), opened, message_bytes, rules, self._damages))

    def _count_streams(self, topic: Topic) -> None:
        self._stream_count += len(topic.streams) - self._counted.get(topic.id, 0)
        self._counted[topic.id] = len(topic.streams)

    def _forget(self, topic: Topic) -> None:
        self._stream_count -= self._counted.pop(topic.id, 0)
        self._by_name.pop(topic.name, None)
        self._by_id.pop(topic.id, None)

    def _remember(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self._count_streams(topic)
        self._reread_version(topic)
