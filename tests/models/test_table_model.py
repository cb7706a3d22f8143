"""A table against a dict, through puts, deletes, refusals and losses: both hold the same."""

from __future__ import annotations

from doubles import FaultyFiles, PassRunner, TornTails
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trimq.errors import WriteFailed
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

FOLDER = "tables"
KEYS = st.sampled_from(["a", "b", "c", "a long key that fills the log", ""])

State = dict[str, str]


class TableMachine(RuleBasedStateMachine):
    """`states` has the state after each change, with the number of its pass: after a power cut the table has one of
    them, not older than the last that was acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryFiles()
        self.memory.make_folder(FOLDER)
        self.memory.sync_folder("")
        self._start()
        self.states: list[tuple[int, State]] = [(0, {})]

    def _start(self) -> None:
        self.files = FaultyFiles(self.memory)
        self.runner = PassRunner(self.files)
        self.table = open_table(
            self.files, FOLDER, "names", self.runner.passes, str, self.runner.offload, snapshot_above_bytes=100
        )
        self.undone: list[str] = []
        self.table.on_undone(self.undone.extend)
        self.ticket: Ticket | None = None
        self.has_bytes = False

    @property
    def now(self) -> State:
        return self.states[-1][1]

    # -- changes

    @rule(key=KEYS, value=st.text(max_size=20))
    def put(self, key: str, value: str) -> None:
        self.ticket = self.table.put(key, value)
        self.has_bytes = True
        self.states.append((self.ticket.number, self.now | {key: value}))

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.ticket = self.table.delete(key)
        self.has_bytes = self.has_bytes or key in self.now
        self.states.append((self.ticket.number, {held: value for held, value in self.now.items() if held != key}))

    # -- ends of a pass

    @rule()
    def end_pass(self) -> None:
        self.runner.end_pass()
        self.ticket, self.has_bytes = None, False

    @precondition(lambda self: self.has_bytes)
    @rule(room_bytes=st.integers(0, 11))
    def fail_to_write(self, room_bytes: int) -> None:
        """The disk is full: a record is longer than eleven bytes."""
        ticket, before = self.ticket, self.now
        assert ticket is not None
        self.states = [(number, state) for number, state in self.states if number < ticket.number]
        self.undone.clear()
        self.files.room_bytes = room_bytes
        self.runner.end_pass()
        self.files.room_bytes = None
        assert isinstance(ticket.refusal, WriteFailed)
        changed = {key for key in before.keys() | self.now.keys() if before.get(key) != self.now.get(key)}
        assert changed <= set(self.undone)
        self.ticket, self.has_bytes = None, False

    @rule()
    def work_off_the_loop(self) -> None:
        self.runner.offload.run_one()

    @precondition(lambda self: len(self.runner.offload) > 0)
    @rule()
    def fail_to_make_a_snapshot(self) -> None:
        """Every write and rename of a snapshot fails once; the syncs of the passes succeed."""

        def before(operation: str, name: str) -> None:
            if name.endswith(".tmp"):
                raise OSError("no snapshot now")

        self.files.before = before
        self.runner.offload.run_one()
        self.files.before = lambda operation, name: None

    # -- crashes

    @rule()
    def be_killed(self) -> None:
        written = self.runner.passes.written
        self._recover([[state for number, state in self.states if number <= written][-1]])

    @rule(kept_percent=st.integers(0, 100), keeps_names=st.booleans())
    def lose_power(self, kept_percent: int, keeps_names: bool) -> None:
        durable = self.runner.passes.durable
        acknowledged = [state for number, state in self.states if number <= durable][-1]
        self.memory.crash(TornTails(kept_percent, keeps_names))
        self._recover([acknowledged, *(state for number, state in self.states if number > durable)])

    def _recover(self, possible: list[State]) -> None:
        self._start()
        found = dict(self.table.items())
        assert found in possible
        self.states = [(0, found)]

    # -- invariants

    @invariant()
    def both_hold_the_same(self) -> None:
        assert dict(self.table.items()) == self.now
        assert len(self.table) == len(self.now)
        assert self.runner.failures == []

    def teardown(self) -> None:
        self.runner.settle()
        assert self.table.is_idle
        self.memory.crash()
        self._recover([self.now])


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=100, stateful_step_count=50)
