"""Fetch responses by hand, as a list of buffers in which record batches are the caller's own views, never copies."""

from __future__ import annotations

from struct import Struct

from trimq.model import Buffer
from trimq.protocols.kafka.codec import struct_writer, write_pieces
from trimq.protocols.kafka.messages.fetch import FetchResponse, PartitionData
from trimq.protocols.kafka.wire import VARINTS, varint

FLEXIBLE = 12
BY_ID = 13
WORTH_A_BUFFER = 2048  # smaller batches are cheaper copied than sent as a buffer of their own

# index, error, three offsets, and the length of the aborted transactions; then the preferred replica
pack_partition = Struct(">ihqqqBi").pack
pack_partition_start = Struct(">ihqqq").pack
pack_preferred_replica = Struct(">i").pack
pack_aborted = Struct(">qqx").pack
pack_start = Struct(">ihi").pack


def write_fetch_response(response: FetchResponse, version: int) -> list[Buffer]:
    """The body of a fetch response, in buffers to be sent one after the other."""
    if version < FLEXIBLE or response.node_endpoints:
        return gather(write_pieces(response, version))
    topics = response.responses
    buffers: list[Buffer] = []
    pieces: list[Buffer] = [
        pack_start(response.throttle_time_ms, response.error_code, response.session_id),
        varint(len(topics) + 1),
    ]
    for topic in topics:
        if version >= BY_ID:
            pieces.append(topic.topic_id)
        else:
            name = topic.topic.encode()
            pieces += varint(len(name) + 1), name
        pieces.append(varint(len(topic.partitions) + 1))
        for partition in topic.partitions:
            pieces = write_partition(buffers, pieces, partition, version)
        pieces.append(VARINTS[0])
    pieces.append(VARINTS[0])
    buffers.append(b"".join(pieces))
    return buffers


def write_partition(buffers: list[Buffer], pieces: list[Buffer], data: PartitionData, version: int) -> list[Buffer]:
    """Add a partition to `pieces`; if its records are worth it, move all to `buffers` and begin new pieces."""
    if data.current_leader is not None or data.diverging_epoch is not None or data.snapshot_id is not None:
        struct_writer(PartitionData, version, True)(pieces.append, data)
        return pieces
    records = data.records
    length = 0 if records is None else len(records) + 1
    aborted = data.aborted_transactions
    if aborted:
        write_with_aborted(pieces, data)
    else:
        no_aborted = 0 if aborted is None else 1
        pieces.append(pack_partition(data.partition_index, data.error_code, data.high_watermark,
                                     data.last_stable_offset, data.log_start_offset, no_aborted,
                                     data.preferred_read_replica))  # fmt: skip
    pieces.append(VARINTS[length] if length < 128 else varint(length))
    if records is None:
        pieces.append(VARINTS[0])
        return pieces
    if length > WORTH_A_BUFFER:
        buffers += b"".join(pieces), records
        return [VARINTS[0]]
    pieces += records, VARINTS[0]
    return pieces


def write_with_aborted(pieces: list[Buffer], data: PartitionData) -> None:
    aborted = data.aborted_transactions or ()
    pieces.append(pack_partition_start(data.partition_index, data.error_code, data.high_watermark,
                                       data.last_stable_offset, data.log_start_offset))  # fmt: skip
    pieces.append(varint(len(aborted) + 1))
    pieces += [pack_aborted(transaction.producer_id, transaction.first_offset) for transaction in aborted]
    pieces.append(pack_preferred_replica(data.preferred_read_replica))


def gather(pieces: list[Buffer]) -> list[Buffer]:
    """Join small pieces, leave large ones alone."""
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for piece in pieces:
        if len(piece) > WORTH_A_BUFFER:
            buffers += b"".join(small), piece
            small = []
        else:
            small.append(piece)
    buffers.append(b"".join(small))
    return buffers
