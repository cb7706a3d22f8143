"""A partition log against a list of batches, through appends, refusals, losses, rolls, head deletions and restarts:
both hold the same, and readers see durable batches only."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Any, NamedTuple

from doubles import TornTails
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage.log_bench import FOLDER, START_MS, LogBench, batch_of

from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import BatchHeader, read_header
from trimq.formats.kafka_batch.records import iterate_records
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.partition_log.expiry import expire, expire_oldest
from trimq.storage.partition_log.index import SegmentIndex
from trimq.storage.partition_log.producers import ProducerStates
from trimq.storage.partition_log.reader import find_aborted, find_latest, find_time, read_batches
from trimq.storage.partition_log.transaction_markers import apply_batch

PRODUCERS = (1, 2, 3)
EPOCHS = 3


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes
    ticket: Ticket

    @property
    def end(self) -> int:
        return self.header.next_offset


class Sent(NamedTuple):
    """A batch sent by a producer; `ends`: the marker of its transaction, if one is open."""

    producer_id: int
    is_transactional: bool
    ends: bool | None
    time: int
    count: int
    size: int
    codec: Codec
    is_mutable: bool


SENT = st.builds(
    Sent,
    producer_id=st.sampled_from((-1, *PRODUCERS)),
    is_transactional=st.booleans(),
    ends=st.sampled_from([None, True, False]),
    time=st.integers(0, 50),
    count=st.integers(1, 4),
    size=st.sampled_from([0, 30, 150]),
    codec=st.sampled_from(list(Codec)),
    is_mutable=st.booleans(),
)


class Cut(NamedTuple):
    offset: int
    ticket: Ticket


class PartitionLogMachine(RuleBasedStateMachine):
    """`batches` has all that was appended and not refused, removed ones included; `written` counts those in the files,
    `durable` the acknowledged ones."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []
        self.written = 0
        self.start = 0
        self.cuts: list[Cut] = []
        self.epoch = 0
        self.bench: LogBench

    @initialize(
        segment_bytes=st.sampled_from([300, 900, 1 << 20]),
        checkpoint_bytes=st.sampled_from([1, 500, 1 << 20]),
        segment_ms=st.sampled_from([1000, 1 << 50]),
        index_interval_bytes=st.sampled_from([0, 100, 4096]),
    )
    def begin(self, **changes: int) -> None:
        self.bench = LogBench(**changes)

    # -- state of the model

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def durable(self) -> int:
        passes = self.bench.runner.passes
        return sum(batch.ticket.number <= passes.durable for batch in self.batches)

    def states(self, count: int) -> ProducerStates:
        states = ProducerStates()
        for batch in self.batches[:count]:
            if batch.header.producer_id >= 0:
                apply_batch(states, batch.header, batch.data)
        return states

    def boundaries(self) -> list[int]:
        return [batch.header.base_offset for batch in self.batches] + [self.end]

    # -- appending

    def _append(self, batch: bytes | bytearray) -> None:
        base_offset = self.bench.log.end
        assert base_offset == self.end
        ticket = self.bench.begin_append(batch, leader_epoch=self.epoch)
        stamped = bytearray(batch)
        stamped[:8] = base_offset.to_bytes(8, "big")
        stamped[12:16] = self.epoch.to_bytes(4, "big")
        self.batches.append(Batch(read_header(stamped), bytes(stamped), ticket))

    @rule(sent=st.lists(SENT, min_size=1, max_size=6), settles=st.booleans())
    def append(self, sent: list[Sent], settles: bool) -> None:
        for each in sent:
            self._append(self._batch(each))
        if settles:
            self.settle()

    def _batch(self, sent: Sent) -> bytes | bytearray:
        fields: dict[str, Any] = {}
        if sent.producer_id >= 0:
            state = self.states(len(self.batches)).get(sent.producer_id)
            is_open = state is not None and state.open_from >= 0
            if is_open and sent.ends is not None:
                return self.bench.marker(sent.producer_id, sent.ends)
            sequence = 0 if state is None else state.last_sequence + 1
            fields = {"producer_id": sent.producer_id, "producer_epoch": 0, "base_sequence": sequence}
            fields["transactional"] = sent.is_transactional or is_open
        bodies = [b"%d/%d " % (self.end, index) + bytes(sent.size) for index in range(sent.count)]
        batch = batch_of(*bodies, timestamp_ms=START_MS + sent.time, codec=sent.codec, **fields)
        return batch if sent.is_mutable else bytes(batch)

    @rule(milliseconds=st.sampled_from([0, 700, 5000]))
    def roll(self, milliseconds: int) -> None:
        """Rolls at once, or with the next batch if the segment is old enough."""
        self.bench.now_ms += milliseconds
        if not milliseconds and self.bench.log.active.segment.size:
            self.bench.log.roll()

    # -- passes

    @rule(writes=st.booleans(), syncs=st.booleans())
    def end_pass(self, writes: bool, syncs: bool) -> None:
        if writes:
            self.bench.runner.end_pass()
            self.written = len(self.batches)
        if syncs:
            self.bench.runner.offload.run_one()
            self._note_settled()

    def settle(self) -> None:
        self.bench.settle()
        self.written = len(self.batches)
        self._note_settled()
        assert self.bench.log.durable_end == self.end

    @rule(room_bytes=st.integers(0, 400), spares_tables=st.booleans())
    def end_pass_on_a_full_disk(self, room_bytes: int, spares_tables: bool) -> None:
        """A write is short because the disk is full."""
        files = self.bench.files

        def refuse(operation: str, name: str) -> None:
            if operation == "write" and not (spares_tables and name.startswith("tables/")):
                files.room_bytes = room_bytes

        def refuse_log_only(operation: str, name: str) -> None:
            if operation == "write":
                files.room_bytes = room_bytes if name.endswith(".log") and name.startswith(FOLDER) else None

        files.before = refuse_log_only if spares_tables else refuse
        self.bench.runner.end_pass()
        self.bench.mend()
        self.batches = [batch for batch in self.batches if batch.ticket.refusal is None]
        self.written = len(self.batches)
        assert self.bench.runner.failures == []
        self.every_pass_is_kept_or_undone()

    @rule()
    def end_pass_without_companions(self) -> None:
        def refuse(operation: str, name: str) -> None:
            if operation == "write" and name.endswith(("index", ".snapshot")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

        self.bench.files.before = refuse
        self.bench.runner.end_pass()
        self.bench.mend()
        self.written = len(self.batches)

    def _note_settled(self) -> None:
        passes = self.bench.runner.passes
        for cut in list(self.cuts):
            if cut.ticket.number <= passes.durable:
                self.cuts.remove(cut)
                if cut.ticket.refusal is None:
                    self.start = max(self.start, cut.offset)

    # -- deletion of the head

    @rule(data=st.data())
    def cut_head(self, data: st.DataObject) -> None:
        log = self.bench.log
        offset = data.draw(st.integers(log.start, log.durable_end), "offset")
        self.cuts.append(Cut(offset, log.cut_head(offset)))

    @rule(limit=st.sampled_from([("retention_bytes", 0), ("retention_bytes", 900), ("retention_ms", 500), ("", 600)]))
    def expire(self, limit: tuple[str, int]) -> None:
        """Expires segments by size, by age, or by disk pressure."""
        log, before = self.bench.log, self.bench.settings
        if limit[0]:
            log.change_settings(replace(before, **{limit[0]: limit[1]}))  # type: ignore[arg-type]
            expire(log, self.bench.now_ms)
            log.change_settings(before)
        else:
            expire_oldest([log], limit[1])
        self._note_start()

    def _note_start(self) -> None:
        log = self.bench.log
        assert log.start <= log.durable_end
        self.cuts.append(Cut(log.start, self.bench.checkpoints.forget_marks(FOLDER, [10**9])))

    # -- restarts and crashes

    @rule()
    def checkpoint(self) -> None:
        self.bench.log.checkpoint()

    @rule()
    def restart(self) -> None:
        self.settle()
        self.bench.close()
        self.index_files_are_valid_for_kafka()
        self.bench.open()
        self._check_recovered(len(self.batches), len(self.batches))

    @rule(kept_percent=st.sampled_from([0, 20, 50, 90, 100]), keeps_names=st.booleans())
    def lose_power(self, kept_percent: int, keeps_names: bool) -> None:
        durable, written = self.durable(), self.written
        self.bench.crash(TornTails(kept_percent, keeps_names))
        self._check_recovered(durable, written)

    @rule()
    def kill(self) -> None:
        durable, written = self.durable(), self.written
        self.bench.kill()
        self._check_recovered(durable, written)

    def _check_recovered(self, durable: int, written: int) -> None:
        """Checks a reopened log: all acknowledged batches are kept, and a prefix of the others."""
        log = self.bench.log
        assert log.start in {self.start, *(cut.offset for cut in self.cuts)}
        self.start = log.start
        self.cuts = []
        ends = [0, *(batch.end for batch in self.batches)]
        assert log.end in ends[durable : written + 1], "acknowledged records are lost, or refused ones are visible"
        self.batches = [batch._replace(ticket=Ticket(0)) for batch in self.batches if batch.end <= log.end]
        self.written = len(self.batches)
        self.epoch = min(self.epoch + 1, EPOCHS)
        found = {id: (state.epoch, state.last_sequence, state.open_from) for id, state in log.producers.items()}
        known = self.states(len(self.batches)).items()
        assert found == {id: (state.epoch, state.last_sequence, state.open_from) for id, state in known}

    @precondition(lambda self: hasattr(self, "bench"))
    @invariant()
    def every_pass_is_kept_or_undone(self) -> None:
        log = self.bench.log
        assert log.end == self.end
        assert log.end >= log.durable_end >= log.start
        assert log.durable_end >= max((batch.end for batch in self.batches[: self.durable()]), default=0)
        assert log.durable_end in [0, *(batch.end for batch in self.batches[: self.written])]
        sizes = [(each.segment.base, each.segment.size) for each in log.segments]
        assert sizes[-1][0] + log.active.segment.size >= sizes[-1][0]
        stored = sum(len(batch.data) for batch in self.batches if batch.header.base_offset >= sizes[0][0])
        assert sum(size for _, size in sizes) == stored
        assert [start.start_offset for start in log.epochs] == sorted({start.start_offset for start in log.epochs})

    @precondition(lambda self: hasattr(self, "bench"))
    @invariant()
    def the_producers_are_those_of_the_batches(self) -> None:
        log = self.bench.log
        states = self.states(len(self.batches))
        assert {id: state.last_sequence for id, state in log.producers.items()} == {
            id: state.last_sequence for id, state in states.items()
        }
        assert log.producers.first_open_offset() == states.first_open_offset()

    # -- reading

    @rule(data=st.data(), max_bytes=st.integers(0, 1500))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        log = self.bench.log
        if log.start == log.durable_end:
            return
        offset = data.draw(st.integers(log.start, log.durable_end - 1), "offset")
        limits = [boundary for boundary in self.boundaries() if offset < boundary <= log.durable_end]
        limit = data.draw(st.sampled_from(limits), "limit")
        found = read_batches(log, offset, max_bytes, limit)
        wanted = [batch for batch in self.batches if batch.end > offset and batch.end <= limit]
        read = b"".join(found.parts)
        count, size = 0, 0
        while size < len(read):
            size += len(wanted[count].data)
            count += 1
        assert read == b"".join(batch.data for batch in wanted[:count])
        if not wanted:
            assert found.next_offset == limit
            return
        assert count >= 1
        assert found.next_offset == (wanted[count].header.base_offset if count < len(wanted) else limit)
        assert len(read) <= max(max_bytes, len(wanted[0].data))
        ends_with_segment = any(segment.end_offset == found.next_offset for segment in log.segments)
        if count < len(wanted) and not ends_with_segment:
            assert len(read) + len(wanted[count].data) > max_bytes, "another batch would have fitted into the limit"

    @rule(time=st.integers(-1, 60))
    def find(self, time: int) -> None:
        log = self.bench.log
        records = [
            record
            for batch in self.batches
            if batch.end <= log.durable_end
            for record in iterate_records(batch.data)
            if record.offset >= log.start
        ]
        first = next((record for record in records if record.timestamp_ms >= START_MS + time), None)
        found = find_time(log, START_MS + time, log.durable_end, 1 << 20)
        assert (found and found.offset) == (first and first.offset)
        latest = max(records, key=lambda record: (record.timestamp_ms, -record.offset), default=None)
        found = find_latest(log, log.durable_end, 1 << 20)
        assert (found and found.offset) == (latest and latest.offset)

    def find_the_aborted_transactions(self) -> None:
        log = self.bench.log
        states, wanted = ProducerStates(), []
        for batch in self.batches:
            if batch.header.producer_id >= 0:
                ended = apply_batch(states, batch.header, batch.data)
                if ended is not None and ended.is_aborted and ended.last_offset >= log.segments[0].segment.base:
                    wanted.append(ended[:4])
        assert [tuple(each) for segment in log.segments for each in find_aborted(log, segment)] == wanted

    @rule()
    def look_for_transactions(self) -> None:
        self.find_the_aborted_transactions()
        log = self.bench.log
        durable = sum(batch.end <= log.durable_end for batch in self.batches)
        assert log.first_unstable_offset == self.states(durable).first_open_offset()

    def index_files_are_valid_for_kafka(self) -> None:
        for segment in self.bench.log.segments:
            index = SegmentIndex(segment.segment.base, self.bench.settings.index_interval_bytes)
            position = 0
            end = segment.end_offset if segment.end_offset >= 0 else self.end
            for batch in self.batches:
                if segment.segment.base <= batch.header.base_offset < end:
                    index.note(batch.header.last_offset, position, batch.header.max_timestamp_ms)
                    position += len(batch.data)
            if segment.end_offset >= 0:
                index.seal()
            elif position == 0:
                continue  # nothing to index yet
            name = f"{segment.segment.base:020d}"
            assert self.bench.contents(f"{name}.index") == index.encode_offsets()
            assert self.bench.contents(f"{name}.timeindex") == index.encode_times()


TestPartitionLog = PartitionLogMachine.TestCase
TestPartitionLog.settings = settings(max_examples=100, stateful_step_count=40)
