"""The commit-log store against lists, through appends, refusals, losses, checkpoints, expiry and restarts: both hold
the same, and readers see durable messages only."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from storage.commit_bench import CommitBench, PooledBench, TornPages

from trimq.storage.commit_log.log import AppendedUnit

QUEUES = (("a", 0), ("a", 1), ("b", 0))


class Message(NamedTuple):
    queue: tuple[str, int]
    body: bytes
    key: str
    placed: AppendedUnit


class CommitStoreMachine(RuleBasedStateMachine):
    """`messages` has all that was appended and not refused; those up to `durable` are acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.written = 0
        self.count = 0
        self.start = 0
        self.bench: CommitBench

    @initialize(
        file_bytes=st.sampled_from([600, 2000, 1 << 16]),
        checkpoint_bytes=st.sampled_from([1, 700, 1 << 30]),
        index_entries=st.sampled_from([4, 20]),
        queue_file_entries=st.sampled_from([2, 8]),
    )
    def begin(self, **changes: int) -> None:
        self.bench = CommitBench(**changes)

    @rule(queue=st.sampled_from(QUEUES), size=st.sampled_from([1, 60, 300]), key=st.sampled_from("xyz"))
    def append(self, queue: tuple[str, int], size: int, key: str) -> None:
        self.count += 1
        body = b"%d " % self.count + b"." * size
        placed = self.bench.append(*queue, body, keys=key)
        assert placed.queue_offset == sum(message.queue == queue for message in self.messages)
        self.messages.append(Message(queue, body, key, placed))

    @rule(writes=st.booleans(), syncs=st.booleans())
    def end_pass(self, writes: bool, syncs: bool) -> None:
        if writes:
            self.bench.runner.end_pass()
            self.written = self._count_up_to(self.bench.runner.passes.written)
        if syncs:
            self.bench.runner.offload.run_one()

    @rule(room_bytes=st.integers(0, 500))
    def end_pass_on_a_full_disk(self, room_bytes: int) -> None:
        before = self.bench.files.before

        def refuse(operation: str, name: str) -> None:
            if operation == "write" and self.bench.files.room_bytes is None and name.startswith("store/"):
                self.bench.files.room_bytes = room_bytes
            elif not name.startswith("store/"):
                self.bench.files.room_bytes = None

        self.bench.files.before = refuse
        self.bench.runner.end_pass()
        self.bench.files.before = before
        self.bench.files.room_bytes = None
        self.messages = [message for message in self.messages if message.placed.ticket.refusal is None]
        self.written = self._count_up_to(self.bench.runner.passes.written)

    @rule()
    def settle(self) -> None:
        self.bench.settle()
        self.written = self._count_up_to(self.bench.runner.passes.written)

    @rule()
    def checkpoint(self) -> None:
        self.bench.store.checkpoint()

    @rule()
    def expire(self) -> None:
        self.bench.now_ms += 6_000
        self.bench.store.expire(self.bench.now_ms)

    def durable(self) -> int:
        return self._count_up_to(self.bench.runner.passes.durable)

    def _count_up_to(self, number: int) -> int:
        return sum(message.placed.ticket.number <= number for message in self.messages)

    @rule(seed=st.integers(0, 1000), keeps_names=st.booleans())
    def crash(self, seed: int, keeps_names: bool) -> None:
        """Power cut: the messages on disk are kept, and a prefix of the written ones after them."""
        least = self._count_up_to(self.bench.runner.passes.on_disk)
        self.bench.crash(TornPages(seed, keeps_names))
        self._adopt_recovered(least, self.written)

    @rule()
    def kill(self) -> None:
        """The process dies: all written messages are kept."""
        self.bench.kill()
        self._adopt_recovered(self.written, self.written)

    @rule()
    def stop(self) -> None:
        self.settle()
        self.bench.stop()
        assert "abort" not in self.bench.names("")
        self.bench.open()
        self._adopt_recovered(self.written, self.written)

    def _adopt_recovered(self, least: int, most: int) -> None:
        end = self.bench.store.log.end
        count = sum(message.placed.position < end for message in self.messages[:most])
        assert least <= count <= most
        self.messages = self.messages[:count]
        settled = self.bench.runner.passes.durable
        for message in self.messages:
            message.placed.ticket.number = settled
        self.written = count

    @invariant()
    def readers_see_durable_messages(self) -> None:
        store = self.bench.store
        durable = self.messages[: self.durable()]
        for queue in QUEUES:
            expected = [message for message in durable if message.queue == queue]
            start = store.queue(*queue).start
            assert all(message.placed.position < store.log.start for message in expected[:start])
            assert self.bench.bodies(*queue) == [message.body for message in expected[start:]]
            for key in "xyz":
                found = self.bench.find(queue[0], key)
                wanted = [
                    message.body
                    for message in durable
                    if (message.queue[0], message.key) == (queue[0], key) and message.placed.position >= store.log.start
                ]
                assert found == wanted[::-1]


class PooledCommitStoreMachine(CommitStoreMachine):
    """With flush = pooled: messages are written when the interval has passed or enough are collected."""

    bench: PooledBench

    @initialize(
        file_bytes=st.sampled_from([600, 2000, 1 << 16]),
        checkpoint_bytes=st.sampled_from([1, 700, 1 << 30]),
        index_entries=st.sampled_from([4, 20]),
        queue_file_entries=st.sampled_from([2, 8]),
    )
    def begin(self, **changes: int) -> None:
        self.bench = PooledBench(**changes)

    @rule(milliseconds=st.sampled_from([1, 200, 500]))
    def pass_time(self, milliseconds: int) -> None:
        self.bench.pass_time(milliseconds)
        self.written = self._count_up_to(self.bench.runner.passes.written)

    @rule()
    def append_much(self) -> None:
        for _ in range(40):
            self.append(("b", 0), 440, "z")

    @rule()
    def stop(self) -> None:
        self.bench.store.close()
        for _ in range(10):
            self.bench.sync()
        self.written = len(self.messages)
        self.bench.crash()
        self._adopt_recovered(self.written, self.written)


TestPooledCommitStore = PooledCommitStoreMachine.TestCase
TestPooledCommitStore.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)

TestCommitStore = CommitStoreMachine.TestCase
TestCommitStore.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
