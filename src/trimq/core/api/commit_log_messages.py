"""Verbs on messages of the commit log, reached as `commit_log.messages`: append, and read a queue. Each checks the
caller's rights, then delegates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from trimq.core.api.partitions import S, TopicOfStreams
from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.security.access import Access, Action, Resource, ResourceKind
from trimq.core.write_gate import WriteGate
from trimq.errors import ColdRead, MessageTooLong, PropertiesTooLong
from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, QueueTarget, batch_size
from trimq.formats.rocketmq_unit.unit import LONGEST_PROPERTIES, UnitDraft, draft_size
from trimq.model import Caller, TopicName
from trimq.offload import Offload
from trimq.storage.commit_log.log import AppendedUnit, AppendedUnits
from trimq.storage.commit_log.store import CommitStore
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.guards.slow_disk import SlowDiskGuard

OnDurable = Callable[[Ticket, Callable[[Ticket], object]], None]
"""Calls back once the ticket's pass is durable or refused, before any reply that waits for the pass is sent. A failing
callback is logged and does not affect the others."""


class OutgoingMessage(NamedTuple):
    """Message with its destination; `code` is the value in the consume queue that readers filter by (tag hash or
    delivery time)."""

    topic: CommitLogTopic
    stream: MessageQueue
    draft: UnitDraft
    code: int


AppendTargets = Collection[tuple[CommitLogTopic, MessageQueue, QueueTarget]]
"""Destinations of a batch."""


class CommitLogMessageApi:
    """`message_bytes` limits the size of a body; the front-end may change it at run time."""

    def __init__(
        self,
        store: CommitStore,
        access: Access,
        gate: WriteGate,
        stalls: SlowDiskGuard,
        message_bytes: int,
        on_durable: OnDurable,
        offload: Offload,
    ) -> None:
        self._store = store
        self._access = access
        self._gate = gate
        self._stalls = stalls
        self.message_bytes = message_bytes
        self.on_durable = on_durable
        self._offload = offload

    def append(
        self,
        caller: Caller,
        topic: CommitLogTopic,
        stream: MessageQueue,
        draft: UnitDraft,
        code: int,
        store_host: bytes,
    ) -> AppendedUnit:
        """Appends a message. Pending until its pass is durable. `topic` is the message's destination, which the caller
        must be allowed to write; `stream` may belong to another topic in which the message waits until its delivery."""
        self._access.require(caller, Action.WRITE, topic.resource)
        self._gate.require_writable()
        self._stalls.check()
        size = len(draft.body)
        if size > self.message_bytes:
            raise MessageTooLong(size, self.message_bytes)
        self._gate.count(size)
        return stream.append(draft, code, store_host)

    def append_all(self, caller: Caller, messages: Sequence[OutgoingMessage], store_host: bytes) -> list[AppendedUnit]:
        """Appends several messages in one pass: all of them or none."""
        for message in messages:
            self._access.require(caller, Action.WRITE, message.topic.resource)
        self._gate.require_writable()
        self._stalls.check()
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
        """Appends a batch to these targets in one pass. Each message must be one that `append` would accept. Each has a
        unique key; `more_keys` has further keys by index in the batch."""
        if self._access.is_enforced:
            for topic, _, _ in targets:
                self._access.require(caller, Action.WRITE, topic.resource)
        self._gate.require_writable()
        self._stalls.check()
        sizes = [len(message[1]) for message in messages]
        if max(sizes) > self.message_bytes:
            raise MessageTooLong(max(sizes), self.message_bytes)
        queues = [stream.queue for _, stream, _ in targets]
        placed = self._store.append_batch(queues, messages, keys, more_keys, store_host)
        count = len(placed.places)
        self._gate.count_all(count, sum(sizes) if count == len(sizes) else sum(sizes[:count]))
        return placed

    def append_whole_batch(
        self,
        caller: Caller,
        topic: CommitLogTopic,
        stream: MessageQueue,
        messages: Sequence[BatchMessage],
        keys: Sequence[str],
        more_keys: Mapping[int, str],
        store_host: bytes,
    ) -> tuple[AppendedUnits, int]:
        """Like `append_batch`, to one queue: all of the messages or none. Returns also their size in the log."""
        self._access.require(caller, Action.WRITE, topic.resource)
        self._gate.require_writable()
        self._stalls.check()
        sizes = [len(message[1]) for message in messages]
        if max(sizes) > self.message_bytes:
            raise MessageTooLong(max(sizes), self.message_bytes)
        size = batch_size(messages)
        self._store.log.ensure_room(size)
        self._gate.count_all(len(sizes), sum(sizes))
        return self._store.append_batch((stream.queue,), messages, keys, more_keys, store_host), size

    def may_write(self, caller: Caller, topic: CommitLogTopic) -> bool:
        return self._access.allowed(caller, Action.WRITE, topic.resource)

    def require_write(self, caller: Caller, topic: str) -> None:
        """For decisions about messages that are already stored: the topic may be deleted."""
        self._access.require_topic(caller, Action.WRITE, TopicName(caller.namespace, topic))

    def may_write_to(self, caller: Caller, topic: str) -> bool:
        return self._access.allowed(caller, Action.WRITE, Resource(ResourceKind.TOPIC, caller.namespace, topic))

    def readable(self, caller: Caller, topic: TopicOfStreams[S], number: int) -> S:
        """Returns the message queue if the caller may read it."""
        self._access.require(caller, Action.READ, topic.resource)
        return topic.stream(number)

    def warm(self, cold: ColdRead, done: Callable[[BaseException | None], None]) -> None:
        """Reads cold data into memory off the event loop; passes the error of the disk, if any, to `done`."""
        self._offload(cold.warm, lambda _, error: done(error))
