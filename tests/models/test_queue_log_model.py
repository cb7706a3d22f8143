"""The queue log against a dict of what is live."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from storage.queue_logs import QueueLogs, content

from trimq.formats.content import TRANSIENT, seal
from trimq.storage.queue_compaction import SegmentCompaction, is_worth_it
from trimq.storage.queue_log import QueueLog


class QueueLogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = QueueLogs(segment_bytes=600, memory_bytes=1500)
        self.machine.make()
        self.live: dict[int, bytes] = {}
        self.transient: set[int] = set()
        self.settled: dict[int, bytes] = {}
        self.sent = 0

    @property
    def log(self) -> QueueLog:
        return self.machine.logs["q"]

    def found(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = self.log.next_live(0)
        while offset is not None:
            found[offset] = self.log.peek(offset).content.body
            offset = self.log.next_live(offset + 1)
        return found

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6), is_transient=st.booleans())
    def append(self, sizes: list[int], is_transient: bool) -> None:
        for size in sizes:
            body = b"%d " % self.sent + b"." * size
            self.sent += 1
            offset = self.log.end
            self.log.append(seal(content(body)), flags=TRANSIENT if is_transient else 0)
            self.live[offset] = body
            if is_transient:
                self.transient.add(offset)
        self.machine.runner.settle()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        for offset in data.draw(st.lists(st.sampled_from(sorted(self.live)), max_size=8, unique=True)):
            self.log.take(offset)
            self.log.settle(offset)
            self.settled[offset] = self.live.pop(offset)
        self.machine.runner.settle()

    @rule(kept=st.integers(0, 3))
    def purge(self, kept: int) -> None:
        out = sorted(self.live)[:kept]
        gone = [offset for offset in self.live if offset not in out]
        assert self.log.settle_all(0, self.log.end, out) == len(gone)
        self.settled |= {offset: self.live.pop(offset) for offset in gone}
        self.machine.runner.settle()

    @rule()
    def compact(self) -> None:
        segment = next(filter(is_worth_it, self.log.segments), None)
        if segment is not None:
            runner = self.machine.runner
            SegmentCompaction(self.machine.files, runner.passes, self.machine.checkpoints, self.log, segment).start()
            runner.settle()

    def _restarted(self) -> None:
        self.live = {offset: body for offset, body in self.live.items() if offset not in self.transient}

    @rule()
    def stop(self) -> None:
        self.machine.stop()
        self._restarted()

    @rule()
    def kill(self) -> None:
        self.machine.kill()
        self._restarted()

    @rule()
    def lose_power(self) -> None:
        self.machine.crash()
        self._restarted()
        found = self.found()
        assert self.live.items() <= found.items()
        for offset in found.keys() - self.live.keys():
            assert self.settled.pop(offset) == found[offset]  # a lost ack
            assert offset not in self.transient
        self.live = found

    @invariant()
    def what_is_live_is_found(self) -> None:
        assert self.found() == self.live
        assert self.log.live == len(self.live)
        assert self.log.live_bytes() == sum(map(len, self.live.values()))
        assert self.machine.runner.failures == []


QueueLogModel.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_queue_log = QueueLogModel.TestCase
