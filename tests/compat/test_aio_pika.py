"""aio-pika against a broker process of its own: much at once, confirms, returns, redelivery, RPC, transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aio_pika
import aio_pika.exceptions
import aio_pika.patterns
import pytest

from tools.broker import running

PATIENCE_S = 50


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        yield f"amqp://guest:guest@{addresses['amqp']}/"


def run(url: str, main: Callable[[Any], Awaitable[None]]) -> None:
    async def connected() -> None:
        connection = await aio_pika.connect(url)
        async with connection:
            await main(connection)

    asyncio.run(asyncio.wait_for(connected(), PATIENCE_S))


def message(body: bytes, **properties: Any) -> aio_pika.Message:
    return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, **properties)


def test_messages_published_at_once_are_confirmed_and_come_in_order(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue("burst", durable=True)
        publish = channel.default_exchange.publish
        await asyncio.gather(*(publish(message(b"%d" % number), queue.name) for number in range(200)))
        bodies = []
        async with queue.iterator(timeout=PATIENCE_S) as messages:
            async for came in messages:
                async with came.process():
                    bodies.append(int(came.body))
                if len(bodies) == 200:
                    break
        assert bodies == list(range(200))

    run(url, main)


def test_a_thousand_queues_are_made_used_and_deleted(url: str) -> None:
    async def main(connection: Any) -> None:
        channels = [await connection.channel() for _ in range(50)]

        async def use(number: int) -> bytes:
            channel = channels[number % len(channels)]
            queue = await channel.declare_queue(f"many.{number}", durable=True)
            await channel.default_exchange.publish(message(b"%d" % number), queue.name)
            came = await queue.get(no_ack=True, timeout=PATIENCE_S)
            await queue.delete(timeout=PATIENCE_S)
            return bytes(came.body)

        found = await asyncio.gather(*(use(number) for number in range(1000)))
        assert found == [b"%d" % number for number in range(1000)]

    run(url, main)


def test_a_message_without_a_route_is_an_error_of_its_publisher(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.PublishError):
            await channel.default_exchange.publish(message(b"lost"), "nowhere")

    run(url, main)


def test_a_rejected_message_comes_back_marked(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await channel.default_exchange.publish(message(b"again"), queue.name)
        first = await queue.get()
        await first.reject(requeue=True)
        second = await queue.get()
        await second.ack()
        assert (first.redelivered, second.redelivered, second.body) == (False, True, b"again")
        assert await queue.get(fail=False) is None

    run(url, main)


def test_procedures_are_called_through_queues(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel()
        rpc = await aio_pika.patterns.RPC.create(channel)

        async def multiply(*, x: int, y: int) -> int:
            return x * y

        await rpc.register("multiply", multiply, auto_delete=True)
        answers = await asyncio.gather(*(rpc.call("multiply", {"x": x, "y": 7}) for x in range(20)))
        assert answers == [x * 7 for x in range(20)]
        await rpc.close()

    run(url, main)


def test_a_transaction_is_committed(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(message(b"kept"), queue.name)
        seen = await (await connection.channel()).get_queue(queue.name)
        assert (await seen.get(no_ack=True)).body == b"kept"

    run(url, main)
