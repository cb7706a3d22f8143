"""Verbs on the streams of partition logs, reached as `broker.partitions`: append, read, cut the head, commit cursors.
Each checks the caller's rights, then delegates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, cast

from trimq.core.metadata.cursors import Cursors
from trimq.core.partitions.append import PartitionAppender
from trimq.core.partitions.batch_validation import LargeBatch, Review
from trimq.core.partitions.stream import Appended, Stream
from trimq.core.partitions.topics import Topic
from trimq.core.security.access import Access, Action, Resource
from trimq.errors import ColdRead, LargeSearch
from trimq.formats.kafka_batch.header import BatchHeader
from trimq.model import Buffer, Caller, Record
from trimq.offload import Offload
from trimq.storage.group_commit.passes import Ticket

S = TypeVar("S", covariant=True)


class TopicOfStreams(Protocol[S]):
    """Topic of any layout, with streams of one type."""

    resource: Resource

    def stream(self, index: int) -> S:
        """Raises UnknownStream if there is none."""


class PartitionApi:
    """`review_offload` reviews large batches and searches in them. `max_expanded_bytes` limits the size of a batch
    after decompression."""

    def __init__(
        self,
        appender: PartitionAppender,
        cursors: Cursors,
        access: Access,
        offload: Offload,
        review_offload: Offload,
        max_expanded_bytes: int,
    ) -> None:
        self._appender = appender
        self._cursors = cursors
        self._access = access
        self._offload = offload
        self._review_offload = review_offload
        self._max_expanded_bytes = max_expanded_bytes

    def append(
        self,
        caller: Caller,
        topic: Topic,
        stream: Stream,
        batch: Buffer,
        header: BatchHeader,
        review: Review | None = None,
        highest_sequence: int | None = None,
    ) -> Appended:
        """Appends one batch in the layout's own format, already validated by the caller. Pending until its pass is
        durable. Raises LargeBatch for a batch that has to be reviewed first."""
        self._access.require(caller, Action.WRITE, topic.resource)
        return self._appender.append(stream, batch, header, review, True, highest_sequence)

    def review(
        self,
        large: LargeBatch,
        is_wanted: Callable[[], bool],
        done: Callable[[Review | None, BaseException | None], None],
    ) -> None:
        """Reviews a large batch off the event loop, then calls `done` with the result or the error; with neither if it
        was no longer wanted when its turn came. Raises Busy if too many batches wait."""

        def reviewed(result: object, error: BaseException | None) -> None:
            done(cast("Review | None", result), error)

        self._review_offload(lambda: large.review() if is_wanted() else None, reviewed)

    def search(self, large: LargeSearch, is_wanted: Callable[[], bool], done: Callable[[object], None]) -> None:
        """Searches a large batch off the event loop, then calls `done` with the outcome, a result or an error. Raises
        Busy if too many wait."""
        work = large.work
        self._review_offload(
            lambda: work() if is_wanted() else None, lambda result, error: done(result if error is None else error)
        )

    @property
    def expanded_bytes(self) -> int:
        """Uncompressed bytes of all compressed batches so far."""
        return self._appender.expanded_bytes

    def throttle_ms(self) -> int:
        """Returns how long a producer has to wait after an append, because memory or disk space is short."""
        return self._appender.throttle_ms()

    def append_records(self, caller: Caller, topic: Topic, stream: Stream, records: Sequence[Record]) -> Appended:
        """Appends records that are not in any layout's format."""
        self._access.require(caller, Action.WRITE, topic.resource)
        return self._appender.append_records(stream, records)

    def describable(self, caller: Caller, topic: TopicOfStreams[S], index: int) -> S:
        """Returns the stream if the caller may see its offsets."""
        self._access.require(caller, Action.DESCRIBE, topic.resource)
        return topic.stream(index)

    def readable(self, caller: Caller, topic: TopicOfStreams[S], index: int) -> S:
        """Returns the stream if the caller may read it."""
        self._access.require(caller, Action.READ, topic.resource)
        return topic.stream(index)

    def read(self, caller: Caller, topic: Topic, index: int, from_offset: int) -> Iterator[Record]:
        """Records of a stream in any layout."""
        stream = self.readable(caller, topic, index)
        return stream.records(from_offset, self._max_expanded_bytes)

    def warm(self, cold: ColdRead, done: Callable[[BaseException | None], None]) -> None:
        """Loads cold data off the event loop; passes the error of the disk, if any, to `done`."""
        self._offload(cold.warm, lambda _, error: done(error))

    def cut_head(self, caller: Caller, topic: Topic, index: int, offset: int) -> Ticket:
        """Deletes all records before `offset`."""
        self._access.require(caller, Action.DELETE, topic.resource)
        ticket = topic.stream(index).log.cut_head(offset)
        where = {"partition": index, "before": offset}
        self._access.audit.changed(caller, "delete", "records", topic.name.name, topic.name.namespace, **where)
        return ticket

    def commit(self, caller: Caller, group: str, topic: Topic, index: int, offset: int, metadata: str = "") -> Ticket:
        """Commits the offset up to which `group` has read a stream."""
        self._access.require(caller, Action.READ, topic.resource)
        stream = topic.stream(index)
        return self._cursors.commit(group, stream.id, offset, metadata)
