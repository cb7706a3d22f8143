"""Foreign topics in the shape of Kafka's: streams that are read in batches. Each read seals one batch with the offsets
of the home layout; offsets without a visible message are gaps, as after compaction."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from trimq.core.crossing.streams import MESSAGES_AT_ONCE, ForeignStream
from trimq.core.crossing.topics import ForeignTopic
from trimq.core.scheduling.waiters import Watch
from trimq.formats.crossing import kafka
from trimq.formats.kafka_batch.header import NO_LEADER_EPOCH
from trimq.model import TopicName
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.reader import BatchSlice, OffsetAndTimestamp


class _NoEpochs(NamedTuple):
    epochs: Sequence[tuple[int, int]] = ()


class BatchedStream:
    """Foreign stream with the reading side of a `Stream`."""

    log = _NoEpochs()

    def __init__(self, stream: ForeignStream) -> None:
        self.id = stream.id
        self.gives_away = stream.gives_away
        self._stream = stream

    @property
    def start(self) -> int:
        return self._stream.start

    @property
    def end(self) -> int:
        return self._stream.readable_end

    @property
    def readable_end(self) -> int:
        return self._stream.readable_end

    @property
    def stable_end(self) -> int:
        return self._stream.readable_end

    def read(self, offset: int, max_bytes: int, limit: int | None = None, may_wait: bool = True) -> BatchSlice:
        """Returns one batch from `offset` on, an empty one if nothing is visible up to the end of what was looked
        at."""
        found = self._stream.read(offset, MESSAGES_AT_ONCE, max_bytes, may_wait)
        if found.next_offset <= offset:
            return BatchSlice((), 0, offset)
        records = [(each, kafka.from_neutral(message)) for each, message in found.messages]
        batch = memoryview(kafka.seal(records, offset, found.next_offset, NO_LEADER_EPOCH))
        return BatchSlice((batch,), len(batch), found.next_offset)

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Returns nothing: only committed messages are visible."""
        return []

    def find_time(
        self,
        timestamp_ms: int,
        max_expanded_bytes: int,
        limit: int | None = None,
        outcomes: Mapping[Hashable, object] | None = None,
    ) -> OffsetAndTimestamp | None:
        found = self._stream.find_time(timestamp_ms)
        return None if found is None else OffsetAndTimestamp(*found)

    def find_latest(
        self, max_expanded_bytes: int, outcomes: Mapping[Hashable, object] | None = None
    ) -> OffsetAndTimestamp | None:
        """Returns the last message: other layouts keep no order of timestamps."""
        end = self.readable_end
        for offset in range(end - 1, max(self.start, end - MESSAGES_AT_ONCE) - 1, -1):
            found = self._stream.read(offset, 1, 1 << 20, may_wait=True).messages
            if found and found[0][0] == offset:
                return OffsetAndTimestamp(offset, found[0][1].timestamp_ms)
        return None

    def watch(self, callback: Callable[[], None]) -> Watch:
        return self._stream.watch(callback)


class BatchedTopic:
    """Foreign topic in the shape of a `Topic`."""

    def __init__(self, topic: ForeignTopic) -> None:
        self.id = topic.id
        self.name = TopicName("", topic.face_name)
        self.resource = topic.resource
        self.layout = topic.layout
        self.gives_away = topic.gives_away
        self.foreign = topic

    @property
    def streams(self) -> Sequence[BatchedStream]:
        return [self.stream(number) for number in range(self.foreign.stream_count)]

    def stream(self, index: int) -> BatchedStream:
        """Raises UnknownStream if there is none."""
        return BatchedStream(self.foreign.stream(index))
