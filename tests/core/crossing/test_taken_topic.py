"""Topics whose messages are taken one by one, over power cuts: what was settled durably stays settled, everything else
comes again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.rocketmq.rocketmq_desk import Desk

from trimq.core.queues.consumers import Consumer, Subscription
from trimq.core.queues.unacked import Delivery
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import check_sent
from trimq.model import SYSTEM, Caller, Layout, Record, TopicName

CALLER = Caller("anonymous", "client", "10.0.0.1:5000", "amqp")
STREAMS = 2

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("settle"), st.just(0)),
        st.tuples(st.sampled_from(["ack", "requeue", "reject"]), st.integers(0, 50)),
        st.tuples(st.sampled_from(["leave", "cut"]), st.just(0)),
    ),
    max_size=30,
)


class Worker:
    """One consumer, which keeps what it gets until the test settles it."""

    can_take = True

    def __init__(self, desk: Desk) -> None:
        self.held: list[Delivery] = []
        self._queues = desk.core.broker.queues
        self.consumer = self._queues.subscribe(CALLER, "t", "owner", Subscription("c", self, prefetch=5))

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.held += deliveries

    def leave(self) -> None:
        self._queues.unsubscribe(self.consumer)
        self._queues.requeue(self.held, counts=False)


def place(delivery: Delivery) -> bytes:
    return delivery.message.body


class Story:
    def __init__(self) -> None:
        self.desk = Desk()
        self.desk.core.broker.topics.create(SYSTEM, "t", Layout.PARTITION_LOG, STREAMS, {})
        self.desk.settle()
        self.sent: set[bytes] = set()
        self.settled: set[bytes] = set()
        self.kept: set[bytes] = set()
        """What was settled when everything was durable last."""
        self.worker = Worker(self.desk)

    def run(self, step: str, number: int) -> None:
        queues, held = self.desk.core.broker.queues, self.worker.held
        if step == "send":
            for _ in range(number):
                self._send()
            self.settle()
        elif step == "settle":
            self.settle()
        elif step == "leave":
            self.worker.leave()
            self.worker = Worker(self.desk)
            self.settle()
        elif step == "cut":
            self.desk = self.desk.cut_power()
            self.settled = set(self.kept)
            self.worker = Worker(self.desk)
            self.settle()
        elif held:
            delivery = held.pop(number % len(held))
            if step == "requeue":
                queues.requeue([delivery], counts=True)
            else:
                (queues.ack([delivery]) if step == "ack" else queues.reject([delivery], counts=True))
                self.settled.add(place(delivery))

    def settle(self) -> None:
        self.desk.settle()
        self.kept = set(self.settled)

    def _send(self) -> None:
        topic = self.desk.core.topics.get(TopicName("", "t"))
        body = b"%d" % len(self.sent)
        batch = from_records([Record(body, timestamp_ms=1)])
        stream = topic.stream(len(self.sent) % STREAMS)
        self.desk.core.broker.partitions.append(SYSTEM, topic, stream, batch, check_sent(batch))
        self.sent.add(body)

    def finish(self) -> None:
        """Acknowledges all that comes."""
        for _ in range(200):
            self.settle()
            held = [place(delivery) for delivery in self.worker.held]
            assert len(held) == len(set(held)), "a message is in flight once"
            assert not self.settled.intersection(held), "what is settled stays settled"
            if not held:
                break
            self.settled.update(held)
            deliveries, self.worker.held = self.worker.held, []
            self.desk.core.broker.queues.ack(deliveries)
        assert self.settled == self.sent, "every message comes"


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_settled_messages_stay_settled_and_all_others_come(steps: list[tuple[str, int]]) -> None:
    story = Story()
    for step, number in steps:
        story.run(step, number)
        held = [place(delivery) for delivery in story.worker.held]
        assert len(held) == len(set(held)) <= 5
    story.finish()
