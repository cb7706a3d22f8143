"""A bare event loop that sends the same success response to every remoting request: the minimum cost of a broker in
Python. `python -m bench.bare_loop` prints its port and serves until it is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

from bench.processes import PROJECT, ChildFailed
from bench.rocketmq_brokers import Broker
from bench.rocketmq_wire import encode

NAME = "bare loop"

# Same length as the response to a send request.
_OK_RESPONSE = encode(
    0, {"queueOffset": 1, "MSG_REGION": "DefaultRegion", "TRACE_ON": True, "msgId": "0" * 32, "queueId": 1}
)
_ROOM_BYTES = 256 * 1024


class _OkResponder(asyncio.BufferedProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._room = bytearray(_ROOM_BYTES)
        self._held = 0

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(self._room)[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        room, end = self._room, self._held + nbytes
        at = count = 0
        while end - at >= 4 and (finish := at + 4 + int.from_bytes(room[at : at + 4], "big")) <= end:
            at = finish
            count += 1
        self._held = end - at
        room[: self._held] = room[at:end]
        if count:
            self._transport.write(_OK_RESPONSE * count)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_OkResponder, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def bare_loop() -> Iterator[Broker]:
    """Runs the bare loop in a process, which is killed at the end."""
    words = [sys.executable, "-m", "bench.bare_loop"]
    with subprocess.Popen(words, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise ChildFailed("the bare loop did not start")
            yield Broker(NAME, int(port), 0, process.pid)
        finally:
            process.kill()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())
