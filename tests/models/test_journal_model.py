"""A journal against plain bytes, through appends, rolls, removals, refusals and losses: both hold the same."""

from __future__ import annotations

from doubles import FaultyFiles, PassRunner, TornTails
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trimq.errors import WriteFailed
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.segment import Segment
from trimq.storage.io.memory_files import MemoryFiles

FOLDER = "orders-0"
EVERYTHING = 1 << 20

Contents = dict[int, bytes]


DATA = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"\1"))
"""Without zeros, since only zeros mark the preallocation after the data here."""


class Owner:
    def __init__(self) -> None:
        self.undone = 0
        self.settled = 0

    def pass_written(self, number: int, dirty: Dirty) -> None:
        """Does nothing; the model reads the files."""

    def pass_undone(self) -> None:
        self.undone += 1

    def pass_durable(self, number: int) -> None:
        assert number > self.settled
        self.settled = number


class JournalMachine(RuleBasedStateMachine):
    """`now` has everything appended; `written` the contents of the files; `ended` the state after each pass, by its
    number, from the last one found at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryFiles()
        self.memory.make_folder(FOLDER)
        self.memory.sync_folder("")
        self.now: Contents = {}
        self.written: Contents = {}
        self.next_base = 0
        self._start()

    def _start(self) -> None:
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

    # -- operations of a pass

    @rule(data=DATA, as_view=st.booleans())
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
        self._remove(data.draw(st.sampled_from(self.journal.segments[:-1]), "segment"))

    def _remove(self, segment: Segment) -> None:
        self.journal.remove(segment, ())
        del self.now[segment.base]
        self.written = {base: held for base, held in self.written.items() if base != segment.base}
        self.has_joined = True

    @rule(data=DATA, is_older_kept=st.booleans())
    def expire(self, data: bytes, is_older_kept: bool) -> None:
        """Removes the active segment too, after a roll."""
        self.roll()
        for segment in self.journal.segments[-2 if is_older_kept else 0 : -1]:
            self._remove(segment)
        self.append(data, as_view=False)

    # -- ends of a pass

    @rule()
    def end_pass(self) -> None:
        number = self.runner.passes.current
        self.runner.end_pass()
        if self.has_joined:
            self.has_joined = False
            self.written = self.ended[number] = dict(self.now)

    @precondition(lambda self: self._unwritten_bytes() > 0)
    @rule(data=st.data())
    def fail_to_write(self, data: st.DataObject) -> None:
        ticket, undone = self.journal.latest_ticket(), self.owner.undone
        self.files.room_bytes = data.draw(st.integers(0, self._unwritten_bytes() - 1), "room")
        self.runner.end_pass()
        self.files.room_bytes = None
        assert isinstance(ticket.refusal, WriteFailed)
        assert self.owner.undone == undone + 1
        self.has_joined = False
        # A journal always has a segment: when all earlier ones are removed, the oldest new one is kept.
        self.written = self.written or {min(self.now): b""}
        self.now = dict(self.written)

    def _unwritten_bytes(self) -> int:
        return sum(len(held) - len(self.written.get(base, b"")) for base, held in self.now.items())

    @rule()
    def sync(self) -> None:
        self.runner.offload.run_one()

    # -- crashes

    @rule()
    def be_killed(self) -> None:
        self._recover([self.written])

    @rule(kept_percent=st.integers(0, 100), keeps_names=st.booleans())
    def lose_power(self, kept_percent: int, keeps_names: bool) -> None:
        durable = self.runner.passes.durable
        acknowledged = max(number for number in self.ended if number <= durable)
        self.memory.crash(TornTails(kept_percent, keeps_names))
        self._recover([held for number, held in self.ended.items() if number >= acknowledged] + [self.written])

    def _recover(self, versions: list[Contents]) -> None:
        """Checks that the recovered contents lie between the first version, which was acknowledged, and the last."""
        self._start()
        self.journal.load()
        self._cut_preallocation()
        found = {segment.base: segment.read(0, EVERYTHING) for segment in self.journal.segments}
        for base, held in found.items():
            assert any(version.get(base, b"").startswith(held) for version in versions), (
                "found bytes that were never written"
            )
        for base, held in versions[0].items():
            if all(base in version for version in versions):
                assert found[base].startswith(held), "acknowledged bytes are lost"
        self.now, self.written = dict(found), dict(found)
        self.journal.resync(self.journal.segments[0])
        self._settle_all()

    def _cut_preallocation(self) -> None:
        """Truncates as every layout does: bytes after zeros were not acknowledged."""
        for segment in self.journal.segments:
            data = segment.read(0, EVERYTHING).rstrip(b"\0")
            if len(data) < segment.size:
                self.journal.truncate(segment, len(data), ())
                return

    def _settle_all(self) -> None:
        self.runner.settle()
        self.ended = {self.runner.passes.durable: dict(self.written)}

    @precondition(lambda self: not self.has_joined and self.runner.passes.is_idle)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        segment = data.draw(st.sampled_from(self.journal.segments), "segment")
        size = data.draw(st.integers(0, segment.size), "size")
        self.journal.join_pass()  # a truncation without effect joins no pass
        self.journal.truncate(segment, size, ())
        self.now = {base: held for base, held in self.now.items() if base <= segment.base}
        self.now[segment.base] = self.now[segment.base][:size]
        self.written = dict(self.now)
        self._settle_all()

    # -- invariants

    @invariant()
    def both_hold_the_same(self) -> None:
        assert self.runner.failures == []
        sizes = {base: len(held) for base, held in self.now.items()}
        assert {segment.base: segment.size for segment in self.journal.segments} == sizes
        for segment in self.journal.segments:
            written = self.written.get(segment.base, b"")
            found = segment.file.read(0, EVERYTHING)
            assert found.rstrip(b"\0") == written
            assert len(found) == len(written) or segment.base == max(self.written), (
                "a sealed file has preallocated zeros"
            )
            assert bytes(segment.file.view(0, len(written))) == written
        assert self.owner.settled <= self.runner.passes.durable


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=100, stateful_step_count=40)
