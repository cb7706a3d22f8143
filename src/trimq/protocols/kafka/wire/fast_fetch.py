"""Fast path of the compiled codec for Fetch responses: returns a list of buffers in which large record batches are the
caller's views, not copies. Falls back to `write_pieces` before version 12 and for responses with node endpoints."""

from __future__ import annotations

from struct import Struct

from trimq.model import Buffer
from trimq.protocols.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from trimq.protocols.kafka.wire.codec import struct_writer, write_pieces
from trimq.protocols.kafka.wire.primitives import VARINTS, varint

FLEXIBLE = 12
BY_ID = 13
MIN_UNCOPIED_BYTES = 2048  # copying smaller batches is cheaper than sending them as separate buffers

NO_TAGS = VARINTS[0]
NULL_RECORDS_AND_NO_TAGS = bytes(2)

pack_start = Struct(">ihi").pack  # throttle time, error, session
# index, error, three offsets, count of aborted transactions (null or zero), preferred replica
pack_partition = Struct(">ihqqqBi").pack
pack_offsets = Struct(">ihqqq").pack
pack_aborted = Struct(">qqx").pack
pack_preferred_replica = Struct(">i").pack


def write_fetch_response(response: FetchResponse, version: int) -> list[Buffer]:
    """Returns the body of a fetch response as buffers to be sent in this order; the first is `bytes`."""
    if version < FLEXIBLE or response.node_endpoints:
        return gather(write_pieces(response, version))
    topics = response.responses
    buffers: list[Buffer] = []
    text = pack_start(response.throttle_time_ms, response.error_code, response.session_id) + varint(len(topics) + 1)
    for topic in topics:
        text += write_topic(topic, version)
        for partition in topic.partitions:
            text = write_partition(buffers, text, partition, version)
        text += NO_TAGS
    buffers.append(text + NO_TAGS)
    return buffers


def write_topic(topic: FetchableTopicResponse, version: int) -> bytes:
    count = varint(len(topic.partitions) + 1)
    if version >= BY_ID:
        return topic.topic_id + count
    name = topic.topic.encode()
    return varint(len(name) + 1) + name + count


def write_partition(buffers: list[Buffer], text: bytes, data: PartitionData, version: int) -> bytes:
    """Appends a partition to `text`, or moves both to `buffers` if that saves a copy. Returns the new text."""
    if data.current_leader is not None or data.diverging_epoch is not None or data.snapshot_id is not None:
        return text + write_tagged_partition(data, version)
    aborted = data.aborted_transactions
    if aborted:
        text += write_offsets_and_aborted(data, aborted)
    else:
        text += pack_partition(
            data.partition_index, data.error_code, data.high_watermark, data.last_stable_offset,
            data.log_start_offset, 0 if aborted is None else 1, data.preferred_read_replica)  # fmt: skip
    records = data.records
    if records is None:
        return text + NULL_RECORDS_AND_NO_TAGS
    size = len(records)
    text += varint(size + 1)
    if size >= MIN_UNCOPIED_BYTES:
        buffers += text, records
        return NO_TAGS
    if len(text) >= MIN_UNCOPIED_BYTES:  # bounds the copying: each += copies the whole text
        buffers.append(text)
        text = b""
    return text + records + NO_TAGS


def write_offsets_and_aborted(data: PartitionData, aborted: list[AbortedTransaction]) -> bytes:
    offsets = pack_offsets(
        data.partition_index, data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset
    )
    transactions = b"".join([pack_aborted(each.producer_id, each.first_offset) for each in aborted])
    return offsets + varint(len(aborted) + 1) + transactions + pack_preferred_replica(data.preferred_read_replica)


def write_tagged_partition(data: PartitionData, version: int) -> bytes:
    """Returns a partition with tagged fields (current leader, diverging epoch, snapshot). Such a partition
    reports an error or a truncation, without records."""
    pieces: list[Buffer] = []
    struct_writer(PartitionData, version, True)(pieces.append, data)
    return b"".join(pieces)


def gather(pieces: list[Buffer]) -> list[Buffer]:
    """Joins small pieces and keeps large ones as separate buffers."""
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for piece in pieces:
        if len(piece) < MIN_UNCOPIED_BYTES:
            small.append(piece)
        else:
            buffers += b"".join(small), piece
            small = []
    buffers.append(b"".join(small))
    return buffers
