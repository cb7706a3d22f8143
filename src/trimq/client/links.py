"""Connections to brokers and name servers: one per address, opened on first use. Owns sockets; knows no codes."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import cast

from trimq.client.credentials import Credentials
from trimq.client.errors import Closed, ConnectionLost, Refused, TimedOut
from trimq.client.link import Callback, Link, Outcome, SentAnswer
from trimq.client.timing import pause
from trimq.clock import Timeline
from trimq.errors import ProtocolError
from trimq.model import Buffer
from trimq.wire.remoting import NO_FIELDS, Command

HIGH_WATER_BYTES = 1024 * 1024


class _Transport(asyncio.BufferedProtocol):
    """Joins a socket and a `Link`. Output of one turn of the loop leaves in one write; the output of a connection
    without pending requests leaves at once."""

    def __init__(self, links: Links, address: str) -> None:
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.link = Link(address, links.timeline, links.on_request, self._wake)
        self.is_congested = False
        self.waiters: deque[asyncio.Future[None]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES)

    def _wake(self) -> None:
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._transport is not None and not self.link.is_closed:
            self._transport.write(self.link.take_output())

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.link.get_buffer(size_hint)

    def buffer_updated(self, count: int) -> None:
        try:
            self.link.buffer_updated(count)
        except ProtocolError as error:
            self.close(f"received bytes that are no frame: {error}")

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        self._release()

    def _release(self) -> None:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"connection lost ({error})" if error else "connection closed by the peer")

    def _end(self, reason: str) -> None:
        self._links.forget(self)
        self.link.close(reason)
        self.is_congested = False
        self._release()

    def close(self, reason: str = "") -> None:
        """Closes the connection. Output that waits is still sent unless there is a reason."""
        if self._transport is not None:
            if not reason and not self.link.is_closed:
                self._transport.write(self.link.take_output())
            self._transport.close()
        self._end(reason)

    def abandon(self) -> None:
        """Closes the socket of a forked process, whose parent still uses the connection."""
        if self._transport is not None:
            descriptor = self._transport.get_extra_info("socket").fileno()
            if descriptor >= 0:
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, descriptor)  # the transport object closes this number some day
                os.close(null)


class Links:
    """`on_request` gets the requests of brokers, `on_lost` the address of each connection that ended."""

    def __init__(
        self,
        timeline: Timeline,
        on_request: Callable[[Link, Command], object],
        on_lost: Callable[[str], object],
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.timeline = timeline
        self.on_request = on_request
        self.credentials = credentials
        self._on_lost = on_lost
        self._tls = tls
        self._open: dict[str, _Transport] = {}
        self._opening: dict[str, asyncio.Task[_Transport]] = {}
        self._is_closed = False

    @property
    def addresses(self) -> list[str]:
        return list(self._open)

    def find(self, address: str) -> Link | None:
        """Returns the connection if it is open and takes more output now."""
        found = self._open.get(address)
        return None if found is None or found.is_congested else found.link

    async def get(self, address: str, timeout_ms: int) -> Link:
        """Returns an open connection with room for output, and opens it if needed. Raises ConnectionLost or
        TimedOut."""
        deadline_ms = self.timeline.now_ms() + timeout_ms
        while True:
            found = self._open.get(address)
            if found is not None and not found.is_congested:
                return found.link
            if self._is_closed:
                raise Closed("the client is closed")
            left_ms = deadline_ms - self.timeline.now_ms()
            if left_ms <= 0:
                raise TimedOut(f"{address}: no connection with room in time")
            if found is not None:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                found.waiters.append(waiter)
                await self._within(waiter, left_ms)
                continue
            task = self._opening.get(address)
            if task is None:
                task = self._opening[address] = asyncio.create_task(self._connect(address))
                task.add_done_callback(lambda done: self._opened(address, done))
            await self._within(task, left_ms)
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise ConnectionLost(f"{address}: cannot connect ({error})") from None

    def _opened(self, address: str, task: asyncio.Task[_Transport]) -> None:
        self._opening.pop(address, None)
        if not task.cancelled() and task.exception() is None:
            if self._is_closed:
                task.result().close()
            elif not task.result().link.is_closed:
                self._open[address] = task.result()

    async def _within(self, awaited: asyncio.Future[None] | asyncio.Task[_Transport], left_ms: int) -> None:
        """Waits for the end of `awaited`, whatever it is, or of the time."""
        timer = asyncio.ensure_future(pause(self.timeline, left_ms))
        try:
            await asyncio.wait((awaited, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()

    async def _connect(self, address: str) -> _Transport:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(
            lambda: _Transport(self, address), host.strip("[]"), int(port), ssl=self._tls
        )
        return protocol

    def forget(self, transport: _Transport) -> None:
        address = transport.link.address
        if self._open.get(address) is transport:
            del self._open[address]
            self._on_lost(address)

    # -- requests

    def signed(self, fields: Mapping[str, str], body: Buffer) -> Mapping[str, str]:
        return fields if self.credentials is None else self.credentials.sign(fields, body)

    async def ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str] = NO_FIELDS,
        body: Buffer = b"",
        timeout_ms: int = 3000,
        expected: tuple[int, ...] = (0,),
    ) -> Command:
        """Sends a request and returns the response. Raises Refused if its code is not `expected`."""
        deadline_ms = self.timeline.now_ms() + timeout_ms
        link = await self.get(address, timeout_ms)
        settled: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        link.request(code, self.signed(fields, body), body, deadline_ms, _settle(settled))
        outcome = await settled
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, SentAnswer):
            outcome = outcome.as_command()
        if outcome.code not in expected:
            raise Refused(outcome.code, outcome.remark, address)
        return outcome

    async def close(self) -> None:
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for transport in list(self._open.values()):
            self._open.pop(transport.link.address, None)
            transport.close()
        await asyncio.sleep(0)  # lets the sockets close

    def abandon(self) -> None:
        """Drops all connections in a forked process."""
        for transport in self._open.values():
            transport.abandon()
        self._open.clear()


def _settle(future: asyncio.Future[Outcome]) -> Callback:
    def settle(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    return settle
