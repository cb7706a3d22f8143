"""A journal against plain bytes: whatever is appended, rolled, removed, refused or lost, both hold the same."""

from __future__ import annotations

from doubles import FaultyFiles, PassRunner, TornTails
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trimq.errors import WriteFailed
from trimq.storage.flusher import Dirty
from trimq.storage.journal import Journal
from trimq.storage.memory_files import MemoryFiles

FOLDER = "orders-0"

Contents = dict[int, bytes]


class Owner:
    def __init__(self) -> None:
        self.undone = 0
        self.settled = 0

    def pass_written(self, number: int, dirty: Dirty) -> None:
        """The model asks the files."""

    def pass_undone(self) -> None:
        self.undone += 1

    def pass_settled(self, number: int) -> None:
        assert number > self.settled
        self.settled = number


class JournalMachine(RuleBasedStateMachine):
    """`now` is what was appended, `written` what the last pass that ended left, `ended` the same for each pass since
    the last that is durable."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryFiles()
        self.memory.make_folder(FOLDER)
        self.memory.sync_folder("")
        self.now: Contents = {}
        self.written: Contents = {}
        self.next_base = 0
        self._open()

    def _open(self) -> None:
        self.files = FaultyFiles(self.memory)
        self.runner = PassRunner(self.files)
        self.owner = Owner()
        self.journal = Journal(self.files, FOLDER, ".log", self.runner.passes, self.owner)
        self.has_joined = False
        self.ended: dict[int, Contents] = {}

    @initialize()
    def begin(self) -> None:
        self.roll()
        self.end_pass()
        self.runner.settle()

    # -- what a pass does

    @rule(data=st.binary(max_size=40), as_view=st.booleans())
    def append(self, data: bytes, as_view: bool) -> None:
        ticket = self.journal.append(memoryview(data) if as_view else data, len(data))
        assert ticket.number == self.runner.passes.current
        self.now[max(self.now)] += data
        self.has_joined = True

    @rule()
    def roll(self) -> None:
        self.journal.roll(self.next_base)
        self.now[self.next_base] = b""
        self.next_base += 10
        self.has_joined = True

    @precondition(lambda self: len(self.now) > 1)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        segment = data.draw(st.sampled_from(self.journal.segments[:-1]), "segment")
        self.journal.remove(segment, ())
        del self.now[segment.base]
        self.written = {base: kept for base, kept in self.written.items() if base != segment.base}
        self.has_joined = True

    # -- how it ends

    @rule()
    def end_pass(self) -> None:
        number = self.runner.passes.current
        self.runner.end_pass()
        if self.has_joined:
            self.has_joined = False
            self.written = dict(self.now)
            self.ended[number] = self.written

    @precondition(lambda self: self._unwritten_bytes() > 0)
    @rule(data=st.data())
    def fail_to_write(self, data: st.DataObject) -> None:
        ticket = self.journal.latest_ticket()
        undone = self.owner.undone
        self.files.room_bytes = data.draw(st.integers(0, self._unwritten_bytes() - 1), "room")
        self.runner.end_pass()
        self.files.room_bytes = None
        assert isinstance(ticket.refusal, WriteFailed)
        assert self.owner.undone == undone + 1
        self.has_joined = False
        # A journal has a segment at all times: if all that it had before were removed, the first new one stays.
        self.written = self.written or {min(self.now): b""}
        self.now = dict(self.written)
        self.ended[ticket.number] = self.written

    def _unwritten_bytes(self) -> int:
        return sum(len(data) - len(self.written.get(base, b"")) for base, data in self.now.items())

    @rule()
    def sync(self) -> None:
        self.runner.offload.run_one()

    # -- how the process ends

    @rule()
    def be_killed(self) -> None:
        self._recover(oldest=self.written)

    @rule(kept_percent=st.integers(0, 100), keeps_names=st.booleans())
    def lose_power(self, kept_percent: int, keeps_names: bool) -> None:
        oldest = self.ended.get(self.runner.passes.durable, self.found_durable())
        self.memory.crash(TornTails(kept_percent, keeps_names))
        self._recover(oldest)

    def found_durable(self) -> Contents:
        return self._durable_at_start

    def _recover(self, oldest: Contents) -> None:
        """What is found lies between what was acknowledged and what was written."""
        versions = [oldest, *self.ended.values(), self.written]
        self._open()
        self.journal.load()
        found = {segment.base: segment.read(0, 1 << 20) for segment in self.journal.segments}
        for base, data in found.items():
            longest = max((version[base] for version in versions if base in version), key=len, default=b"")
            assert longest.startswith(data)
        for base, data in oldest.items():
            if all(base in version for version in versions):
                assert found[base].startswith(data)
        self.now, self.written = dict(found), dict(found)
        self._resync()

    def _resync(self) -> None:
        self.journal.resync(self.journal.segments[0])
        self.runner.settle()
        self._durable_at_start = self.written
        self.ended = {self.runner.passes.durable: self.written}

    _durable_at_start: Contents = {}  # noqa: RUF012

    @precondition(lambda self: not self.has_joined and self.runner.passes.is_idle)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.journal.segments) - 1), "place")
        segment = self.journal.segments[place]
        size = data.draw(st.integers(0, segment.size), "size")
        self.journal.truncate(segment, size, ())
        self.now = {base: held for base, held in self.now.items() if base <= segment.base}
        self.now[segment.base] = self.now[segment.base][:size]
        self.written = dict(self.now)
        self.runner.settle()
        self.ended[self.runner.passes.durable] = self.written

    # -- what always holds

    @invariant()
    def both_hold_the_same(self) -> None:
        assert self.runner.failures == []
        segments = self.journal.segments
        assert {segment.base: segment.size for segment in segments} == {base: len(d) for base, d in self.now.items()}
        for segment in segments:
            written = self.written.get(segment.base, b"")
            assert segment.file.read(0, 1 << 20) == written
            assert bytes(segment.file.view(0, len(written))) == written
        assert self.owner.settled <= self.runner.passes.durable


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=80, stateful_step_count=40)
