"""A compacted log against the list of everything that was ever written to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from storage.keyed_logs import DAY_MS, FOLDER, Kept, KeyedLog, with_settings

from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.records import iterate_records
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.partition_log.compaction import CompactionLimits
from trimq.storage.partition_log.reader import find_time

KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"a key of exactly..", b"k" * 100])
VALUES = st.one_of(st.none(), st.sampled_from([b"", b"1", b"two", b"v" * 60]))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
PRODUCERS = st.sampled_from([1, 2])


class Tombstone(NamedTuple):
    offset: int
    first_cleaned_ms: int


class CompactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        effort = CompactionLimits(keys=8, step_records=2)
        self.keyed = KeyedLog(self.files, with_settings(segment_bytes=500), effort)
        self.committed: dict[int, Kept] = {}
        self.open: dict[int, list[Kept]] = {}
        self.sequences = {1: 0, 2: 0}
        self.times: dict[int, int] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        self.compacted_ms = 0

    def _append(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec, **fields: object) -> list[Kept]:
        offset = self.keyed.append(pairs, codec, **fields)
        for index in range(len(pairs)):
            self.times[offset + index] = self.keyed.now_ms + index
        return [Kept(offset + index, key, value) for index, (key, value) in enumerate(pairs)]

    @rule(pairs=PAIRS, codec=st.sampled_from(list(Codec)))
    def write(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        self.committed |= {record.offset: record for record in self._append(pairs, codec)}

    @rule(pairs=PAIRS, producer_id=PRODUCERS, codec=st.sampled_from(list(Codec)))
    def write_in_a_transaction(self, pairs: list[tuple[bytes, bytes | None]], producer_id: int, codec: Codec) -> None:
        sequence = self.sequences[producer_id]
        self.sequences[producer_id] += len(pairs)
        written = self._append(
            pairs, codec, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        self.open.setdefault(producer_id, []).extend(written)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open)))
        written = self.open.pop(producer_id)
        self.times[self.keyed.end_transaction(producer_id, commit)] = self.keyed.now_ms
        if commit:
            self.committed |= {record.offset: record for record in written}

    @rule()
    def roll(self) -> None:
        self.keyed.roll()

    @rule(milliseconds=st.sampled_from([1, DAY_MS // 2, DAY_MS]))
    def wait(self, milliseconds: int) -> None:
        self.keyed.now_ms += milliseconds

    @rule()
    def forget_producers(self) -> None:
        self.keyed.log.producers.expire(self.keyed.now_ms, DAY_MS)

    @rule()
    def compact(self) -> None:
        self._compact(lambda: None)

    def _compact(self, before_step: Callable[[], None]) -> None:
        before = self.keyed.checkpoints.cleaned(FOLDER)
        self.keyed.compact(before_step)
        after = self.keyed.checkpoints.cleaned(FOLDER)
        assert after.offset >= before.offset
        self.compacted_ms = self.keyed.now_ms
        for key, record in self._last().items():
            known = self.tombstones.get(key)
            if record.value is not None or record.offset >= after.offset:
                self.tombstones.pop(key, None)
            elif known is None or known.offset != record.offset:
                self.tombstones[key] = Tombstone(record.offset, self.keyed.now_ms)
        cleaned = [record.key for record in self.keyed.records() if record.offset < after.offset]
        assert len(cleaned) == len(set(cleaned)), "a key has two records before the first dirty offset"

    @rule(seed=st.integers(0, 30))
    def write_while_it_compacts(self, seed: int) -> None:
        left = seed

        def write() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.write([(b"a", b"meanwhile")], Codec.NONE)

        self._compact(write)

    @rule()
    def restart(self) -> None:
        self.keyed.restart()

    @rule()
    def lose_power(self) -> None:
        self.files.crash()
        self.keyed.open()

    # -- invariants

    def _last(self) -> dict[bytes, Kept]:
        found: dict[bytes, Kept] = {}
        for _, record in sorted(self.committed.items()):
            assert record.key is not None
            found[record.key] = record
        return found

    @invariant()
    def every_key_has_its_last_value(self) -> None:
        found = self.keyed.records()
        assert {*found} <= {*self.committed.values()}
        last = {record.key: record for record in found}
        for key, record in self._last().items():
            if record.value is not None:
                assert last.get(key) == record
            elif key in last:
                assert last[key] == record, "an old value is visible again"
            else:
                cleaned = self.tombstones.get(key)
                assert cleaned is None or self.compacted_ms >= cleaned.first_cleaned_ms + DAY_MS

    @invariant()
    def times_are_found(self) -> None:
        log = self.keyed.log
        present = [record.offset for _, batch in self.keyed.batches() for record in iterate_records(batch)]
        if present:
            wanted = self.times[present[len(present) // 2]]
            first = next(offset for offset in present if self.times[offset] >= wanted)
            assert find_time(log, wanted, log.durable_end, 1 << 20) == (first, self.times[first])

    def teardown(self) -> None:
        self.keyed.close()


TestCompactionModel = CompactionModel.TestCase
TestCompactionModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
