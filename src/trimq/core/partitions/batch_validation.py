"""Validation of produced batches: checks the records against the rules of the stream, and rewrites timestamps and
compression as its topic requires. Knows batches; offsets and producers are handled elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trimq.errors import InvalidRecords, MissingKey, RecordFault, UntimelyRecord
from trimq.formats.kafka_batch.builder import recompress
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import (
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
    stamp_append_time,
    stamp_create_time,
)
from trimq.formats.kafka_batch.records import ANY_TIME, BatchTooLarge, iterate_records, validate_checked
from trimq.model import Buffer

_HOUR_MS = 3_600_000

# Records that a refusal names: a small compressed batch can hold 500,000 bad ones. A client sends the records that were
# not named again, and then the next ones are named.
MAX_FAULTS = 10_000


class BatchRules(NamedTuple):
    """`codec` None keeps the producer's codec. A record's timestamp may be at most `max_age_ms` before and
    `max_lead_ms` after the broker's time."""

    needs_keys: bool = False
    keeps_append_time: bool = False
    max_age_ms: int = 2**63 - 1
    max_lead_ms: int = _HOUR_MS
    has_timestamp_window: bool = False
    codec: int | None = None
    level: int | None = None
    is_writable: bool = True


class ValidatedBatch(NamedTuple):
    """Batch in the form to store. `append_time_ms` is -1 if the records keep the producer's timestamps."""

    batch: Buffer
    header: BatchHeader
    append_time_ms: int


class BatchValidator:
    """`opens_every_batch`: checks each record; otherwise only if the rules of the stream require it. `max_records`:
    limit of one batch for records and headers together."""

    def __init__(
        self, now_ms: Callable[[], int], max_expanded_bytes: int, opens_every_batch: bool, max_records: int
    ) -> None:
        self._now_ms = now_ms
        self._max_expanded_bytes = max_expanded_bytes
        self._opens_every_batch = opens_every_batch
        self._max_records = max_records

    def validate(self, rules: BatchRules, batch: Buffer, header: BatchHeader) -> ValidatedBatch:
        """`batch` is exactly one batch with a checked header; it may be rewritten in place. Raises a refusal, or
        BadBatch, if it breaks a rule of the stream or of its format."""
        if header.record_count > self._max_records:
            raise BatchTooLarge(f"a batch of {header.record_count} records (limit: {self._max_records} records)")
        now_ms = self._now_ms()
        max_timestamp_ms = header.max_timestamp_ms
        is_append_time = header.attributes & LOG_APPEND_TIME_BIT
        if self._opens_every_batch or rules.needs_keys or rules.has_timestamp_window:
            must_open = True
        elif rules.keeps_append_time:
            must_open = is_append_time != 0
        else:
            must_open = max_timestamp_ms > now_ms + rules.max_lead_ms
        if must_open:
            max_timestamp_ms = self._check_records(rules, batch, header, now_ms)
        if rules.codec is not None and rules.codec != header.codec:
            if header.producer_id >= 0 and header.producer_epoch < 0:
                raise InvalidRecords("a batch of a producer without an epoch cannot be recompressed")
            batch = recompress(batch, rules.codec, 0, self._max_expanded_bytes, rules.level)
            header = read_header(batch)
        if rules.keeps_append_time:
            batch = _writable(batch)
            stamp_append_time(batch, now_ms)
            return ValidatedBatch(batch, read_header(batch), now_ms)
        if is_append_time or header.max_timestamp_ms != max_timestamp_ms:
            # A wrong maximum in the header would mislead every search by time.
            batch = _writable(batch)
            stamp_create_time(batch, max_timestamp_ms)
            header = read_header(batch)
        return ValidatedBatch(batch, header, NO_TIMESTAMP)

    def _check_records(self, rules: BatchRules, batch: Buffer, header: BatchHeader, now_ms: int) -> int:
        """Returns the latest timestamp of the records."""
        window_ms = ANY_TIME
        if not rules.keeps_append_time:
            window_ms = (now_ms - rules.max_age_ms, now_ms + rules.max_lead_ms)
        summary = validate_checked(batch, header, window_ms, self._max_expanded_bytes, self._max_records)
        # The timestamp of the batch is then that of its records.
        claims_append_time = header.is_log_append_time and (
            rules.keeps_append_time or header.max_timestamp_ms == NO_TIMESTAMP
        )
        if (
            claims_append_time
            or summary.first_outside_window_index is not None
            or (rules.needs_keys and summary.first_null_key_index is not None)
        ):
            self._refuse_records(rules, batch, window_ms, claims_append_time)
        if not summary.offsets_in_order and header.codec != Codec.NONE:
            raise InvalidRecords("the offsets inside a compressed batch do not count from 0")
        return summary.max_timestamp_ms

    def _refuse_records(
        self, rules: BatchRules, batch: Buffer, window_ms: tuple[int, int], claims_append_time: bool
    ) -> None:
        """Raises a refusal that names the bad records, at most `MAX_FAULTS`. Looks at each record once more, which
        only a refused batch pays for."""
        earliest_ms, latest_ms = window_ms
        faults: list[RecordFault] = []
        is_untimely = False
        for index, record in enumerate(iterate_records(batch, 0, self._max_expanded_bytes)):
            timestamp_ms = record.timestamp_ms
            if rules.needs_keys and record.key is None:
                faults.append(RecordFault(index, "it has no key, which a compacted topic requires"))
            elif claims_append_time:
                faults.append(RecordFault(index, "it has log append time, which only the broker may set"))
                is_untimely = True
            elif not earliest_ms <= timestamp_ms <= latest_ms and timestamp_ms != NO_TIMESTAMP:
                faults.append(RecordFault(index, f"its timestamp is not between {earliest_ms} and {latest_ms}"))
                is_untimely = True
            if len(faults) == MAX_FAULTS:
                break
        raise UntimelyRecord(faults) if is_untimely else MissingKey(faults)


def _writable(batch: Buffer) -> bytearray | memoryview:
    if isinstance(batch, bytearray) or (isinstance(batch, memoryview) and not batch.readonly):
        return batch
    return bytearray(batch)
