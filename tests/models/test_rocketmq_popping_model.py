"""Messages that a group pops and receives over both RocketMQ front-ends, against a dict of their states: ready, in
flight, acked or dead-lettered. Across stops and crashes, none is lost, delivered to two consumers or delivered after
its ack."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from protocols.rocketmq import rocketmq_desk
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, Phone, handle_of, message
from protocols.rocketmq.grpc.handlers.test_ack import acked, forwarded
from protocols.rocketmq.handlers.test_ack import ACK, CHANGE, receipts

from trimq.model import SYSTEM
from trimq.protocols.rocketmq.grpc.wire.enums import Code

POP = 200050
SECOND = 1000
LIMIT = 2  # how often a message may be revived
COUNTS = st.sampled_from([1, 2, 5, 32])
TIMES_S = st.integers(10, 90)

# Identity of a receipt: whether its message was revived, its queue and offset, and its pop time.
Identity = tuple[str, str, str, str]


def identity_of(handle: str) -> Identity:
    _, given, _, _, mark, _, queue, offset, *_ = handle.split(" ")
    return mark, queue, offset, given


@dataclass
class Sent:
    """`receipt` is None while the message is ready."""

    given: int = 0
    receipt: Identity | None = None
    deadline_ms: int = 0
    is_settled: bool = False
    is_dead: bool = False

    @property
    def waits(self) -> bool:
        return self.receipt is None and not self.is_settled and not self.is_dead


class PoppingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.begin(GrpcDesk(commit_file_bytes=1 << 20, index_keys=1000))
        self.desk.make_topic("t", queues=2)
        self.desk.make_group("g", retryMaxTimes=LIMIT)
        self.numbers = count()
        self.model: dict[bytes, Sent] = {}
        self.handles: list[tuple[bytes, str]] = []

    def begin(self, desk: GrpcDesk) -> None:
        self.desk = desk
        self.phone: Phone = desk.client()

    @property
    def now_ms(self) -> int:
        return self.desk.desk.message_time.now_ms()

    # -- delivery

    @rule(many=st.integers(1, 4))
    def send(self, many: int) -> None:
        for _ in range(many):
            body = b"%d" % next(self.numbers)
            assert self.phone.send(message("t", body)).status.code == Code.OK
            self.model[body] = Sent()

    @rule(many=COUNTS, seconds=TIMES_S)
    def receive(self, many: int, seconds: int) -> None:
        found = self.phone.receive("t", count=many, invisible_ms=seconds * SECOND)
        given = [(each.body, handle_of(each), each.system_properties.delivery_attempt - 1) for each in found]
        self.check_delivered(given, many, seconds * SECOND)

    @rule(many=COUNTS, seconds=TIMES_S)
    def pop(self, many: int, seconds: int) -> None:
        fields = {"consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": many, "pollTime": 0}
        popped = self.desk.desk.broker.ask(POP, {**fields, "invisibleTime": seconds * SECOND, "initMode": 0})
        if popped.code != 0:
            assert popped.code == 210
            self.check_delivered([], many, 0)
            return
        units = rocketmq_desk.units_of(popped)
        texts = [receipt["extraInfo"] for receipt in receipts(popped)]
        pairs = zip(units, texts, strict=True)
        self.check_delivered(
            [(bytes(unit.body), text, unit.reconsume_times) for unit, text in pairs], many, seconds * SECOND
        )

    def check_delivered(self, found: list[tuple[bytes, str, int]], most: int, invisible_ms: int) -> None:
        waiting = {body for body, sent in self.model.items() if sent.waits}
        bodies = [body for body, _, _ in found]
        assert len(set(bodies)) == len(bodies), "delivered twice in one response"
        assert set(bodies) <= waiting, "delivered while in flight, acked or dead-lettered"
        assert len(bodies) == min(most, len(waiting)), "a ready message was not delivered"
        for body, handle, before in found:
            sent = self.model[body]
            assert sent.given == before, "the delivery count is wrong"
            sent.given += 1
            sent.receipt, sent.deadline_ms = identity_of(handle), self.now_ms + invisible_ms
            self.handles.append((body, handle))

    # -- acknowledgement

    def choose(self, data: Any) -> tuple[bytes, str, Sent, bool]:
        """Chooses a current or an old receipt, and returns whether it is valid."""
        body, handle = data.draw(st.sampled_from(self.handles))
        sent = self.model[body]
        return body, handle, sent, sent.receipt is not None and sent.receipt == identity_of(handle)

    def place(self, handle: str) -> dict[str, Any]:
        _, _, _, _, mark, _, queue, offset, *_ = handle.split(" ")
        topic = "%RETRY%g_t" if mark == "1" else "t"
        return {"consumerGroup": "g", "topic": topic, "queueId": queue, "offset": offset, "extraInfo": handle}

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), by_grpc=st.booleans())
    def ack(self, data: Any, by_grpc: bool) -> None:
        _, handle, sent, counts = self.choose(data)
        if by_grpc:
            response = acked(self.phone, handle).status.code
            assert response == Code.OK if counts else response in (Code.OK, Code.INVALID_RECEIPT_HANDLE)
        else:
            assert self.desk.desk.broker.ask(ACK, self.place(handle)).code == 0
        if counts:
            sent.receipt, sent.is_settled = None, True

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), seconds=st.integers(1, 90), by_grpc=st.booleans())
    def change(self, data: Any, seconds: int, by_grpc: bool) -> None:
        body, handle, sent, counts = self.choose(data)
        if by_grpc:
            answer = self.phone.change("t", handle, seconds * SECOND)
            assert (answer.status.code == Code.OK) == counts
            changed = answer.receipt_handle
        else:
            response = self.desk.desk.broker.ask(CHANGE, {**self.place(handle), "invisibleTime": seconds * SECOND})
            assert (response.code == 0) == counts
            start, _, _, queue, mark, broker, number, offset, *_ = handle.split(" ")
            changed = " ".join([start, response.fields["popTime"], "0", queue, mark, broker, number, offset])
        if counts:
            sent.receipt, sent.deadline_ms = identity_of(changed), self.now_ms + seconds * SECOND
            self.handles.append((body, changed))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def forward_to_dlq(self, data: Any) -> None:
        _, handle, sent, counts = self.choose(data)
        assert (forwarded(self.phone, handle) == Code.OK) == counts
        if counts:
            sent.receipt, sent.is_dead = None, True

    # -- time, stops and crashes

    @rule(seconds=st.integers(1, 100))
    def advance(self, seconds: int) -> None:
        self.desk.desk.advance(seconds * SECOND)
        for sent in self.model.values():
            if sent.receipt is not None and sent.deadline_ms <= self.now_ms:
                sent.receipt, sent.is_dead = None, sent.given > LIMIT

    @rule()
    def restart(self) -> None:
        self.begin(self.desk.restart())

    @rule()
    def kill(self) -> None:
        self.begin(GrpcDesk(self.desk.desk.kill()))

    @rule()
    def cut_power(self) -> None:
        self.begin(GrpcDesk(self.desk.desk.cut_power()))

    @invariant()
    def dead_letters_are_in_the_dead_letter_topic(self) -> None:
        dead = [body for body, sent in self.model.items() if sent.is_dead]
        found = rocketmq_desk.bodies_of(self.desk.desk.broker.pull("%DLQ%g")) if dead else []
        assert sorted(found) == sorted(dead)
        failures = self.desk.desk.core.broker.failures.all(SYSTEM)
        assert [failure.entry.record.body for failure in failures] == found


PoppingMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_popping_against_a_dict = PoppingMachine.TestCase
