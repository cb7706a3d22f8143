"""AMQP channels against a model of one queue: every message is ready, unacked by one channel, or acked. No message is
lost or duplicated, and first deliveries are in order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from protocols.amqp.desk import PERSISTENT, Client, Content, Desk

from trimq.protocols.amqp import methods

CHANNELS = (1, 2)


class Channels(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.desk = Desk()
        self.publisher = self.desk.client(1)
        self.publisher.declare(1, "q")
        self.count = 0
        self.ready: list[int] = []
        self.delivered_before: set[int] = set()
        self.clients: list[Client] = []
        # Unacked messages by client, channel and delivery tag.
        self.unacked: dict[tuple[int, int, int], int] = {}
        self.consumers: set[tuple[int, int]] = set()
        self.connect()

    def connect(self) -> None:
        self.clients.append(self.desk.client(*CHANNELS))

    def receive_deliveries(self) -> None:
        """Records all deliveries. First deliveries are in order: no older message stays in the queue, and each channel
        gets the older ones first."""
        self.desk.settle()
        known = set(self.delivered_before)
        fresh: dict[tuple[int, int], list[int]] = {}
        for index, client in enumerate(self.clients):
            for channel, content in client.heard_by_channel():
                if isinstance(content, Content) and isinstance(
                    content.method, methods.BasicDeliver | methods.BasicGetOk
                ):
                    number = self.take(index, channel, content)
                    if number not in known:
                        fresh.setdefault((index, channel), []).append(number)
        newest = max((number for numbers in fresh.values() for number in numbers), default=-1)
        assert all(number > newest for number in self.ready if number not in known)
        assert all(numbers == sorted(numbers) for numbers in fresh.values())

    def take(self, index: int, channel: int, content: Content) -> int:
        number = int(content.body)
        method = content.method
        assert isinstance(method, methods.BasicDeliver | methods.BasicGetOk)
        assert number in self.ready
        assert method.is_redelivered is (number in self.delivered_before)
        self.ready.remove(number)
        self.delivered_before.add(number)
        self.unacked[index, channel, method.delivery_tag] = number
        return number

    def return_unacked(self, index: int, channel: int | None = None) -> None:
        for held in [held for held in self.unacked if held[0] == index and channel in (None, held[1])]:
            self.ready.append(self.unacked.pop(held))
        self.ready.sort()
        self.consumers = {
            (client, number) for client, number in self.consumers if client != index or channel not in (None, number)
        }

    # -- rules

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        numbers = range(self.count, self.count + count)
        self.count += count
        self.ready += numbers
        self.publisher.publish(1, "q", *(b"%d" % number for number in numbers), header=PERSISTENT)
        self.receive_deliveries()

    @rule(index=st.integers(0, 3), channel=st.sampled_from(CHANNELS), prefetch=st.integers(0, 3))
    def consume(self, index: int, channel: int, prefetch: int) -> None:
        index %= len(self.clients)
        if (index, channel) in self.consumers:
            return
        client = self.clients[index]
        client.tell(
            channel, methods.BasicQos(prefetch_count=prefetch), methods.BasicConsume(queue="q", consumer_tag="t")
        )
        self.consumers.add((index, channel))
        self.receive_deliveries()

    @rule(index=st.integers(0, 3), channel=st.sampled_from(CHANNELS))
    def get(self, index: int, channel: int) -> None:
        self.clients[index % len(self.clients)].tell(channel, methods.BasicGet(queue="q"))
        self.receive_deliveries()

    @precondition(lambda self: self.unacked)
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "requeue", "reject", "put back"]), multiple=st.booleans())
    def settle(self, data: st.DataObject, how: str, multiple: bool) -> None:
        index, channel, tag = data.draw(st.sampled_from(sorted(self.unacked)))
        multiple = multiple and how not in ("reject", "put back")
        method = {
            "ack": methods.BasicAck(tag, multiple),
            "nack": methods.BasicNack(tag, multiple, False),
            "requeue": methods.BasicNack(tag, multiple, True),
            "reject": methods.BasicReject(tag, False),
            "put back": methods.BasicReject(tag, True),
        }[how]
        for held in sorted(self.unacked):
            if held[:2] == (index, channel) and (held[2] == tag or (multiple and held[2] < tag)):
                number = self.unacked.pop(held)
                if how in ("requeue", "put back"):
                    self.ready.append(number)
        self.ready.sort()
        self.clients[index].tell(channel, method)
        self.receive_deliveries()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        index, channel = data.draw(st.sampled_from(sorted(self.consumers)))
        self.consumers.remove((index, channel))
        self.clients[index].tell(channel, methods.BasicCancel("t"))
        self.receive_deliveries()

    @rule(index=st.integers(0, 3), channel=st.sampled_from(CHANNELS))
    def close_channel(self, index: int, channel: int) -> None:
        index %= len(self.clients)
        self.return_unacked(index, channel)
        self.clients[index].tell(channel, methods.ChannelClose(200, "bye"), methods.ChannelOpen())
        self.receive_deliveries()

    @rule(index=st.integers(0, 3))
    def cut(self, index: int) -> None:
        """Closes a connection and opens another in its place."""
        index %= len(self.clients)
        self.return_unacked(index)
        self.clients[index].lose()
        self.clients[index] = self.desk.client(*CHANNELS)
        self.receive_deliveries()

    @rule()
    def add_client(self) -> None:
        if len(self.clients) < 3:
            self.connect()

    # -- invariants

    @invariant()
    def the_queue_counts_its_ready_messages(self) -> None:
        declared = self.publisher.ask(1, methods.QueueDeclare(queue="q", is_passive=True))
        assert (declared.message_count, declared.consumer_count) == (len(self.ready), len(self.consumers))

    def teardown(self) -> None:
        """When all connections are closed, the unacked messages are ready again, in order."""
        if not hasattr(self, "clients"):
            return
        for index, client in enumerate(self.clients):
            self.return_unacked(index)
            client.lose()
        self.desk.settle()
        left = []
        while isinstance(got := self.publisher.ask(1, methods.BasicGet(queue="q", no_ack=True)), Content):
            left.append(int(got.body))
        assert left == sorted(self.ready)


TestChannels = Channels.TestCase
TestChannels.settings = settings(max_examples=30, stateful_step_count=20, database=None, deadline=None)
