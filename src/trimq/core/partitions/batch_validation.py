"""Validation of produced batches: checks the records against the rules of the stream, and rewrites timestamps and
compression as its topic requires. A large batch is reviewed off the event loop. Knows batches; offsets and producers
are handled elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from trimq.formats.kafka_batch.records import (
    ANY_TIME,
    INLINE_EXPANDED_BYTES,
    INLINE_RECORDS,
    BatchTooLarge,
    iterate_records,
    validate_checked,
)
from trimq.model import Buffer

_HOUR_MS = 3_600_000

# Records that a refusal names: a small compressed batch can hold 500,000 bad ones. A client sends the records that were
# not named again, and then the next ones are named.
MAX_FAULTS = 10_000

# Compressing is far slower than expanding.
INLINE_RECOMPRESSED_BYTES = 64 * 1024


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


class Review(NamedTuple):
    """Result of the slow part of a validation: the checks of the records, and a recompression if the rules need it."""

    rules: BatchRules
    batch: Buffer
    header: BatchHeader
    max_timestamp_ms: int
    expanded_bytes: int


class LargeBatch(Exception):
    """The validation would keep the event loop for too long. Call `review` once, off the event loop, then validate
    again with its result; it raises what the validation would."""

    def __init__(self, review: Callable[[], Review]) -> None:
        super().__init__("the batch must be reviewed off the event loop")
        self.review = review


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
        self._inline_records = min(INLINE_RECORDS, max_records)
        self._inline_expanded_bytes = min(INLINE_EXPANDED_BYTES, max_expanded_bytes)
        self.expanded_bytes = 0
        """Uncompressed bytes of all compressed batches that were checked."""

    def validate(
        self,
        rules: BatchRules,
        batch: Buffer,
        header: BatchHeader,
        review: Review | None = None,
        may_defer: bool = False,
    ) -> ValidatedBatch:
        """`batch` is exactly one batch with a checked header; it may be rewritten in place. Raises a refusal, or
        BadBatch, if it breaks a rule of the stream or of its format; LargeBatch if `may_defer`, and it is large.
        `review`: the result for this batch."""
        if header.record_count > self._max_records:
            raise BatchTooLarge(f"a batch of {header.record_count} records (limit: {self._max_records} records)")
        now_ms = self._now_ms()
        is_append_time = header.attributes & LOG_APPEND_TIME_BIT
        if review is not None and review.rules == rules:
            max_timestamp_ms, batch, header = review.max_timestamp_ms, review.batch, review.header
            self.expanded_bytes += review.expanded_bytes
        else:
            max_timestamp_ms = header.max_timestamp_ms
            must_recompress = rules.codec is not None and rules.codec != header.codec
            expanded_bytes = len(batch)
            if self._opens_every_batch or rules.needs_keys or rules.has_timestamp_window:
                must_open = True
            elif rules.keeps_append_time:
                must_open = is_append_time != 0
            else:
                must_open = max_timestamp_ms > now_ms + rules.max_lead_ms
            if must_open:
                expanded_limit, record_limit = self._max_expanded_bytes, self._max_records
                if may_defer:
                    expanded_limit, record_limit = self._inline_expanded_bytes, self._inline_records
                    if header.record_count > record_limit:
                        raise LargeBatch(partial(self._review, rules, batch, header, now_ms, True))
                try:
                    max_timestamp_ms, expanded_bytes = self._check_records(
                        rules, batch, header, now_ms, expanded_limit, record_limit
                    )
                except BatchTooLarge:
                    if may_defer:
                        raise LargeBatch(partial(self._review, rules, batch, header, now_ms, True)) from None
                    raise
                if header.codec != Codec.NONE:
                    self.expanded_bytes += expanded_bytes
            if must_recompress:
                if may_defer and expanded_bytes > INLINE_RECOMPRESSED_BYTES:
                    raise LargeBatch(partial(self._review, rules, batch, header, now_ms, must_open))
                batch, header = self._recompress(rules, batch, header)
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

    def _review(self, rules: BatchRules, batch: Buffer, header: BatchHeader, now_ms: int, must_open: bool) -> Review:
        """Runs in a thread: changes nothing."""
        max_timestamp_ms, expanded_bytes = header.max_timestamp_ms, 0
        if must_open:
            max_timestamp_ms, expanded_bytes = self._check_records(
                rules, batch, header, now_ms, self._max_expanded_bytes, self._max_records
            )
        if rules.codec is not None and rules.codec != header.codec:
            batch, header = self._recompress(rules, batch, header)
        return Review(rules, batch, header, max_timestamp_ms, expanded_bytes)

    def _recompress(self, rules: BatchRules, batch: Buffer, header: BatchHeader) -> tuple[Buffer, BatchHeader]:
        assert rules.codec is not None
        if header.producer_id >= 0 and header.producer_epoch < 0:
            raise InvalidRecords("a batch of a producer without an epoch cannot be recompressed")
        batch = recompress(batch, rules.codec, 0, self._max_expanded_bytes, rules.level)
        return batch, read_header(batch)

    def _check_records(
        self, rules: BatchRules, batch: Buffer, header: BatchHeader, now_ms: int, expanded_limit: int, record_limit: int
    ) -> tuple[int, int]:
        """Returns the latest timestamp of the records, and their uncompressed size."""
        window_ms = ANY_TIME
        if not rules.keeps_append_time:
            window_ms = (now_ms - rules.max_age_ms, now_ms + rules.max_lead_ms)
        summary, expanded_bytes = validate_checked(batch, header, window_ms, expanded_limit, record_limit)
        # The timestamp of the batch is then that of its records.
        claims_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT) and (
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
        return summary.max_timestamp_ms, expanded_bytes

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
