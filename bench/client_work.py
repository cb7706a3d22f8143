"""`python -m bench.client_work WORK ADDRESSES COUNT`: one client at work in a process of its own. Prints CPU time for
each message and messages per second as JSON. Imports each client only for its own work."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import Any

BODY = b"x" * 100
TOPIC = "bench"
WARM = 64


class Timed:
    """CPU time and wall time of a block."""

    def __init__(self) -> None:
        self.cpu_s, self.wall_s = -time.process_time(), -time.perf_counter()

    def end(self, count: int) -> dict[str, float]:
        self.cpu_s += time.process_time()
        self.wall_s += time.perf_counter()
        return {"cpu_us": self.cpu_s / count * 1e6, "rate": count / self.wall_s}


Addresses = dict[str, Any]
Figures = dict[str, float]


def address_of(addresses: Addresses, listener: str) -> str:
    found = addresses[listener]
    return str(found if isinstance(found, str) else found["address"])


# -- trimq.client


def asynchronous(run: Callable[[Any, int], Awaitable[None]], **options: Any) -> Callable[[Addresses, int], Figures]:
    def work(addresses: Addresses, count: int) -> Figures:
        from trimq.client import AsyncClient

        async def main() -> Figures:
            async with AsyncClient(address_of(addresses, "rocketmq"), timeout=30, **options) as mq:
                await run(mq, WARM)
                await mq.flush()
                timed = Timed()
                await run(mq, count)
                await mq.flush()
                return timed.end(count)

        return asyncio.run(main())

    return work


async def one(mq: Any, count: int) -> None:
    for _ in range(count):
        await mq.send(TOPIC, BODY)


async def window(mq: Any, count: int) -> None:
    async def sender() -> None:
        for _ in range(count // 64):
            await mq.send(TOPIC, BODY)

    await asyncio.gather(*[sender() for _ in range(64)])


async def nowait(mq: Any, count: int) -> None:
    free = asyncio.Semaphore(256)
    for _ in range(count):
        await free.acquire()
        mq.send_nowait(TOPIC, BODY).add_done_callback(lambda _: free.release())


async def gathered(mq: Any, count: int) -> None:
    for begin in range(0, count, 5000):
        futures = [mq.send_nowait(TOPIC, BODY) for _ in range(min(5000, count - begin))]
        await mq.flush()
        assert all(future.done() for future in futures)


async def oneway(mq: Any, count: int) -> None:
    for number in range(count):
        mq.send_oneway(TOPIC, BODY)
        if number % 64 == 0:
            await asyncio.sleep(0)


def gathering(addresses: Addresses, count: int) -> Figures:
    from trimq.client import Accumulator

    return asynchronous(gathered, accumulator=Accumulator())(addresses, count)


def blocking(send: Callable[[Any, int], None]) -> Callable[[Addresses, int], Figures]:
    def work(addresses: Addresses, count: int) -> Figures:
        from trimq.client import Client

        with Client(address_of(addresses, "rocketmq"), timeout=30) as mq:
            send(mq, WARM)
            timed = Timed()
            send(mq, count)
            return timed.end(count)

    return work


def each(mq: Any, count: int) -> None:
    for _ in range(count):
        mq.send(TOPIC, BODY)


def each_nowait(mq: Any, count: int) -> None:
    for begin in range(0, count, 256):
        for future in [mq.send_nowait(TOPIC, BODY) for _ in range(min(256, count - begin))]:
            future.result()


def in_batches(mq: Any, count: int) -> None:
    from trimq.client import Message

    for _ in range(count // 32):
        mq.send_all(TOPIC, [Message(BODY) for _ in range(32)])


def consuming(batch: int) -> Callable[[Addresses, int], Figures]:
    def work(addresses: Addresses, count: int) -> Figures:
        from trimq.client import AsyncClient, Start

        async def main() -> Figures:
            async with AsyncClient(address_of(addresses, "rocketmq"), timeout=30) as mq:
                await window(mq, count // 64 * 64)
                left = count // 64 * 64
                async with mq.consumer("bench", TOPIC, start=Start.FIRST) as consumer:

                    async def take(found: Any) -> None:
                        nonlocal left
                        left -= len(found) if batch > 1 else 1
                        if not left:
                            consumer.stop()

                    timed = Timed()
                    await consumer.run(take, batch=batch)
                    return timed.end(count)

        return asyncio.run(main())

    return work


def importing(addresses: Addresses, count: int) -> Figures:
    began = time.perf_counter()
    from trimq.client import AsyncClient

    assert AsyncClient
    return {"ms": (time.perf_counter() - began) * 1000}


def idle(addresses: Addresses, queues: int) -> Figures:
    from bench.processes import resident_mb
    from trimq.client import AsyncClient

    async def main() -> Figures:
        async with AsyncClient(address_of(addresses, "rocketmq"), timeout=30) as mq:
            await mq.admin.create_topic(TOPIC, queues)
            before = resident_mb()
            async with mq.consumer("bench", TOPIC) as consumer:
                while len(consumer.assignment) < queues:
                    await asyncio.sleep(0.05)
                await consumer.receive(1)
                return {"mb": resident_mb() - before}

    return asyncio.run(main())


# -- the others


@contextmanager
def cpp_producer(addresses: Addresses) -> Any:
    from rocketmq.client import Message, Producer

    producer: Any = Producer("bench")
    producer.set_namesrv_addr(address_of(addresses, "rocketmq"))
    producer.start()

    def message() -> Any:
        made: Any = Message(TOPIC)
        made.set_body(BODY)
        return made

    try:
        yield producer, message
    finally:
        producer.shutdown()


def cpp(mode: str) -> Callable[[Addresses, int], Figures]:
    def work(addresses: Addresses, count: int) -> Figures:
        with cpp_producer(addresses) as (producer, message):
            producer.send_sync(message())
            send = getattr(producer, mode)
            timed = Timed()
            for _ in range(count):
                send(message())
            return timed.end(count)

    return work


def amqp(is_confirmed: bool) -> Callable[[Addresses, int], Figures]:
    def work(addresses: Addresses, count: int) -> Figures:
        import pika

        connection = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{address_of(addresses, 'amqp')}/"))
        channel = connection.channel()
        channel.queue_declare(TOPIC, durable=True)
        if is_confirmed:
            channel.confirm_delivery()
        durable = pika.BasicProperties(delivery_mode=2)
        timed = Timed()
        for _ in range(count):
            channel.basic_publish("", TOPIC, BODY, durable)
        connection.process_data_events(0)
        found = timed.end(count)
        connection.close()
        return found

    return work


def confluent(addresses: Addresses, count: int) -> Figures:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address_of(addresses, "kafka"), "linger.ms": 5})
    producer.produce("bench-kafka", BODY)
    producer.flush()
    timed = Timed()
    for _ in range(count):
        while True:
            try:
                producer.produce("bench-kafka", BODY)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    return timed.end(count)


WORKS: dict[str, Callable[[Addresses, int], Figures]] = {
    "one": asynchronous(one),
    "window": asynchronous(window),
    "nowait": asynchronous(nowait),
    "gathered": gathering,
    "oneway": asynchronous(oneway),
    "blocking": blocking(each),
    "blocking_nowait": blocking(each_nowait),
    "batch": blocking(in_batches),
    "consumed": consuming(1),
    "consumed_batch": consuming(32),
    "cpp": cpp("send_sync"),
    "cpp_oneway": cpp("send_oneway"),
    "pika_confirmed": amqp(is_confirmed=True),
    "pika": amqp(is_confirmed=False),
    "confluent": confluent,
    "import": importing,
    "idle": idle,
}


def main() -> None:
    key, addresses, count = sys.argv[1:]
    print(json.dumps(WORKS[key](json.loads(addresses), int(count))))


if __name__ == "__main__":
    main()
