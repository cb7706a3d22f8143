"""aio-pika against a broker process: many messages at once, confirms, returns, redelivery, dead letters, RPC,
transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aio_pika
import aio_pika.exceptions
import aio_pika.patterns
import pytest
from compat.cables import cable_to

from tools.broker import running

PATIENCE_S = 50


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        yield addresses["amqp"]


@pytest.fixture(scope="module")
def url(address: str) -> str:
    return f"amqp://guest:guest@{address}/"


def run(url: str, main: Callable[[Any], Awaitable[None]]) -> None:
    async def connected() -> None:
        connection = await aio_pika.connect(url)
        async with connection:
            await main(connection)

    asyncio.run(asyncio.wait_for(connected(), PATIENCE_S))


def message(body: bytes, **properties: Any) -> aio_pika.Message:
    return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, **properties)


def test_messages_published_at_once_are_confirmed_and_delivered_in_order(url: str) -> None:
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


def test_a_full_queue_that_refuses_is_an_error_of_its_publisher(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel()
        limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
        queue = await channel.declare_queue(exclusive=True, arguments=limits)
        await channel.default_exchange.publish(message(b"first"), queue.name)
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await channel.default_exchange.publish(message(b"second"), queue.name)

    run(url, main)


def test_a_consumer_gets_no_more_than_its_prefetch(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=3)
        queue = await channel.declare_queue(exclusive=True)
        for number in range(10):
            await channel.default_exchange.publish(message(b"%d" % number), queue.name)
        came: asyncio.Queue[Any] = asyncio.Queue()
        await queue.consume(came.put)
        first = [await came.get() for _ in range(3)]
        ready = (await channel.declare_queue(queue.name, passive=True)).declaration_result.message_count
        assert ([taken.body for taken in first], ready, came.empty()) == ([b"0", b"1", b"2"], 7, True)
        await first[1].ack(multiple=True)
        assert [(await came.get()).body for _ in range(2)] == [b"3", b"4"]

    run(url, main)


def test_a_robust_connection_that_is_cut_gets_its_unacked_messages_again(address: str) -> None:
    """The connection reconnects, declares and consumes again automatically."""

    async def main(cut: Callable[[], None], url: str) -> None:
        connection = await aio_pika.connect_robust(url, reconnect_interval=0.05)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("cut", durable=True)
            for number in range(3):
                await channel.default_exchange.publish(message(b"%d" % number), queue.name)
            came: asyncio.Queue[Any] = asyncio.Queue()
            await queue.consume(came.put)
            first = [await came.get() for _ in range(3)]
            cut()
            second = [await came.get() for _ in range(3)]
            for taken in second:
                await taken.ack()
            assert [(taken.body, taken.redelivered) for taken in first] == [(b"%d" % n, False) for n in range(3)]
            assert [(taken.body, taken.redelivered) for taken in second] == [(b"%d" % n, True) for n in range(3)]
            await channel.queue_delete("cut")

    with cable_to(address) as cable:
        asyncio.run(asyncio.wait_for(main(cable.cut, f"amqp://guest:guest@{cable.address}/"), PATIENCE_S))


def test_a_rejected_message_is_dead_lettered(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel()
        dead = await channel.declare_queue(exclusive=True)
        to = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
        queue = await channel.declare_queue(exclusive=True, arguments=to)
        await channel.default_exchange.publish(message(b"poison"), queue.name)
        await (await queue.get()).reject(requeue=False)
        letter = await dead.get(no_ack=True, timeout=PATIENCE_S)
        (death,) = letter.headers["x-death"]
        assert (letter.body, death["reason"], death["queue"]) == (b"poison", "rejected", queue.name)

    run(url, main)


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 5_000_000])
def test_a_body_of_any_size_survives_a_round_trip(url: str, size: int) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        body = (bytes(range(256)) * (size // 256 + 1))[:size]
        await channel.default_exchange.publish(message(body), queue.name)
        assert (await queue.get(no_ack=True)).body == body

    run(url, main)


def test_an_rpc_request_is_answered_by_direct_reply(url: str) -> None:
    async def main(connection: Any) -> None:
        client, server = await connection.channel(), await connection.channel()
        questions = await server.declare_queue(exclusive=True)
        replies = await client.get_queue("amq.rabbitmq.reply-to", ensure=False)
        came: asyncio.Queue[Any] = asyncio.Queue()
        await replies.consume(came.put, no_ack=True)
        asked = message(b"2+2", reply_to=replies.name, correlation_id="7")
        await client.default_exchange.publish(asked, questions.name)
        question = await questions.get(no_ack=True)
        answer = aio_pika.Message(b"4", correlation_id=question.correlation_id)
        await server.default_exchange.publish(answer, question.reply_to)
        reply = await came.get()
        assert (reply.body, reply.correlation_id) == (b"4", "7")

    run(url, main)


def test_a_rejected_message_is_redelivered_with_the_flag(url: str) -> None:
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


def test_a_transaction_is_committed_or_rolled_back(url: str) -> None:
    async def main(connection: Any) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(exclusive=True)
        rolled_back = channel.transaction()
        await rolled_back.select()
        await channel.default_exchange.publish(message(b"rolled back"), queue.name)
        await rolled_back.rollback()
        async with channel.transaction():
            await channel.default_exchange.publish(message(b"kept"), queue.name)
        seen = await (await connection.channel()).get_queue(queue.name)
        assert (await seen.get(no_ack=True)).body == b"kept"
        assert await seen.get(fail=False) is None

    run(url, main)
