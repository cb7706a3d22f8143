"""Connections between simulated hosts: bytes are delayed, split and held back, and connections break, as a seed says."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulated_loop import Host, SimulatedLoop

_HIGH_WATER = 64 * 1024


class Weather:
    """How the network behaves just now."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.usual_delay_us = (30, 800)
        self.long_delay_us = (1_000, 20_000)
        self.long_delay_chance = 0.02
        self.split_chance = 0.05

    def worsen(self, random: Random) -> None:
        self.long_delay_us = (10_000, random.choice((50_000, 500_000, 3_000_000)))
        self.long_delay_chance = random.choice((0.05, 0.3))
        self.split_chance = random.choice((0.05, 0.5))


class _Pipe:
    """One direction of a wire: bytes wait at the sender, fly, and wait at the receiver; the last two within a window."""

    def __init__(self, network: Network, window: int) -> None:
        self._network = network
        self._window = window
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
        """Nothing follows what was sent."""
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
            chunk = bytes(memoryview(self.waiting)[: self._network.split(min(room, len(self.waiting)))])
            del self.waiting[: len(chunk)]
            room -= len(chunk)
            self._fly(chunk)
        if self._end_asked and not self._end_sent and not self.waiting:
            self._end_sent = True
            self._fly(b"")

    def _fly(self, chunk: bytes) -> None:
        self._flying.append(chunk)
        self._flying_size += len(chunk)
        # Never overtakes what was sent before.
        self._last_due_us = max(self._last_due_us, self._network.arrival_us())
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
        """Whatever is sent from now on arrives no earlier."""
        self._last_due_us = max(self._last_due_us, until_us)

    def break_off(self, landing: int) -> None:
        """Deliver the next `landing` pieces under way, and nothing after them."""
        for _ in range(min(landing, len(self._flying))):
            self._land()
        self.is_broken = True
        self._flying.clear()
        self.waiting.clear()

    @property
    def flying_pieces(self) -> int:
        return len(self._flying)


class SimulatedSocket:
    """What code may ask of the socket behind a transport."""

    def __init__(self, own: tuple[str, int], peer: tuple[str, int] | None = None) -> None:
        self._own = own
        self._peer = peer
        self.family = 2
        self.type = 1
        self.proto = 6

    def getsockname(self) -> tuple[str, int]:
        return self._own

    def getpeername(self) -> tuple[str, int] | None:
        return self._peer

    def setsockopt(self, *options: Any) -> None:
        """Accepted."""

    def getsockopt(self, *options: Any) -> int:
        return 0

    def fileno(self) -> int:
        return -1


class ServerTransport(asyncio.Transport):
    """The server's end of a wire, which keeps the promises of asyncio's own socket transports."""

    def __init__(self, network: Network, host: Host, protocol: asyncio.BaseProtocol, wire: Wire) -> None:
        super().__init__(
            {
                "peername": ("127.0.0.1", wire.client_port),
                "sockname": ("127.0.0.1", wire.port),
                "socket": SimulatedSocket(("127.0.0.1", wire.port), ("127.0.0.1", wire.client_port)),
            }
        )
        self._network = network
        self._host = host
        self._protocol = protocol
        self._wire = wire
        self._in, self._out = wire.to_server, wire.to_client
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._is_reading = False
        self._is_due = False
        self._is_closing = False
        self._is_lost = False
        self._is_writing_paused = False
        self._heard_end = False
        self._in.on_arrival = self._look
        self._out.on_room = self._made_room

    def begin(self) -> None:
        self._protocol.connection_made(self)
        self._is_reading = not self._is_closing
        self._look()

    # -- reading

    def _look(self) -> None:
        if self._is_reading and not self._is_due and (self._in.arrived or self._in.has_ended):
            self._is_due = True
            self._network.call_soon_on(self._host, self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        if not self._is_reading or self._is_lost:
            return
        if self._in.arrived:
            self._hand_over(self._network.split(len(self._in.arrived)))
        elif self._in.has_ended and not self._heard_end:
            self._heard_end = True
            self._is_reading = False
            if not self._protocol.eof_received():  # type: ignore[attr-defined]
                self.close()
        self._look()

    def _hand_over(self, size: int) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = self._protocol.get_buffer(-1)
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
            data = self._in.take(min(size, len(buffer)))
            memoryview(buffer)[: len(data)] = data  # type: ignore[arg-type]
            self._protocol.buffer_updated(len(data))
        else:
            self._protocol.data_received(self._in.take(size))  # type: ignore[attr-defined]

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_closing and not self._heard_end:
            self._is_reading = True
            self._look()

    # -- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"bytes are written, not {type(data).__name__}")
        if self._is_closing or self._is_lost or not data:
            return
        self._out.send(data)
        if len(self._out.waiting) > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._out.end()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else (4 * low if low is not None else _HIGH_WATER)
        self._low = low if low is not None else self._high // 4

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._out.waiting)

    def _made_room(self) -> None:
        if not self._is_lost and (self._is_writing_paused or self._is_closing):
            self._network.call_soon_on(self._host, self._drained)

    def _drained(self) -> None:
        if self._is_lost:
            return
        if self._is_writing_paused and len(self._out.waiting) <= self._low:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        if self._is_closing and not self._out.waiting:
            self._lose(None)

    # -- ending

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._is_reading = False
        if not self._out.waiting:
            self._network.loop.call_soon(self._lose, None, context=self._host.context)

    def abort(self) -> None:
        self._is_closing = True
        self._is_reading = False
        self._out.waiting.clear()
        self._network.loop.call_soon(self._lose, None, True, context=self._host.context)

    def broken(self, error: Exception) -> None:
        """The network's word: the connection is no more."""
        self._is_closing = True
        self._is_reading = False
        self._network.call_soon_on(self._host, self._lose, error)

    def _lose(self, error: Exception | None, is_abrupt: bool = False) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        if is_abrupt or self._in.arrived or self._in.flying_pieces:
            self._wire.reset_client()  # what TCP does with bytes that nobody will read
        else:
            self._out.end()
        self._protocol.connection_lost(error)


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
        """What has arrived, at least one byte; nothing at the end of the stream. A peer that does not ask holds the
        server's bytes back."""
        while not self._in.arrived:
            if self._is_reset:
                raise ConnectionResetError("the connection was lost")
            if self._in.has_ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._in.take(limit)

    def close(self) -> None:
        """Nothing more is sent, and what still comes is thrown away."""
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
    """One connection."""

    def __init__(self, network: Network, host: Host, port: int, client_port: int) -> None:
        self._network = network
        self.host = host
        self.port = port
        self.client_port = client_port
        self.to_server = _Pipe(network, network.window())
        self.to_client = _Pipe(network, network.window())
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
        """Break in the middle: each side finds out in its own time, and some of what was under way still arrives."""
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
        """Nothing more comes through, in either direction, for a while."""
        until_us = self._network.now_us + round(seconds * 1_000_000)
        self.to_server.freeze(until_us)
        self.to_client.freeze(until_us)

    @property
    def is_over(self) -> bool:
        return self.is_cut or (self.to_server.has_ended and self.to_client.has_ended)


class SimulatedServer(asyncio.AbstractServer):
    def __init__(self, network: Network, port: int, host: Host, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._network = network
        self.port = port
        self.host = host
        self.factory = factory
        self.sockets: tuple[SimulatedSocket, ...] = (SimulatedSocket(("127.0.0.1", port)),)

    def close(self) -> None:
        self.sockets = ()
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        return None

    def is_serving(self) -> bool:
        return bool(self.sockets)

    async def start_serving(self) -> None:
        return None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop


class Network:
    """All wires, the servers they lead to, and the weather on them."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.weather = Weather()
        self._random = random
        self._own = loop.host("network")
        self._servers: dict[int, SimulatedServer] = {}
        self._next_port = 40_000
        self.wires: list[Wire] = []

    def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], port: int, host: Host
    ) -> SimulatedServer:
        port = port or self._free_port()
        if port in self._servers:
            raise OSError(98, "Address already in use")
        server = self._servers[port] = SimulatedServer(self, port, host, factory)
        return server

    def unlisten(self, server: SimulatedServer) -> None:
        if self._servers.get(server.port) is server:
            del self._servers[server.port]

    def connect(self, port: int) -> Peer:
        """A new connection; the server hears of it a little later."""
        server = self._servers.get(port)
        if server is None:
            raise ConnectionRefusedError(111, f"nobody listens on port {port}")
        self.wires = [wire for wire in self.wires if not wire.is_over]
        wire = Wire(self, server.host, port, self._free_port())
        self.wires.append(wire)
        self.loop.call_at_us(self.arrival_us(), wire.open, server, context=server.host.context)
        return wire.peer

    def host_died(self, host: Host) -> None:
        for port in [port for port, server in self._servers.items() if server.host is host]:
            del self._servers[port]
        for wire in self.wires:
            if wire.host is host and not wire.is_cut:
                wire.cut()

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    # -- what the seed decides

    @property
    def now_us(self) -> int:
        return self.loop.now_us

    def arrival_us(self) -> int:
        weather = self.weather
        long = self._random.random() < weather.long_delay_chance
        return self.now_us + self._random.randint(*(weather.long_delay_us if long else weather.usual_delay_us))

    def discovery_us(self) -> int:
        return self.now_us + self._random.choice((0, self._random.randint(0, 5_000), self._random.randint(0, 2_000_000)))

    def split(self, size: int) -> int:
        """How many of `size` bytes go together."""
        if size > 1 and self._random.random() < self.weather.split_chance:
            return self._random.randint(1, self._random.choice((min(size, 8), size)))
        return size

    def window(self) -> int:
        return self._random.choice((1_000, 16_000, 64_000, 256_000))

    def surviving(self, pieces: int) -> int:
        return self._random.randint(0, pieces)

    # -- how things are run

    def call_at_us(self, due_us: int, callback: Callable[..., object]) -> None:
        self.loop.call_at_us(due_us, callback, context=self._own.context)

    def call_soon_on(self, host: Host, callback: Callable[..., object], *args: Any) -> None:
        self.loop.call_at_us(self.now_us, callback, *args, context=host.context)

    def note(self, event: str) -> None:
        self.loop.trace.note(event)
