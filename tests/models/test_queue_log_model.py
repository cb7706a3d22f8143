"""The queue log against a dict of its live messages."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from storage.queue_logs import QueueLogs, content

from trimq.formats.amqp_content.content import NEVER, NO_BLOB, TRANSIENT, encode_content, encode_reference
from trimq.storage.queue_log.compaction import SegmentCompaction, is_worth_compacting
from trimq.storage.queue_log.log import QueueLog


class QueueLogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = QueueLogs(segment_bytes=600, memory_bytes=1500)
        self.machine.make()
        self.live: dict[int, bytes] = {}
        self.transient: set[int] = set()
        self.settled: dict[int, bytes] = {}
        self.sent = 0
        self.held: dict[int, int] = {}  # blobs by the offsets of their messages
        self.others: dict[int, bytes] = {}  # bodies of the second queue by offset
        self.machine.make("other")

    @property
    def other(self) -> QueueLog:
        return self.machine.logs["other"]

    @property
    def log(self) -> QueueLog:
        return self.machine.logs["q"]

    def found(self, log: QueueLog | None = None) -> dict[int, bytes]:
        log = log or self.log
        found: dict[int, bytes] = {}
        offset = log.next_live(0)
        while offset is not None:
            found[offset] = log.peek(offset).content.body
            offset = log.next_live(offset + 1)
        return found

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6), is_transient=st.booleans())
    def append(self, sizes: list[int], is_transient: bool) -> None:
        for size in sizes:
            body = b"%d " % self.sent + b"." * size
            self.sent += 1
            offset = self.log.end
            self.log.append(encode_content(content(body)), flags=TRANSIENT if is_transient else 0)
            self.live[offset] = body
            if is_transient:
                self.transient.add(offset)
        self.machine.runner.settle()

    @rule(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=12), is_transient=st.booleans())
    def append_all(self, sizes: list[int], is_transient: bool) -> None:
        first = self.log.end
        bodies = [b"%d " % (self.sent + index) + b"-" * size for index, size in enumerate(sizes)]
        self.sent += len(bodies)
        self.log.append_all([content(body) for body in bodies], NEVER, TRANSIENT if is_transient else 0)
        added = dict(enumerate(bodies, first))
        self.live |= added
        if is_transient:
            self.transient |= added.keys()
        self.machine.runner.settle()

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4))
    def share(self, sizes: list[int]) -> None:
        """Appends bodies that two queues share, once the first body number of this run is durable."""
        for size in sizes:
            body = b"%d " % self.sent + b"," * size
            self.sent += 1
            blob = self.machine.store.blobs.put(body, False, 5)
            if blob != NO_BLOB:
                assert blob not in self.held.values()
                self.held[self.log.end] = blob
                self.live[self.log.end] = self.others[self.other.end] = body
                for log in (self.log, self.other):
                    log.append(encode_reference(content(body), blob))
        self.machine.runner.settle()

    @precondition(lambda self: self.others)
    @rule(data=st.data())
    def settle_other(self, data: st.DataObject) -> None:
        for offset in data.draw(st.lists(st.sampled_from(sorted(self.others)), max_size=8, unique=True)):
            self.other.acks.ack(offset)
            del self.others[offset]
        self.machine.runner.settle()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        for offset in data.draw(st.lists(st.sampled_from(sorted(self.live)), max_size=8, unique=True)):
            self.log.take(offset)
            self.log.acks.ack(offset)
            self.settled[offset] = self.live.pop(offset)
        self.machine.runner.settle()

    @precondition(lambda self: self.live)
    @rule(data=st.data(), most=st.integers(1, 12), max_bytes=st.integers(1, 400))
    def take_batch_and_ack(self, data: st.DataObject, most: int, max_bytes: int) -> None:
        """Takes a batch: live messages from there on, without a gap, possibly fewer than asked for."""
        first = data.draw(st.sampled_from(sorted(self.live)))
        if data.draw(st.booleans()):
            self.log.peek(first)  # loads the neighbours into the read window
        taken = {stored.offset: stored.content.body for stored in self.log.take_batch(first, most, max_bytes, 1000)}
        assert taken.items() <= self.live.items()
        assert list(taken) == list(range(first, first + len(taken)))
        assert len(taken) <= most
        assert sum(map(len, list(taken.values())[:-1])) < max_bytes
        offsets = data.draw(st.permutations(sorted({first, *taken})))
        self.log.acks.ack_each(offsets)
        self.settled |= {offset: self.live.pop(offset) for offset in offsets}
        self.machine.runner.settle()

    @rule(kept=st.integers(0, 3))
    def purge(self, kept: int) -> None:
        out = sorted(self.live)[:kept]
        gone = [offset for offset in self.live if offset not in out]
        assert self.log.acks.ack_range(0, self.log.end, out) == len(gone)
        self.settled |= {offset: self.live.pop(offset) for offset in gone}
        self.machine.runner.settle()

    @rule()
    def compact(self) -> None:
        runner = self.machine.runner
        for log in (self.log, *self.machine.store.blobs.logs):
            segment = next(filter(is_worth_compacting, log.segments), None)
            if segment is not None:
                SegmentCompaction(
                    self.machine.files, runner.passes, self.machine.checkpoints, log, segment, runner.offload
                ).start()
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
        others = self.found(self.other)
        assert self.others.items() <= others.items()
        self.others = others

    @invariant()
    def all_live_messages_are_found(self) -> None:
        assert self.found() == self.live
        assert self.log.live == len(self.live)
        assert self.log.segments.live_bytes() == sum(map(len, self.live.values()))
        assert self.found(self.other) == self.others
        assert self.machine.runner.failures == []

    @invariant()
    def only_referenced_bodies_are_stored(self) -> None:
        logs = (self.log, self.other)
        held = {blob for log in logs for segment in log.segments for _, blob in segment.live_blobs()}
        assert {blob for offset, blob in self.held.items() if offset in self.live} <= held
        assert len(held) == len(self.machine.store.blobs)
        assert len(held) == sum(log.live for log in self.machine.store.blobs.logs)


QueueLogModel.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_queue_log = QueueLogModel.TestCase
