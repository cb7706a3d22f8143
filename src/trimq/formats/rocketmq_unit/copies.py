"""Message units that are made of stored ones: what is kept of these, and their properties. What is added to tell of
their way may be left out where it does not fit, what the producer set may not."""

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
"""What every message is told by the broker that takes it, and nobody needs."""


_UNUSUAL = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_BITS


CopySource = tuple[int, int, int, int, bytes, int, int, memoryview, bytes]
"""What a copy keeps of a stored unit: its body's checksum, flag, system flag, when and at which host it was born, when
it was stored, how often it was consumed again, its body and its properties. A plain tuple, since one is made for nearly
every message that was delayed."""


def read_copy_source(data: memoryview) -> CopySource | None:
    """Of the one unit that this is. None: it is unlike most, or its lengths do not fit."""
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
    """As `write_properties`, of what was stored before: also where a value holds what must not be sent. While it is too
    long, one of `optional` after the other is left out. It may be too long even so, which whoever stores it will say.
    """
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
