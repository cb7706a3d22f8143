"""Converts message units to protocol-neutral records and back, without loss. Knows no log."""

from __future__ import annotations

from trimq.formats.rocketmq_unit.properties import KEYS, read_properties, write_properties
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft
from trimq.model import Record

# Fields that only this format has.
_FLAG = "unit.flag"
_SYS_FLAG = "unit.sys_flag"
_BORN_HOST = "unit.born_host"
_RECONSUME_TIMES = "unit.reconsume_times"
_PREPARED = "unit.prepared_position"


def to_record(unit: Unit) -> Record:
    """Maps the unit's keys to the record's key, the other properties to headers."""
    properties = read_properties(unit.properties)
    keys = properties.pop(KEYS, None)
    return Record(
        body=bytes(unit.body),
        key=None if keys is None else keys.encode(),
        headers=tuple((name, value.encode()) for name, value in properties.items()),
        timestamp_ms=unit.born_ms,
        offset=unit.queue_offset,
        extras={
            _FLAG: unit.flag,
            _SYS_FLAG: unit.sys_flag,
            _BORN_HOST: unit.born_host,
            _RECONSUME_TIMES: unit.reconsume_times,
            _PREPARED: unit.prepared_position,
        },
    )


def from_record(record: Record, topic: bytes, queue_id: int, born_host: bytes) -> UnitDraft:
    """Builds a draft. `born_host` is used if the record has none. Raises ValueError if a header cannot be a
    property."""
    properties = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    if record.key:
        properties[KEYS] = record.key.decode("utf-8", "replace")
    known_host = record.extras.get(_BORN_HOST)
    return UnitDraft(
        topic=topic,
        queue_id=queue_id,
        body=record.body or b"",
        properties=write_properties(properties),
        flag=_number(record, _FLAG),
        sys_flag=_number(record, _SYS_FLAG),
        born_ms=record.timestamp_ms,
        born_host=known_host if isinstance(known_host, bytes) else born_host,
        reconsume_times=_number(record, _RECONSUME_TIMES),
        prepared_position=_number(record, _PREPARED),
    )


def _number(record: Record, name: str) -> int:
    value = record.extras.get(name, 0)
    return value if isinstance(value, int) else 0
