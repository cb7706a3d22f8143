"""The blocking client."""

from __future__ import annotations

import threading

import pytest

from trimq.client import BadMessage, Client, Closed, GiveUp, Message, Sent, Start
from trimq.client.sync import BlockingReceived
from trimq.testing import Broker


def test_messages_are_sent_in_all_modes_and_read_by_iteration(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq:
        assert isinstance(mq.send("orders", b"1"), Sent)
        assert isinstance(mq.send_nowait("orders", b"2").result(20), Sent)
        assert len(mq.send_all("orders", [Message(b"3"), Message(b"4")])) == 2
        mq.send_oneway("orders", b"5")
        mq.flush()
        with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
            found = []
            for message in consumer:
                found.append(message.body)
                message.ack()
                if len(found) == 5:
                    break
            assert sorted(found) == [b"1", b"2", b"3", b"4", b"5"]
            assert sum(consumer.lag().values()) == 0
            consumer.commit()


def test_handlers_run_in_threads_and_settle(broker: Broker) -> None:
    threads = set()
    with Client(broker.rocketmq) as mq, mq.consumer("g", "orders", start=Start.FIRST) as consumer:
        for number in range(20):
            mq.send("orders", b"%d" % number)
        found = []

        def handle(message: BlockingReceived) -> None:
            threads.add(threading.current_thread())
            found.append(message.body)
            if message.body == b"3":
                raise GiveUp("not wanted")
            message.ack()
            if len(found) == 20:
                consumer.stop()

        consumer.run(handle, concurrency=3)
    assert len(found) == 20
    assert threading.current_thread() not in threads
    assert [record.body for record in broker.records("%DLQ%g")] == [b"3"]


def test_many_futures_are_handed_over_together(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq:
        futures = [mq.send_nowait("orders", b"%d" % number) for number in range(500)]
        assert len({future.result(20).id for future in futures}) == 500  # type: ignore[union-attr]
        with pytest.raises(BadMessage):
            mq.send_nowait("orders", b"").result(20)


def test_a_call_on_the_loop_of_the_client_is_refused_at_once(broker: Broker) -> None:
    def intercept(topic: str, message: Message) -> Message:
        mq.send("orders", b"x")
        return message

    with Client(broker.rocketmq, interceptors=[intercept]) as mq, pytest.raises(RuntimeError, match="AsyncClient"):
        mq.send("orders", b"y")


def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(Closed, match="with Client"):
        Client("127.0.0.1:1").send("orders", b"x")
