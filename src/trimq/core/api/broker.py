"""The verbs that front-ends may call. Each asks whether the caller may, then delegates; there is no logic here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from trimq.config import Settings
from trimq.core.api.groups import GroupApi
from trimq.core.api.queues import QueueApi
from trimq.core.api.transactions import TransactionApi
from trimq.core.api.users import UserApi
from trimq.core.metadata.cluster import Cluster
from trimq.core.metadata.cursors import Cursor, Cursors
from trimq.core.partitions.append import PartitionAppender
from trimq.core.partitions.stream import Appended, Stream
from trimq.core.partitions.topic_settings import TopicSettings
from trimq.core.partitions.topics import Topic, Topics
from trimq.core.security.access import BROKER, Access, Action, Resource, ResourceKind
from trimq.core.security.quotas import Direction, Quota, QuotaEntity, Quotas
from trimq.core.security.scram_credentials import ScramCredential, ScramCredentials
from trimq.core.write_gate import WriteGate
from trimq.errors import ColdRead
from trimq.formats.kafka_batch.header import BatchHeader
from trimq.model import Buffer, Caller, Layout, Record, StreamId, TopicName
from trimq.offload import Offload
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import Space


class Broker:
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        cursors: Cursors,
        cluster: Cluster,
        access: Access,
        gate: WriteGate,
        appender: PartitionAppender,
        quotas: Quotas,
        credentials: ScramCredentials,
        group_api: GroupApi,
        transactions: TransactionApi,
        offload: Offload,
        queue_api: QueueApi,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.group_api = group_api
        self.transactions = transactions
        self.queue_api = queue_api
        self.users = UserApi(access, offload)
        self._topics = topics
        self._cursors = cursors
        self._access = access
        self._gate = gate
        self._appender = appender
        self._quotas = quotas
        self._credentials = credentials
        self._offload = offload

    # -- topics

    def topics(self, caller: Caller, home: Layout | None = None) -> list[Topic]:
        """Those of the caller's namespace, and of one home if asked, that the caller may see."""
        return [
            topic
            for topic in self._topics
            if topic.name.namespace == caller.namespace
            and (home is None or topic.home is home)
            and self._access.allowed(caller, Action.DESCRIBE, topic.resource)
        ]

    def topic(self, caller: Caller, name: str, home: Layout | None = None) -> Topic:
        full = TopicName(caller.namespace, name)
        self._access.require_topic(caller, Action.DESCRIBE, full)
        return self._topics.get(full, home)

    def topic_by_id(self, caller: Caller, id: UUID) -> Topic:
        topic = self._topics.by_id(id)
        self._access.require(caller, Action.DESCRIBE, topic.resource)
        return topic

    def check_name(self, name: str) -> None:
        """Refuse a name that no topic can have."""
        self._topics.check_name(name)

    def check_topic(self, caller: Caller, name: str, streams: int, settings: TopicSettings) -> UUID:
        """Refuse what `create_topic` would refuse. An id that the topic could have had."""
        full = TopicName(caller.namespace, name)
        self._access.require(caller, Action.CONFIGURE, _resource(full))
        return self._topics.check_new(full, streams, settings)

    def create_topic(
        self, caller: Caller, name: str, home: Layout, streams: int, settings: TopicSettings
    ) -> tuple[Topic, Ticket]:
        full = TopicName(caller.namespace, name)
        self._access.require(caller, Action.CONFIGURE, _resource(full))
        self._gate.require_writable()
        return self._topics.create(full, home, streams, settings)

    def prepare_topics(
        self, caller: Caller, wanted: Iterable[tuple[str, int, TopicSettings]], done: Callable[[], None]
    ) -> None:
        """Open what takes long in the creation of these topics, a little in each turn of the loop, then call `done`, in
        which they are to be created. What would be refused is left out."""
        named = [(TopicName(caller.namespace, name), streams, settings) for name, streams, settings in wanted]
        allowed = [each for each in named if self._access.allowed(caller, Action.CONFIGURE, _resource(each[0]))]
        self._topics.prepare(allowed if self._gate.is_running else (), done)

    def prepare_growth(self, caller: Caller, wanted: Iterable[tuple[Topic, int]], done: Callable[[], None]) -> None:
        """As `prepare_topics`, for `grow_topic`. What would be refused must not be asked for."""
        allowed = [each for each in wanted if self._access.allowed(caller, Action.CONFIGURE, each[0].resource)]
        self._topics.prepare_growth(allowed if self._gate.is_running else (), done)

    def check_growth(self, caller: Caller, topic: Topic, streams: int) -> None:
        """Refuse what `grow_topic` would refuse."""
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        self._topics.check_growth(topic, streams)

    def grow_topic(self, caller: Caller, topic: Topic, streams: int) -> Ticket:
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        self._gate.require_writable()
        return self._topics.grow(topic, streams)

    def check_change(self, caller: Caller, topic: Topic, settings: TopicSettings) -> None:
        """Refuse what `change_topic` would refuse."""
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        self._topics.check_settings(settings)

    def change_topic(self, caller: Caller, topic: Topic, settings: TopicSettings) -> Ticket:
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        return self._topics.change_settings(topic, settings)

    def delete_topic(self, caller: Caller, topic: Topic) -> Ticket:
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        return self._topics.delete(topic)

    # -- messages

    def append(self, caller: Caller, topic: Topic, stream: Stream, batch: Buffer, header: BatchHeader) -> Appended:
        """Append one batch in the home's own bytes, which the caller has checked. Pending until its pass is durable."""
        self._access.require(caller, Action.WRITE, topic.resource)
        return self._appender.append(stream, batch, header)

    def append_records(self, caller: Caller, topic: Topic, stream: Stream, records: Sequence[Record]) -> Appended:
        """Append records that come in no home's bytes."""
        self._access.require(caller, Action.WRITE, topic.resource)
        return self._appender.append_records(stream, records)

    def readable(self, caller: Caller, topic: Topic, index: int) -> Stream:
        """The stream, for a caller who may read it."""
        self._access.require(caller, Action.READ, topic.resource)
        return topic.stream(index)

    def read(self, caller: Caller, topic: Topic, index: int, from_offset: int) -> Iterator[Record]:
        """The records of a stream, whatever its home."""
        stream = self.readable(caller, topic, index)
        return stream.records(from_offset, self.settings.limits.batch_expansion_bytes)

    def warm(self, cold: ColdRead, done: Callable[[BaseException | None], None]) -> None:
        """Load cold data off the event loop, then call back with the disk's error, if there was one."""
        self._offload(cold.warm, lambda _, error: done(error))

    def cut_head(self, caller: Caller, topic: Topic, index: int, offset: int) -> Ticket:
        """Records before `offset` are gone."""
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        return topic.stream(index).log.cut_head(offset)

    # -- cursors

    def groups(self, caller: Caller) -> list[str]:
        return self._cursors.groups()

    def cursors(self, caller: Caller, group: str) -> Mapping[StreamId, Cursor]:
        return self._cursors.all(group)

    def commit(self, caller: Caller, group: str, topic: Topic, index: int, offset: int, metadata: str = "") -> Ticket:
        """Remember that `group` has read a stream up to `offset`."""
        self._access.require(caller, Action.READ, topic.resource)
        stream = topic.stream(index)
        return self._cursors.commit(group, stream.id, offset, metadata)

    # -- the broker itself

    def actions(self, caller: Caller, resource: Resource) -> set[Action]:
        """What the caller may do with this resource."""
        return {action for action in Action if self._access.allowed(caller, action, resource)}

    def own_settings(self, caller: Caller) -> Settings:
        """What the broker was started with, for a caller who may know."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self.settings

    def space(self, caller: Caller) -> Space:
        """The room on the disk that holds everything."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._gate.space()

    # -- quotas

    def wait_ms(self, caller: Caller, direction: Direction) -> int:
        """How long the caller has to wait until it is within its quota again."""
        return self._quotas.wait_ms(caller, direction)

    def charge(self, caller: Caller, direction: Direction, size: int) -> int:
        """`size` bytes of messages pass now. How long the caller has to wait afterwards, by its quota."""
        return self._quotas.charge(caller, direction, size)

    def quotas(self, caller: Caller) -> Mapping[QuotaEntity, Quota]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._quotas.all()

    def check_quota(self, caller: Caller, holder: QuotaEntity, rates: Mapping[Direction, int]) -> None:
        """Refuse what `define_quota` would refuse."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        self._quotas.check(holder, rates)

    def define_quota(self, caller: Caller, holder: QuotaEntity, rates: Mapping[Direction, int]) -> Ticket | None:
        """Take the place of the holder's quota. None: nothing had to change."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._quotas.define(holder, rates)

    # -- credentials

    def credentials(self, caller: Caller) -> Mapping[str, Sequence[ScramCredential]]:
        """By user."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return {user: self._credentials.of(user) for user in self._credentials.users()}

    def put_credential(self, caller: Caller, credential: ScramCredential) -> Ticket:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._credentials.put(credential)

    def delete_credential(self, caller: Caller, user: str, mechanism: str) -> Ticket:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._credentials.delete(user, mechanism)


def _resource(name: TopicName) -> Resource:
    return Resource(ResourceKind.TOPIC, name.namespace, name.name)
