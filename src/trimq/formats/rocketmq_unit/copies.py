"""Copies of stored message units: the fields and properties that a copy keeps. Properties that the broker adds may be
dropped if they do not fit; the producer's may not."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.formats.rocketmq_unit.properties import NAME_ENDS, VALUE_ENDS
from trimq.formats.rocketmq_unit.unit import (
    BORN_HOST_V6,
    LONGEST_PROPERTIES,
    MAGIC,
    SHORT_HEAD,
    STORE_HOST_V6,
    TRANSACTION_BITS,
)

WAIT = "WAIT"

BROKER_PROPERTIES = ("TRACE_ON", "MSG_REGION", "CLUSTER")
"""Properties that every broker adds to a message and that nothing needs."""


_UNUSUAL = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_BITS


CopySource = tuple[int, int, int, int, bytes, int, int, memoryview, bytes]
"""Fields that a copy keeps of a stored unit: checksum of the body, flag, system flag, born time, born host, store time,
reconsume times, body, properties. A plain tuple, since nearly every delayed message creates one."""


def read_copy_source(data: memoryview) -> CopySource | None:
    """Fast path of `read_unit` for batches of copies. Returns None if the unit is unusual (IPv6 hosts, transaction,
    long topic) or its lengths do not fit; the caller then copies the message by itself with `read_unit`."""
    if len(data) < SHORT_HEAD.size + 3:
        return None
    size, magic, crc, _, flag, _, _, sys_flag, born_ms, born_host, store_ms, _, times, _, body_bytes = (
        SHORT_HEAD.unpack_from(data)
    )
    if size != len(data) or magic != MAGIC or sys_flag & _UNUSUAL:
        return None
    topic_at = SHORT_HEAD.size + body_bytes
    if body_bytes < 0 or topic_at >= size:
        return None
    properties_at = topic_at + 3 + data[topic_at]
    if properties_at + int.from_bytes(data[properties_at - 2 : properties_at], "big") != size:
        return None
    body, properties = data[SHORT_HEAD.size : topic_at], bytes(data[properties_at:])
    return crc, flag, sys_flag, born_ms, born_host, store_ms, times, body, properties


def copied_properties(properties: Mapping[str, str], optional: tuple[str, ...] = BROKER_PROPERTIES) -> bytes:
    """Like `write_properties`, for stored properties, whose values may hold characters that must not be sent. While the
    result is too long, drops one of `optional` after the other. If it is still too long, the append refuses it."""
    written = _write(properties)
    left = dict(properties)
    for name in optional:
        if len(written) <= LONGEST_PROPERTIES:
            break
        if left.pop(name, None) is not None:
            written = _write(left)
    return written


def _write(properties: Mapping[str, str]) -> bytes:
    items = [f"{name}{NAME_ENDS}{value}{VALUE_ENDS}" for name, value in properties.items() if name and value]
    return "".join(items).encode("utf-8", "replace")
