"""Fast path of the compiled codec for Produce: reads requests without copying batches, and writes responses without
error texts. Falls back to `write_pieces` for other responses. Gives the same results as the codec."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from trimq.protocols.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from trimq.protocols.kafka.messages.schema import NO_ID
from trimq.protocols.kafka.wire.codec import write_pieces
from trimq.protocols.kafka.wire.primitives import (
    LONGEST_STRING,
    VARINTS,
    long_varint,
    read_varint,
    refuse_elements,
    refuse_length,
    skip_tags,
    varint,
)
from trimq.protocols.kafka.wire.reader_compiler import NO_ELEMENT_LIMIT

FLEXIBLE = 9  # from this version on: compact lengths, tagged fields
BY_ID = 13  # from this version on topics are named by their ids

unpack_int16 = Struct(">h").unpack_from
unpack_int32 = Struct(">i").unpack_from
unpack_two_int32 = Struct(">ii").unpack_from
unpack_acks_and_timeout = Struct(">hi").unpack_from
unpack_index_and_length = Struct(">iBBB").unpack_from


class ProduceRequestReader:
    """Reads the produce requests of one connection.

    The requests of a producer usually differ only in their batches. The prefix, which ends at the partitions of the
    first topic (client id, transactional id, acks, timeout, topic), is therefore compared with that of the previous
    request and decoded only if it differs.
    """

    __slots__ = ("_acks", "_client_id", "_max_elements", "_name", "_prefix", "_timeout_ms", "_topic_id", "_topics",
                 "_transactional_id", "version")  # fmt: skip

    def __init__(self, max_elements: int = NO_ELEMENT_LIMIT) -> None:
        self._max_elements = max_elements
        self.version = -1  # of the previous request
        self._prefix = b""
        self._client_id: str | None = None
        self._transactional_id: str | None = None
        self._acks = 0
        self._timeout_ms = 0
        self._topics = 0
        self._name = ""
        self._topic_id = NO_ID

    def read(self, data: bytearray, position: int, end: int, version: int) -> tuple[str | None, ProduceRequest]:
        """Reads a request from its client id on. Record batches are views of `data`. Raises IndexError, struct.error or
        MalformedMessage if the bytes end too early."""
        if version != self.version or not data.startswith(self._prefix, position):
            self._read_prefix(data, position, end, version)
        position += len(self._prefix)
        count = self._topics
        if count == 1:
            partitions, position = read_partitions(data, position, end, version, self._max_elements)
            topics = [TopicProduceData(self._name, self._topic_id, partitions)]
        else:
            topics, position = self._read_topics(data, position, end, count)
        if version >= FLEXIBLE:
            tags = data[position]
            position += 1
            if tags:
                position = skip_tags(data, position, tags, end)
        if position > end:
            refuse_length("the request", position, end)
        return self._client_id, ProduceRequest(self._transactional_id, self._acks, self._timeout_ms, topics)

    def _read_topics(self, data: bytearray, position: int, end: int, count: int) -> tuple[list[TopicProduceData], int]:
        """Reads all topics. The name of the first one is part of the prefix; `position` is after the prefix."""
        name, topic_id = self._name, self._topic_id
        topics = []
        most = self._max_elements - count
        for number in range(count):
            if number:
                name, topic_id, position = read_topic(data, position, end, self.version)
            partitions, position = read_partitions(data, position, end, self.version, most)
            most -= len(partitions)
            topics.append(TopicProduceData(name, topic_id, partitions))
        return topics, position

    def _read_prefix(self, data: bytearray, start: int, end: int, version: int) -> None:
        self.version = -1  # stays invalid if the prefix is malformed
        self._client_id, position = read_legacy_string(data, start, end)
        if version >= FLEXIBLE:
            position = skip_tags(data, position + 1, data[position], end)
            self._transactional_id, position = read_compact_string(data, position, end)
        else:
            self._transactional_id, position = read_legacy_string(data, position, end)
        self._acks, self._timeout_ms = unpack_acks_and_timeout(data, position)
        self._topics, position = read_count(data, position + 6, version)
        if not 0 <= self._topics * 3 <= end - position:
            refuse_length("topic_data", self._topics, end - position)
        if self._topics > self._max_elements:
            refuse_elements("topic_data")
        if self._topics:
            self._name, self._topic_id, position = read_topic(data, position, end, version)
        if position > end:
            refuse_length("the request", position, end)
        self._prefix = bytes(memoryview(data)[start:position])
        self.version = version


def read_legacy_string(data: bytes | bytearray, position: int, end: int) -> tuple[str | None, int]:
    (length,) = unpack_int16(data, position)
    position += 2
    if length < 0:
        return None, position
    if length > end - position:
        refuse_length("a string", length, end - position)
    return data[position : position + length].decode("utf-8", "replace"), position + length


def read_compact_string(data: bytes | bytearray, position: int, end: int) -> tuple[str | None, int]:
    length, position = read_varint(data, position)
    length -= 1
    if length < 0:
        return None, position
    if length > end - position or length > LONGEST_STRING:
        refuse_length("a string", length, end - position)
    return data[position : position + length].decode("utf-8", "replace"), position + length


def read_count(data: bytearray, position: int, version: int) -> tuple[int, int]:
    if version < FLEXIBLE:
        (count,) = unpack_int32(data, position)
        return count, position + 4
    count, position = read_varint(data, position)
    return count - 1, position


def read_topic(data: bytearray, position: int, end: int, version: int) -> tuple[str, bytes, int]:
    """Reads the name or the id of a topic, depending on the version. Returns name, id and the position after it."""
    if version >= BY_ID:
        after = position + 16
        if after > end:
            refuse_length("topic_id", 16, end - position)
        return "", bytes(memoryview(data)[position:after]), after
    read = read_compact_string if version >= FLEXIBLE else read_legacy_string
    name, position = read(data, position, end)
    if name is None:
        refuse_length("name", -1, end - position)
    return name, NO_ID, position


def read_partitions(
    data: bytearray, position: int, end: int, version: int, most: int
) -> tuple[list[PartitionProduceData], int]:
    """Reads the partitions of one topic, at most `most`, and skips the tagged fields after them."""
    if version < FLEXIBLE:
        return read_legacy_partitions(data, position, end, most)
    count = data[position]
    position += 1
    if count > 127:
        count, position = long_varint(data, position, count)
    count -= 1
    if not 0 <= count * 6 <= end - position:
        refuse_length("partition_data", count, end - position)
    if count > most:
        refuse_elements("partition_data")
    view = memoryview(data)
    partitions = []
    for _ in range(count):
        # second and third exist: after a length follow at least the tag counts of partition, topic and request
        index, length, second, third = unpack_index_and_length(data, position)
        if length < 128:
            position += 5
        elif second < 128:
            length = length & 127 | second << 7
            position += 6
        elif third < 128:
            length = length & 127 | (second & 127) << 7 | third << 14
            position += 7
        else:
            length, position = long_varint(data, position + 5, length)
        if length > 0:
            after = position + length - 1
            if after > end:
                refuse_length("records", length - 1, end - position)
            partitions.append(PartitionProduceData(index, view[position:after]))
            position = after
        else:
            partitions.append(PartitionProduceData(index, None))
        tags = data[position]
        position += 1
        if tags:
            position = skip_tags(data, position, tags, end)
    tags = data[position]
    position += 1
    if tags:
        position = skip_tags(data, position, tags, end)
    return partitions, position


def read_legacy_partitions(
    data: bytearray, position: int, end: int, most: int
) -> tuple[list[PartitionProduceData], int]:
    (count,) = unpack_int32(data, position)
    position += 4
    if not 0 <= count * 8 <= end - position:
        refuse_length("partition_data", count, end - position)
    if count > most:
        refuse_elements("partition_data")
    view = memoryview(data)
    partitions = []
    for _ in range(count):
        index, length = unpack_two_int32(data, position)
        position += 8
        if length < 0:
            partitions.append(PartitionProduceData(index, None))
            continue
        after = position + length
        if after > end:
            refuse_length("records", length, end - position)
        partitions.append(PartitionProduceData(index, view[position:after]))
        position = after
    return partitions, position


# Partition without error texts, by version: offsets, no record errors, no error message, no tagged fields.
pack_partition_3 = Struct(">ihqq").pack
pack_partition_5 = Struct(">ihqqq").pack
pack_partition_8 = Struct(">ihqqqih").pack
pack_partition_9 = Struct(">ihqqqBBB").pack
pack_int16 = Struct(">h").pack
pack_int32 = Struct(">i").pack
# one partition of one topic, and the rest of the response
LAST_PARTITION_9 = Struct(">BihqqqBBBBix")
pack_last_partition_9 = LAST_PARTITION_9.pack
# start of a response for one topic: length, correlation id, no tagged fields, topic count
ONE_HEADER = Struct(">iixB")
pack_one_header = ONE_HEADER.pack
ONE_APPENDED_SIZE = ONE_HEADER.size - 4 + LAST_PARTITION_9.size  # without the length itself, and without the topic


def write_produce_response(response: ProduceResponse, version: int) -> bytes:
    """Returns the body of a produce response. Fast path of `write_any_response` for one partition without error texts;
    falls back to it otherwise and before version 9."""
    topics = response.responses
    if response.node_endpoints or version < FLEXIBLE or len(topics) != 1 or len(topics[0].partition_responses) != 1:
        return write_any_response(response, version)
    topic = topics[0]
    partition = topic.partition_responses[0]
    if not is_plain(partition):
        return write_any_response(response, version)
    return b"\x02" + write_topic(topic, version) + pack_last_partition_9(
        2, partition.index, partition.error_code, partition.base_offset, partition.log_append_time_ms,
        partition.log_start_offset, 1, 0, 0, 0, response.throttle_time_ms)  # fmt: skip


def write_single_append(
    correlation_id: int,
    version: int,
    name: str,
    topic_id: bytes,
    index: int,
    base_offset: int,
    append_time_ms: int,
    start_offset: int,
    throttle_ms: int,
) -> bytes:
    """Returns the whole frame that answers a successful append to one partition, for versions from `FLEXIBLE` on."""
    topic = topic_id if version >= BY_ID else write_name(name)
    return pack_one_header(len(topic) + ONE_APPENDED_SIZE, correlation_id, 2) + topic + pack_last_partition_9(
        2, index, 0, base_offset, append_time_ms, start_offset, 1, 0, 0, 0, throttle_ms)  # fmt: skip


@lru_cache(maxsize=1024)
def write_name(name: str) -> bytes:
    encoded = name.encode()
    return varint(len(encoded) + 1) + encoded


def write_any_response(response: ProduceResponse, version: int) -> bytes:
    """Returns the body of any produce response. Falls back to the compiled codec if a partition has error texts."""
    topics = response.responses
    if response.node_endpoints or not all(is_plain(each) for topic in topics for each in topic.partition_responses):
        return b"".join(write_pieces(response, version))
    flexible = version >= FLEXIBLE
    pieces = [varint(len(topics) + 1) if flexible else pack_int32(len(topics))]
    for topic in topics:
        partitions = topic.partition_responses
        pieces.append(write_topic(topic, version))
        pieces.append(varint(len(partitions) + 1) if flexible else pack_int32(len(partitions)))
        pieces += [write_plain_partition(partition, version) for partition in partitions]
        if flexible:
            pieces.append(VARINTS[0])
    pieces.append(pack_int32(response.throttle_time_ms))
    if flexible:
        pieces.append(VARINTS[0])
    return b"".join(pieces)


def is_plain(partition: PartitionProduceResponse) -> bool:
    """Returns whether the partition has only numeric fields: no error texts and no other leader."""
    return not partition.record_errors and partition.error_message is None and partition.current_leader is None


def write_topic(topic: TopicProduceResponse, version: int) -> bytes:
    if version >= BY_ID:
        return topic.topic_id
    name = topic.name.encode()
    return (varint(len(name) + 1) if version >= FLEXIBLE else pack_int16(len(name))) + name


def write_plain_partition(partition: PartitionProduceResponse, version: int) -> bytes:
    index, error_code = partition.index, partition.error_code
    base_offset, append_time_ms = partition.base_offset, partition.log_append_time_ms
    if version >= FLEXIBLE:
        return pack_partition_9(index, error_code, base_offset, append_time_ms, partition.log_start_offset, 1, 0, 0)
    if version >= 8:
        return pack_partition_8(index, error_code, base_offset, append_time_ms, partition.log_start_offset, 0, -1)
    if version >= 5:
        return pack_partition_5(index, error_code, base_offset, append_time_ms, partition.log_start_offset)
    return pack_partition_3(index, error_code, base_offset, append_time_ms)
