"""A client's connection in the simulation: sends requests and returns responses, matched by the id after the length of
a frame, which both protocols have. Knows no request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from simulated_loop import SimulatedLoop
from simulated_trace import SimulationFailure
from simulated_wires import Peer
from small_protocol import split_responses


class Lost(Exception):
    """The connection ended, or the client timed out, before the response: the outcome of the request is unknown."""


class ClientConnection:
    def __init__(
        self, loop: SimulatedLoop, peer: Peer, keeps_order: bool, is_outdated: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_outdated`: responses that still arrive were sent by a broker that has restarted since."""
        self._loop = loop
        self._peer = peer
        self._keeps_order = keeps_order
        self._is_outdated = is_outdated
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._received = bytearray()
        self._next_id = 0
        self.stall_s = 0.0
        self.is_over = False
        self._task = loop.create_task(self._receive())

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def send(self, id: int, frame: bytes) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[id] = answer
        self.send_only(frame)
        return answer

    def send_only(self, frame: bytes) -> None:
        """Sends a request without a response."""
        try:
            self._peer.send(frame)
        except ConnectionResetError:
            self._end()

    async def _receive(self) -> None:
        try:
            while not self.is_over:
                if self.stall_s:
                    stall_s, self.stall_s = self.stall_s, 0.0
                    await asyncio.sleep(stall_s)
                data = await self._peer.receive()
                if not data or self._is_outdated():
                    break
                self._received += data
                self._hand_out()
        except ConnectionResetError:
            pass
        except SimulationFailure as failure:
            self._loop.call_exception_handler({"message": str(failure), "exception": failure})
        self._end()

    def _hand_out(self) -> None:
        for id, body in split_responses(self._received):
            if id not in self._waiting:
                raise SimulationFailure(f"a response to request {id}, which is not outstanding")
            if self._keeps_order and id != next(iter(self._waiting)):
                raise SimulationFailure(f"request {id} got its response before {next(iter(self._waiting))}")
            answer = self._waiting.pop(id)
            if not answer.done():
                answer.set_result(body)

    def close(self) -> None:
        self._peer.close()
        self._end()

    def _end(self) -> None:
        self.is_over = True
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(Lost())
                answer.exception()  # marks the exception as retrieved
