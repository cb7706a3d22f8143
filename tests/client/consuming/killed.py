"""A member of a group that writes down what it handled, to be killed at any moment."""

from __future__ import annotations

import asyncio
import os
import sys

from trimq.client import AsyncClient, Received, Start


async def main(names: str, path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with (
        AsyncClient(names) as mq,
        mq.consumer("g", "orders", start=Start.FIRST, commit=0.02) as consumer,
    ):

        async def handle(message: Received) -> None:
            await asyncio.sleep(int(message.body) % 7 / 500)  # so that they end in another order
            os.write(log, b"%d %d %s\n" % (message.queue.id, message.offset, message.body))

        await consumer.run(handle, concurrency=10)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
