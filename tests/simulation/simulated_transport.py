"""The server's end of a simulated wire, as asyncio shows it to a protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulated_loop import Host
    from simulated_network import Network
    from simulated_wires import Wire

_HIGH_WATER = 64 * 1024


class SimulatedSocket:
    """The part of the socket interface that code may use behind a transport."""

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
        """Accepts any option."""

    def getsockopt(self, *options: Any) -> int:
        return 0

    def fileno(self) -> int:
        return -1


class ServerTransport(asyncio.Transport):
    """The server's end of a wire, with the guarantees of asyncio's socket transports."""

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
            if not self._protocol.eof_received():
                self.close()
        self._look()

    def _hand_over(self, size: int) -> None:
        self._network.handled(size)
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = self._protocol.get_buffer(-1)
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
            data = self._in.take(min(size, len(buffer)))
            memoryview(buffer)[: len(data)] = data
            self._protocol.buffer_updated(len(data))
        else:
            self._protocol.data_received(self._in.take(size))

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
        self._network.handled(len(data))
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
        """Called by the network: the connection is broken."""
        self._is_closing = True
        self._is_reading = False
        self._network.call_soon_on(self._host, self._lose, error)

    def _lose(self, error: Exception | None, is_abrupt: bool = False) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        if is_abrupt or self._in.arrived or self._in.flying_pieces:
            self._wire.reset_client()  # TCP resets a connection with unread bytes
        else:
            self._out.end()
        self._protocol.connection_lost(error)
