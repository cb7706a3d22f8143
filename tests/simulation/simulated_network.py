"""The network of the simulation: listeners, wires, and current faults."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from simulated_transport import SimulatedSocket
from simulated_wires import Peer, Wire

if TYPE_CHECKING:
    from simulated_loop import Host, SimulatedLoop


# Bytes that a server receives or sends per microsecond, including parsing, checks and copies.
_BYTES_PER_US = 200


class Weather:
    """Current behaviour of the network."""

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


class SimulatedServer(asyncio.AbstractServer):
    def __init__(self, network: Network, port: int, host: Host, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._network = network
        self.port = port
        self.host = host
        self.factory = factory
        self.sockets: tuple[SimulatedSocket, ...] = (SimulatedSocket(("127.0.0.1", port)),)
        self._is_listening = False

    def close(self) -> None:
        self.sockets = ()
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        return None

    def is_serving(self) -> bool:
        return self._is_listening and bool(self.sockets)

    async def start_serving(self) -> None:
        self.serve()

    def serve(self) -> None:
        self._is_listening = True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop


class Network:
    """All wires, their servers, and the current weather."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.weather = Weather()
        self._random = random
        self._own = loop.host("network")
        self._servers: dict[int, SimulatedServer] = {}
        self._next_port = 40_000
        self.wires: list[Wire] = []

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], port: int, host: Host) -> SimulatedServer:
        port = port or self._free_port()
        if port in self._servers:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        server = self._servers[port] = SimulatedServer(self, port, host, factory)
        return server

    def unlisten(self, server: SimulatedServer) -> None:
        if self._servers.get(server.port) is server:
            del self._servers[server.port]

    def connect(self, port: int, is_calm: bool = False) -> Peer:
        """Opens a connection; the server is notified a little later."""
        server = self._servers.get(port)
        if server is None or not server.is_serving():
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no listener on port {port}")
        self.wires = [wire for wire in self.wires if not wire.is_over]
        wire = Wire(self, server.host, port, self._free_port(), is_calm)
        self.wires.append(wire)
        self.loop.call_at_us(self.arrival_us(is_calm), wire.open, server, context=server.host.context)
        return wire.peer

    def vulnerable_wires(self) -> list[Wire]:
        return [wire for wire in self.wires if not wire.is_calm]

    def host_died(self, host: Host) -> None:
        for port in [port for port, server in self._servers.items() if server.host is host]:
            del self._servers[port]
        for wire in self.wires:
            if wire.host is host and not wire.is_cut:
                wire.cut()

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    # -- choices of the seed

    @property
    def now_us(self) -> int:
        return self.loop.now_us

    def arrival_us(self, is_calm: bool = False) -> int:
        weather = self.weather
        long = not is_calm and self._random.random() < weather.long_delay_chance
        return self.now_us + self._random.randint(*(weather.long_delay_us if long else weather.usual_delay_us))

    def discovery_us(self) -> int:
        return self.now_us + self._random.choice(
            (0, self._random.randint(0, 5_000), self._random.randint(0, 2_000_000))
        )

    def split(self, size: int) -> int:
        """Returns how many of `size` bytes are sent together."""
        if size > 1 and self._random.random() < self.weather.split_chance:
            return self._random.randint(1, self._random.choice((min(size, 8), size)))
        return size

    def window(self) -> int:
        return self._random.choice((1_000, 16_000, 64_000, 256_000))

    def surviving(self, pieces: int) -> int:
        return self._random.randint(0, pieces)

    # -- scheduling

    def handled(self, size: int) -> None:
        """Charges the server the time for moving `size` bytes."""
        self.loop.spend_us(size // _BYTES_PER_US)

    def call_at_us(self, due_us: int, callback: Callable[..., object]) -> None:
        self.loop.call_at_us(due_us, callback, context=self._own.context)

    def call_soon_on(self, host: Host, callback: Callable[..., object], *args: Any) -> None:
        self.loop.call_at_us(self.now_us, callback, *args, context=host.context)

    def note(self, event: str) -> None:
        self.loop.trace.note(event)
