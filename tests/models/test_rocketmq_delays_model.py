"""Delayed messages against a dict of their due times, through stops, kills and power cuts at any moment of a delivery:
each message is delivered once, not too early, in the order of its queue, and never if it was recalled."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of

from trimq.core.scheduling import timers
from trimq.protocols.rocketmq.schedule import progress, restart_scan

SECOND = 1000
QUEUES = (0, 1)
LEVELS_MS = {1: SECOND, 2: 5 * SECOND, 3: 10 * SECOND}
ENDS = st.sampled_from(["restart", "kill", "cut_power"])
# The second kind is delivered on the slow path, between the others.
KINDS = st.sampled_from(["", "TIMER_ENQUEUE_MS\x011\x02"])


@dataclass
class Sent:
    """`where`: the queue of the message. Messages of one queue are delivered in the order of their due times."""

    where: tuple[int, int]
    due_ms: int
    number: int
    handle: str = ""
    is_recalled: bool = False
    is_in_order: bool = True


class DelaysMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(commit_file_bytes=1 << 16, message_bytes=20_000, index_keys=1000)
        self.numbers = count()
        self.model: dict[bytes, Sent] = {}

    @property
    def now_ms(self) -> int:
        return self.desk.message_time.now_ms()

    # -- sending

    def send(self, properties: str, queue: int, level: int, due_ms: int) -> None:
        number = next(self.numbers)
        body = b"%d" % number
        answer = self.desk.broker.send("t", body, queue, f"UNIQ_KEY\x01K{number}\x02{properties}")
        assert answer.code == 0
        self.model[body] = Sent((level, queue), due_ms, number, answer.fields.get("recallHandle", ""))

    @rule(many=st.integers(1, 8), seconds=st.integers(1, 40), queue=st.sampled_from(QUEUES), kind=KINDS)
    def wait_until(self, many: int, seconds: int, queue: int, kind: str) -> None:
        due_ms = self.now_ms + seconds * SECOND
        for _ in range(many):
            self.send(f"TIMER_DELIVER_MS\x01{due_ms}\x02{kind}", queue, 0, due_ms)

    @rule(many=st.integers(1, 12), queue=st.sampled_from(QUEUES))
    def wait_until_the_minute(self, many: int, queue: int) -> None:
        """Many messages are due together, at any position."""
        due_ms = (self.now_ms // (60 * SECOND) + 1) * 60 * SECOND
        for number in range(many):
            kind = "TIMER_ENQUEUE_MS\x011\x02" if number % 5 == 3 else ""
            self.send(f"TIMER_DELIVER_MS\x01{due_ms}\x02{kind}", queue, 0, due_ms)

    @rule(many=st.integers(1, 6), level=st.sampled_from([1, 2, 3]), queue=st.sampled_from(QUEUES))
    def wait_by_level(self, many: int, level: int, queue: int) -> None:
        for _ in range(many):
            self.send(f"DELAY\x01{level}\x02", queue, level, self.now_ms + LEVELS_MS[level])

    @precondition(lambda self: any(each.handle for each in self.model.values()))
    @rule(choice=st.integers(0, 10**6))
    def recall(self, choice: int) -> None:
        waiting = [each for each in self.model.values() if each.handle and each.due_ms > self.now_ms]
        if waiting:
            chosen = waiting[choice % len(waiting)]
            fields = {"producerGroup": "pg", "topic": "t", "recallHandle": chosen.handle}
            assert self.desk.broker.ask(370, fields).code == 0
            chosen.is_recalled = True

    # -- time, stops and crashes

    @rule(seconds=st.integers(1, 30))
    def advance(self, seconds: int) -> None:
        self.desk.advance(seconds * SECOND)

    @rule(seconds=st.integers(1, 30))
    def advance_on_a_full_disk(self, seconds: int) -> None:
        until_ms = self.now_ms + seconds * SECOND
        for each in self.model.values():
            each.is_in_order = each.is_in_order and each.due_ms > until_ms
        self.desk.fail_writes("commitlog")
        self.desk.advance(seconds * SECOND)
        self.desk.files.before = lambda operation, name: None

    @rule(ends=ENDS)
    def end(self, ends: str) -> None:
        self.desk = getattr(self.desk, ends)()

    @rule(ends=ENDS, whole=st.integers(0, 4), turns=st.integers(1, 3), writes=st.booleans(), syncs=st.integers(0, 2))
    def end_amid_a_delivery(self, ends: str, whole: int, turns: int, writes: bool, syncs: int) -> None:
        """Ends the broker after `whole` complete turns and some partly written ones."""
        desk = self.desk
        due_ms = min((each.due_ms for each in self.model.values() if each.due_ms > self.now_ms), default=self.now_ms)
        desk.advance(due_ms - 1 - self.now_ms)
        for _ in range(whole):
            desk.message_time.step(due_ms)
            desk.runner.settle()
        for _ in range(turns):
            desk.message_time.step(due_ms)
        if writes:
            desk.runner.end_pass()
        for _ in range(syncs):
            desk.runner.offload.run_one()
        self.end(ends)

    # -- invariants

    def delivered(self, queue: int) -> list[bytes]:
        bodies: list[bytes] = []
        while (answer := self.desk.broker.pull("t", len(bodies), queue)).code == 0:
            bodies += bodies_of(answer)
        return bodies

    @invariant()
    def each_is_delivered_once_in_time_and_in_order(self) -> None:
        for queue in QUEUES:
            delivered = self.delivered(queue) if self.model else []
            assert len(delivered) == len({*delivered}), "a message was delivered twice"
            last: dict[tuple[int, int], tuple[int, int]] = {}
            for body in delivered:
                sent = self.model[body]
                assert not sent.is_recalled
                assert sent.due_ms <= self.now_ms
                if sent.is_in_order:
                    assert last.get(sent.where, (0, 0)) < (sent.due_ms, sent.number)
                    last[sent.where] = sent.due_ms, sent.number

    def teardown(self) -> None:
        self.desk.advance(3600 * SECOND)
        delivered = {body for queue in QUEUES for body in (self.delivered(queue) if self.model else [])}
        assert delivered == {body for body, sent in self.model.items() if not sent.is_recalled}


def low_limits(patch: pytest.MonkeyPatch) -> None:
    """Lowers all limits, so that batches, checkpoints and scans end at any message."""
    patch.setattr(timers, "FIRES_PER_TURN", 3)
    patch.setattr(restart_scan, "_MAX_SINGLE_LOOKUPS", 0)
    patch.setattr(restart_scan, "_AT_ONCE", 2)
    patch.setattr(progress, "_CHECKPOINT_BYTES", 600)
    patch.setattr(progress, "_CHECKPOINT_MESSAGES", 2)


def low_limits_without_scan(patch: pytest.MonkeyPatch) -> None:
    """Makes the log too long for a scan after a restart: deliveries are looked up one by one."""
    low_limits(patch)
    patch.setattr(restart_scan, "_MAX_BYTES", -1)


@pytest.mark.parametrize(
    "change", [low_limits, low_limits_without_scan, lambda patch: None], ids=["low limits", "without scan", "usual"]
)
def test_delayed_messages_are_delivered_once_after_any_stop_or_crash(
    change: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(change)
    change(monkeypatch)
    run_state_machine_as_test(DelaysMachine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None))
