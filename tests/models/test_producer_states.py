"""Producer states of a log against the plain list of its batches."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trimq.formats.kafka_batch.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from trimq.storage.partition_log.producers import EndedTransaction, ProducerState, ProducerStates, SentBatch

producers = st.integers(1, 4)


class Appended(NamedTuple):
    header: BatchHeader
    commit: bool | None
    """None: a batch of data."""


class ProducerStatesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.log: list[Appended] = []
        self.pass_began_at = 0
        self.expired: dict[int, int] = {}
        """By producer, the length of the log prefix that no longer counts for it."""

    @property
    def end(self) -> int:
        return self.log[-1].header.next_offset if self.log else 0

    def header(self, producer_id: int, epoch: int, sequence: int, count: int, attributes: int) -> BatchHeader:
        stamp_ms = 10 * self.end
        return BatchHeader(
            self.end, 0, 0, 2, 0, attributes, count - 1, stamp_ms, stamp_ms, producer_id, epoch, sequence, count
        )

    def epoch_of(self, producer_id: int) -> int:
        return max((entry.header.producer_epoch for entry in self.log_of(producer_id)), default=0)

    def log_of(self, producer_id: int) -> list[Appended]:
        counted = self.log[self.expired.get(producer_id, 0) :]
        return [entry for entry in counted if entry.header.producer_id == producer_id]

    # -- rules

    @rule(producer_id=producers, count=st.integers(1, 3), bump=st.booleans(), transactional=st.booleans())
    def append(self, producer_id: int, count: int, bump: bool, transactional: bool) -> None:
        open_from = self.open_from(producer_id)
        attributes = TRANSACTIONAL_BIT if transactional or open_from >= 0 else 0
        epoch = self.epoch_of(producer_id) + (bump and open_from < 0)
        header = self.header(producer_id, epoch, 5 * self.end, count, attributes)
        self.states.apply(header)
        self.log.append(Appended(header, None))

    @rule()
    def append_without_a_producer(self) -> None:
        header = self.header(-1, -1, -1, 1, 0)
        self.states.apply(header)
        self.log.append(Appended(header, None))

    @rule(producer_id=producers, commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool, bump: bool) -> None:
        open_from = self.open_from(producer_id)
        header = self.header(producer_id, self.epoch_of(producer_id) + bump, -1, 1, TRANSACTIONAL_BIT | CONTROL_BIT)
        ended = self.states.apply_control(header, commit, 7)
        self.log.append(Appended(header, commit))
        others = [first for first in map(self.open_from, range(1, 5)) if first >= 0]
        stable = min([*others, header.base_offset + 1])
        expected = EndedTransaction(producer_id, open_from, header.base_offset, stable, not commit)
        assert ended == (expected if open_from >= 0 else None)

    @rule()
    def begin_pass(self) -> None:
        self.states.commit_pass()
        self.pass_began_at = len(self.log)

    @rule()
    def undo_pass(self) -> None:
        self.states.undo_pass()
        del self.log[self.pass_began_at :]

    @rule(after_ms=st.integers(0, 300))
    def expire(self, after_ms: int) -> None:
        self.begin_pass()
        for producer_id in range(1, 5):
            state = self.expected(producer_id)
            if state and state.open_from < 0 and 10 * self.end - state.last_timestamp_ms >= after_ms:
                self.expired[producer_id] = len(self.log)
        self.states.expire(10 * self.end, after_ms)

    @rule()
    def restart_from_a_snapshot(self) -> None:
        found = ProducerStates.decode(self.states.encode())
        assert found.first_open_offset() == self.states.first_open_offset()
        for producer_id, state in self.states.items():
            kept = tuple(batch._replace(timestamp_ms=state.last_timestamp_ms) for batch in state.batches[-1:])
            assert found.get(producer_id) == state._replace(batches=kept)
        assert len(found) == len(self.states)

    # -- invariants

    def open_from(self, producer_id: int) -> int:
        state = self.expected(producer_id)
        return state.open_from if state else -1

    def expected(self, producer_id: int) -> ProducerState | None:
        entries = self.log_of(producer_id)
        if not entries:
            return None
        epoch = entries[-1].header.producer_epoch
        markers = [place for place, entry in enumerate(entries) if entry.commit is not None]
        open_batches = [entry.header for entry in entries[markers[-1] + 1 if markers else 0 :]]
        transactional = [header.base_offset for header in open_batches if header.is_transactional]
        sent = [entry.header for entry in entries if entry.commit is None and entry.header.producer_epoch == epoch]
        batches = tuple(
            SentBatch(
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp_ms,
            )
            for header in sent[-5:]
        )
        last_ms = entries[-1].header.max_timestamp_ms
        return ProducerState(epoch, batches, last_ms, 7 if markers else -1, transactional[0] if transactional else -1)

    @invariant()
    def every_producer_is_known_by_what_it_appended(self) -> None:
        for producer_id in range(1, 5):
            assert self.states.get(producer_id) == self.expected(producer_id)

    @invariant()
    def the_oldest_open_transaction_is_known(self) -> None:
        opened = [first for first in map(self.open_from, range(1, 5)) if first >= 0]
        assert self.states.first_open_offset() == (min(opened) if opened else None)


TestProducerStates = ProducerStatesMachine.TestCase
