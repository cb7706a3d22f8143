"""The asyncio client against an embedded broker."""

from __future__ import annotations

import asyncio
import inspect
import os
from datetime import timedelta

import pytest

from trimq.client import (
    AsyncClient,
    BadBatch,
    BadMessage,
    Client,
    Closed,
    Dropped,
    Json,
    Message,
    Sent,
    Start,
)
from trimq.model import Record
from trimq.testing import Broker


def records(broker: Broker, topic: str, queues: int = 4) -> list[Record]:
    return [record for number in range(queues) for record in broker.records(topic, number)]


def test_a_sent_message_is_stored_with_all_its_parts(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq, group="shop") as mq:
            sent = await mq.send("orders", b"body", key="42", tag="paid", keys=["order-42"], headers={"a": "1"})
            assert isinstance(sent, Sent)
            (record,) = records(broker, "orders")
            headers = dict(record.headers)
            assert (record.body, record.key, headers["TAGS"], headers["a"]) == (b"body", b"order-42", b"paid", b"1")
            assert headers["UNIQ_KEY"].decode() == sent.id
            assert sent.offset == record.offset == 0

    asyncio.run(main())


def test_each_mode_stores(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            await mq.send("orders", b"1")
            await mq.send_nowait("orders", b"2")
            await mq.send_all("orders", [Message(b"3"), Message(b"4")])
            mq.send_oneway("orders", b"5")
            mq.send_nowait("orders", b"6")
            await mq.flush()
            await mq.send("orders", b"7")
        assert sorted(record.body or b"" for record in records(broker, "orders")) == [b"%d" % n for n in range(1, 8)]

    asyncio.run(main())


def test_a_one_way_message_before_the_first_connection_is_sent_too(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            mq.send_oneway("orders", b"1")
            await mq.flush()
            await mq.send("orders", b"2")
            assert mq.dropped == 0
        assert len(records(broker, "orders")) == 2

    asyncio.run(main())


def test_a_one_way_message_without_a_broker_is_dropped_and_counted() -> None:
    async def main() -> None:
        async with AsyncClient("127.0.0.1:1") as mq:
            mq.send_oneway("orders", b"1", timeout=0.2)
            await mq.flush()
            assert mq.dropped == 1

    asyncio.run(main())


def test_interceptors_run_in_order_before_the_serializer_and_can_drop(broker: Broker) -> None:
    trace: list[str] = []

    def first(topic: str, message: Message) -> Message | None:
        trace.append(f"first {message.body}")
        return None if message.body == "drop" else Message({"was": message.body})

    def second(topic: str, message: Message) -> Message | None:
        trace.append(f"second {message.body}")
        if message.body == {"was": "bad"}:
            raise ValueError("no")
        return message

    async def main() -> None:
        async with AsyncClient(broker.rocketmq, interceptors=[first, second], serializer=Json()) as mq:
            assert isinstance(await mq.send("orders", 1), Sent)
            assert await mq.send("orders", "drop") is Dropped.DROPPED
            assert await mq.send_nowait("orders", "drop") is Dropped.DROPPED
            mq.send_oneway("orders", "drop")
            with pytest.raises(ValueError, match="no"):
                await mq.send("orders", "bad")
            assert await mq.send_all("orders", [Message("drop")]) == []
            assert [record.body for record in records(broker, "orders")] == [b'{"was":1}']
            async with mq.consumer("g", "orders", start=Start.FIRST) as consumer:
                (message,) = await consumer.receive(20)
                assert message.value == {"was": 1}

    asyncio.run(main())
    assert trace[:2] == ["first 1", "second {'was': 1}"]


@pytest.mark.parametrize("body", ["text", 5, None])
def test_a_body_that_is_no_bytes_needs_a_serializer(broker: Broker, body: object) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            with pytest.raises(BadMessage, match="serializer"):
                await mq.send("orders", body)
            with pytest.raises(BadMessage, match="empty"):
                await mq.send("orders", b"")

    asyncio.run(main())


def test_a_mixed_batch_is_refused_with_the_place_of_the_offender(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            with pytest.raises(BadBatch, match="message 1 of the batch: a delayed") as bad:
                await mq.send_all("orders", [Message(b"1"), Message(b"2", delay=timedelta(minutes=1))])
            assert bad.value.index == 1
            with pytest.raises(BadBatch, match="retry topic"):
                await mq.send_all("%RETRY%g", [Message(b"1")])

    asyncio.run(main())


def test_delays_and_levels_deliver_later(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq) as mq:
            sent = await mq.send("orders", b"delay", delay=timedelta(minutes=30))
            assert isinstance(sent, Sent)
            assert sent.recall
            await mq.send("orders", b"level", level=5)
            assert records(broker, "orders") == []
            await asyncio.to_thread(broker.advance, "1m")
            assert [record.body for record in records(broker, "orders")] == [b"level"]
            await asyncio.to_thread(broker.advance, "30m")
            assert {record.body for record in records(broker, "orders")} == {b"level", b"delay"}

    asyncio.run(main())


def test_a_closed_client_says_so(broker: Broker) -> None:
    async def main() -> None:
        mq = AsyncClient(broker.rocketmq)
        with pytest.raises(Closed, match="not open"):
            await mq.send("orders", b"x")
        async with mq:
            await mq.send("orders", b"x")
        with pytest.raises(Closed):
            await mq.send("orders", b"x")

    asyncio.run(main())


@pytest.mark.parametrize("group", ["", "a b", "ä", "x" * 256])
def test_illegal_groups_are_refused_before_anything_is_sent(group: str) -> None:
    with pytest.raises(ValueError, match="group"):
        AsyncClient("127.0.0.1:1", group=group)


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:99999", "host:x"])
def test_malformed_name_servers_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="name server"):
        AsyncClient(address)


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def shape(kind: type) -> dict[str, list[str]]:
        return {
            name: [str(parameter) for parameter in inspect.signature(member).parameters.values()]
            if callable(member)
            else []
            for name, member in vars(kind).items()
            if not name.startswith("_") or name == "__init__"
        }

    assert shape(Client) == shape(AsyncClient)


def test_the_help_of_send_fits_a_screen() -> None:
    text = inspect.getdoc(AsyncClient.send) or ""
    assert len(text.splitlines()) + len(inspect.signature(AsyncClient.send).parameters) <= 24


def test_parent_and_child_of_a_fork_both_send(broker: Broker) -> None:
    with Client(broker.rocketmq) as mq:
        mq.send("orders", b"before")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                mq.send("orders", b"child")
                mq.close()
                code = 0
            finally:
                os._exit(code)
        mq.send("orders", b"parent")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        mq.send("orders", b"after")
    assert {record.body for record in records(broker, "orders")} == {b"before", b"child", b"parent", b"after"}
