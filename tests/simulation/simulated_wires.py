"""Connections between simulated hosts: bytes are delayed, split and held back, and connections break by the seed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulated_transport import ServerTransport

if TYPE_CHECKING:
    from simulated_loop import Host
    from simulated_network import Network, SimulatedServer


class Pipe:
    """One direction of a wire: bytes wait at the sender, are in transit, and wait at the receiver, the last two within
    a window."""

    def __init__(self, network: Network, window: int, is_calm: bool) -> None:
        self._network = network
        self._window = window
        self._is_calm = is_calm
        self.waiting = bytearray()
        self.arrived = bytearray()
        self._flying: deque[bytes] = deque()
        self._flying_size = 0
        self._last_due_us = 0
        self._end_asked = False
        self._end_sent = False
        self.has_ended = False
        self.is_broken = False
        self.on_room: Callable[[], None] = lambda: None
        self.on_arrival: Callable[[], None] = lambda: None

    def send(self, data: bytes | bytearray | memoryview) -> None:
        self.waiting += data
        self._pump()

    def end(self) -> None:
        """Ends the stream after the sent bytes."""
        self._end_asked = True
        self._pump()

    def take(self, limit: int) -> bytes:
        taken = bytes(memoryview(self.arrived)[:limit])
        del self.arrived[: len(taken)]
        self._pump()
        return taken

    def _pump(self) -> None:
        room = self._window - self._flying_size - len(self.arrived)
        while self.waiting and room > 0:
            size = min(room, len(self.waiting))
            chunk = bytes(memoryview(self.waiting)[: size if self._is_calm else self._network.split(size)])
            del self.waiting[: len(chunk)]
            room -= len(chunk)
            self._fly(chunk)
        if self._end_asked and not self._end_sent and not self.waiting:
            self._end_sent = True
            self._fly(b"")

    def _fly(self, chunk: bytes) -> None:
        self._flying.append(chunk)
        self._flying_size += len(chunk)
        # Never overtakes earlier bytes.
        self._last_due_us = max(self._last_due_us, self._network.arrival_us(self._is_calm))
        self._network.call_at_us(self._last_due_us, self._land)

    def _land(self) -> None:
        if self.is_broken or not self._flying:
            return
        chunk = self._flying.popleft()
        self._flying_size -= len(chunk)
        self.arrived += chunk
        self.has_ended = self.has_ended or not chunk
        self.on_arrival()
        self.on_room()

    def freeze(self, until_us: int) -> None:
        """Delays everything sent from now on until this time."""
        self._last_due_us = max(self._last_due_us, until_us)

    def break_off(self, landing: int) -> None:
        """Delivers the next `landing` pieces in transit, and nothing after them."""
        for _ in range(min(landing, len(self._flying))):
            self._land()
        self.is_broken = True
        self._flying.clear()
        self.waiting.clear()

    @property
    def flying_pieces(self) -> int:
        return len(self._flying)


class Peer:
    """A client's end of a wire."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._in, self._out = wire.to_client, wire.to_server
        self._in.on_arrival = self._wake
        self._waiter: asyncio.Future[None] | None = None
        self._is_reset = False

    def send(self, data: bytes) -> None:
        if self._is_reset:
            raise ConnectionResetError("the connection was lost")
        self._out.send(data)

    @property
    def unsent(self) -> int:
        return len(self._out.waiting)

    async def receive(self, limit: int = 1 << 16) -> bytes:
        """Returns the received bytes, at least one; none at the end of the stream. A peer that does not receive holds
        the server's bytes back."""
        while not self._in.arrived:
            if self._is_reset:
                raise ConnectionResetError("the connection was lost")
            if self._in.has_ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._in.take(limit)

    def close(self) -> None:
        """Sends nothing more, and drops all bytes that still arrive."""
        self._out.end()
        self._in.on_arrival = self._throw_away
        self._throw_away()

    def _throw_away(self) -> None:
        self._in.take(len(self._in.arrived))

    def reset(self) -> None:
        self._is_reset = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Wire:
    """One connection. The network injects no faults into a calm one, so that delays are the server's."""

    def __init__(self, network: Network, host: Host, port: int, client_port: int, is_calm: bool) -> None:
        self._network = network
        self.host = host
        self.port = port
        self.client_port = client_port
        self.is_calm = is_calm
        self.to_server = Pipe(network, network.window(), is_calm)
        self.to_client = Pipe(network, network.window(), is_calm)
        self.peer = Peer(self)
        self.transport: ServerTransport | None = None
        self.is_cut = False

    def open(self, server: SimulatedServer) -> None:
        if self.is_cut:
            return
        if not server.is_serving():
            self.reset_client()
            return
        self.transport = ServerTransport(self._network, self.host, server.factory(), self)
        self.transport.begin()

    def cut(self) -> None:
        """Breaks the connection: each side notices in its own time, and some of the bytes in transit still arrive."""
        if self.is_cut:
            return
        self.is_cut = True
        self._network.note(f"the wire of {self.client_port} is cut")
        self._network.call_at_us(self._network.discovery_us(), self._reset_server)
        self._network.call_at_us(self._network.discovery_us(), self.reset_client)

    def _reset_server(self) -> None:
        self.to_server.break_off(self._network.surviving(self.to_server.flying_pieces))
        if self.transport is not None:
            self.transport.broken(ConnectionResetError("the connection was lost"))

    def reset_client(self) -> None:
        self.is_cut = True
        self.to_client.break_off(self._network.surviving(self.to_client.flying_pieces))
        self.peer.reset()

    def freeze(self, seconds: float) -> None:
        """Delivers nothing in either direction for a while."""
        until_us = self._network.now_us + round(seconds * 1_000_000)
        self.to_server.freeze(until_us)
        self.to_client.freeze(until_us)

    @property
    def is_over(self) -> bool:
        return self.is_cut or (self.to_server.has_ended and self.to_client.has_ended)
