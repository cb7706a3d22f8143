from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.clock import ManualTime
from trimq.core.failures.ledger import (
    FailedMessageLedger,
    FailureEntry,
    LedgerEntry,
    Origin,
    Reason,
    RedrivenEntry,
    UnknownFailure,
    from_record,
    to_record,
)
from trimq.errors import Changed, InvalidRecords, WriteFailed
from trimq.metrics import Metrics
from trimq.model import Caller, Record, StreamId, TopicName
from trimq.storage.group_commit.passes import Ticket

CALLER = Caller("alice", "client", "10.0.0.1", "amqp")
ORIGIN = Origin(TopicName("shop", "orders"), StreamId(UUID(int=1), 3), 42, "billing")
MESSAGE = Record(
    body=b"body",
    key=b"key",
    headers=(("a", b"1"), ("a", None)),
    timestamp_ms=5,
    offset=42,
    extras={"x": b"\xff", "y": 1},
)


class Ledger:
    """A stream in memory; the test ends its passes."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.start = 0
        self._waiting: list[tuple[Ticket, Callable[[Ticket], None]]] = []

    def keep(self, entry: LedgerEntry) -> Ticket:
        self.records.append(replace(to_record(entry), offset=len(self.records)))
        return Ticket(len(self.records))

    def read(self, from_offset: int) -> Iterable[Record]:
        return iter(self.records[max(from_offset, self.start) :])

    def on_durable(self, ticket: Ticket, callback: Callable[[Ticket], None]) -> None:
        self._waiting.append((ticket, callback))

    def settle(self, refused: bool = False) -> None:
        waiting, self._waiting = self._waiting, []
        for ticket, callback in waiting:
            ticket.refusal = WriteFailed("planted") if refused else None
            callback(ticket)


class Source:
    """Owns the entries with one of `reasons`; collects the entries that are sent again."""

    def __init__(self, *reasons: Reason) -> None:
        self.reasons = reasons or tuple(Reason)
        self.sent: list[Record] = []
        self.is_gone = False

    def owns(self, entry: FailureEntry) -> bool:
        return entry.reason in self.reasons

    def find(self, entry: FailureEntry) -> FailureEntry | None:
        return None if self.is_gone else entry

    def send_again(self, entry: FailureEntry) -> Ticket | None:
        if self.is_gone:
            return None
        self.sent.append(entry.record)
        return Ticket(9)


def open_failures(
    ledger: Ledger, time: ManualTime, metrics: Metrics | None = None, *sources: Source
) -> FailedMessageLedger:
    failures = FailedMessageLedger(time, metrics or Metrics(), ledger.keep, ledger.read, ledger.on_durable)
    for source in sources or (Source(),):
        failures.add_source(source)
    return failures


@pytest.fixture
def time() -> ManualTime:
    return ManualTime(1_000)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def failures(ledger: Ledger, time: ManualTime) -> FailedMessageLedger:
    return open_failures(ledger, time)


def give_up(failures: FailedMessageLedger, *bodies: bytes) -> None:
    for body in bodies:
        failures.give_up(CALLER, replace(MESSAGE, body=body), Reason.REJECTED, ORIGIN, 16)


def test_a_failed_message_is_stored_with_its_reason_and_origin(failures: FailedMessageLedger) -> None:
    failures.give_up(CALLER, MESSAGE, Reason.DELIVERY_LIMIT, ORIGIN, 16)
    (failure,) = failures.all()
    assert failure.id == 0
    assert failure.entry == FailureEntry(MESSAGE, Reason.DELIVERY_LIMIT, ORIGIN, 16, 1_000, "alice")
    assert not failure.is_redriven
    assert failures.get(0) == failure


def test_failures_are_counted_by_reason(ledger: Ledger, time: ManualTime) -> None:
    metrics = Metrics()
    failures = open_failures(ledger, time, metrics)
    for reason in (Reason.EXPIRED, Reason.EXPIRED, Reason.OVERFLOW):
        failures.give_up(CALLER, MESSAGE, reason, ORIGIN, 1)
    shown = metrics.render().decode()
    assert 'trimq_failures_total{reason="expired"} 2' in shown
    assert 'trimq_failures_total{reason="overflow"} 1' in shown


def test_failures_are_listed_from_an_id_on(failures: FailedMessageLedger) -> None:
    give_up(failures, b"0", b"1", b"2")
    assert [(failure.id, failure.entry.record.body) for failure in failures.all(1)] == [(1, b"1"), (2, b"2")]


@pytest.mark.parametrize("id", [-1, 0, 2, 99])
def test_a_failure_that_is_not_in_the_ledger_is_refused(failures: FailedMessageLedger, ledger: Ledger, id: int) -> None:
    give_up(failures, b"0", b"1")
    ledger.start = 1
    with pytest.raises(UnknownFailure, match=str(id)):
        failures.get(id)


@pytest.mark.parametrize("restart", [False, True])
def test_a_redriven_message_is_sent_as_it_was_and_marked(ledger: Ledger, time: ManualTime, restart: bool) -> None:
    source = Source()
    failures = open_failures(ledger, time, None, source)
    give_up(failures, b"0", b"1")
    failures.redrive(CALLER, 1)
    ledger.settle()
    if restart:
        failures = open_failures(ledger, time)
    assert source.sent == [replace(MESSAGE, body=b"1")]
    assert [(failure.id, failure.is_redriven) for failure in failures.all()] == [(0, False), (1, True)]
    with pytest.raises(Changed, match="failure 1"):
        failures.redrive(CALLER, 1)
    with pytest.raises(UnknownFailure):
        failures.get(2)  # the redrive marker
    assert len(source.sent) == 1


def test_a_message_is_not_redriven_twice_while_the_first_redrive_is_pending(
    ledger: Ledger, failures: FailedMessageLedger
) -> None:
    give_up(failures, b"0")
    failures.redrive(CALLER, 0)
    with pytest.raises(Changed):
        failures.redrive(CALLER, 0)
    assert len(ledger.records) == 1, "a marker was written before the redriven message was durable"


def test_a_redrive_that_was_refused_may_be_repeated(ledger: Ledger, failures: FailedMessageLedger) -> None:
    give_up(failures, b"0")
    failures.redrive(CALLER, 0)
    ledger.settle(refused=True)
    assert not failures.get(0).is_redriven
    failures.redrive(CALLER, 0)
    ledger.settle()
    assert failures.get(0).is_redriven


def test_an_entry_belongs_to_the_first_source_that_owns_it(ledger: Ledger, time: ManualTime) -> None:
    first, last = Source(Reason.EXPIRED), Source()
    failures = open_failures(ledger, time, None, first, last)
    for reason in (Reason.EXPIRED, Reason.REJECTED):
        failures.give_up(CALLER, replace(MESSAGE, body=reason.value.encode()), reason, ORIGIN, 1)
    for id in (0, 1):
        failures.redrive(CALLER, id)
    assert [record.body for record in first.sent] == [b"expired"]
    assert [record.body for record in last.sent] == [b"rejected"]


def test_a_message_that_is_no_longer_stored_is_neither_listed_nor_redriven(ledger: Ledger, time: ManualTime) -> None:
    source = Source()
    failures = open_failures(ledger, time, None, source)
    give_up(failures, b"0")
    source.is_gone = True
    assert list(failures.all()) == []
    with pytest.raises(UnknownFailure):
        failures.redrive(CALLER, 0)
    assert not failures.get(0).is_redriven


def test_redrive_markers_are_read_once_and_then_only_the_new_ones(ledger: Ledger, time: ManualTime) -> None:
    failures = open_failures(ledger, time)
    give_up(failures, b"0")
    assert not failures.get(0).is_redriven
    ledger.keep(RedrivenEntry(0, 1_000, "bob"))  # by another node
    assert failures.get(0).is_redriven


def test_a_message_that_is_itself_a_ledger_entry_is_stored_unchanged() -> None:
    before = to_record(FailureEntry(MESSAGE, Reason.EXPIRED, ORIGIN, 1, 7, "bob"))
    entry = FailureEntry(before, Reason.REJECTED, ORIGIN, 2, 8, "alice")
    assert from_record(to_record(entry)) == entry


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("other", b""),),
        (("trimq.failure", None),),
        (("trimq.failure", b""),),
        (("trimq.failure", b"\x80"),),
        (("trimq.redriven", b"\xc1"),),
        (("a", b""), ("trimq.failure", b"")),
    ],
)
def test_a_record_that_is_not_an_entry_is_refused(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    with pytest.raises(InvalidRecords, match="at 7"):
        from_record(Record(body=b"", headers=headers, offset=7))


def test_an_entry_with_an_invalid_reason_or_topic_is_refused() -> None:
    record = to_record(FailureEntry(MESSAGE, Reason.EXPIRED, ORIGIN, 1, 7, "bob"))
    name, head = record.headers[0]
    assert head is not None
    for damaged in (
        head.replace(b"expired", b"exploded"[:7]),
        head.replace(ORIGIN.stream.topic.hex.encode(), b"x" * 32),
    ):
        assert damaged != head
        with pytest.raises(InvalidRecords):
            from_record(replace(record, headers=((name, damaged), *record.headers[1:])))


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=20)
RECORDS = st.builds(
    Record,
    body=st.none() | st.binary(max_size=20),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
    timestamp_ms=INT64,
    offset=INT64,
    extras=st.dictionaries(TEXT, TEXT | INT64 | st.binary(max_size=9), max_size=3),
)
ENTRIES = st.builds(
    FailureEntry,
    record=RECORDS,
    reason=st.sampled_from(Reason),
    origin=st.builds(
        Origin,
        topic=st.builds(TopicName, TEXT, TEXT),
        stream=st.builds(StreamId, st.uuids(), st.integers(0, 1 << 31)),
        offset=INT64,
        group=TEXT,
    ),
    attempts=st.integers(0, 1 << 31),
    time_ms=INT64,
    principal=TEXT,
) | st.builds(RedrivenEntry, failure=INT64, time_ms=INT64, principal=TEXT)


@given(ENTRIES)
def test_an_entry_survives_encoding_and_decoding(entry: LedgerEntry) -> None:
    record = to_record(entry)
    assert record.timestamp_ms == entry.time_ms
    assert from_record(record) == entry
