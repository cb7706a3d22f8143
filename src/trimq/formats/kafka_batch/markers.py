"""Transaction markers: control batches that end a transaction on one stream. Knows no transaction's state."""

from __future__ import annotations

import struct
from typing import NamedTuple

from trimq.formats.kafka_batch.builder import encode_record
from trimq.formats.kafka_batch.header import (
    CONTROL_BIT,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    build_batch,
)
from trimq.formats.kafka_batch.records import BadRecord, BatchRecord

_ABORT = 0
_COMMIT = 1
_KEY = struct.Struct(">hh")  # version, kind
_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class Marker(NamedTuple):
    commit: bool
    coordinator_epoch: int


def control_batch(
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    commit: bool,
    timestamp_ms: int,
    offset: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Returns the 78 bytes that commit or abort this producer's transaction; they take one offset."""
    key = _KEY.pack(0, _COMMIT if commit else _ABORT)
    header = BatchHeader(
        base_offset=offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=0,
        crc=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return bytes(build_batch(header, encode_record(0, 0, key, _VALUE.pack(0, coordinator_epoch))))


def read_control(record: BatchRecord) -> Marker | None:
    """Returns the marker in a control batch's record, or None for another kind, which readers skip."""
    if record.key is None or len(record.key) < _KEY.size:
        raise BadRecord("a control record has no kind")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise BadRecord(f"unsupported control record version {version}")
    if kind not in (_ABORT, _COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise BadRecord("a transaction marker has no coordinator epoch")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise BadRecord(f"unsupported transaction marker version {version}")
    return Marker(kind == _COMMIT, coordinator_epoch)
