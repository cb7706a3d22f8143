"""Frames: the memory that a connection receives into, and the bytes around a payload. Knows no method; cuts no frame
whose length it has not compared with the limit."""

from __future__ import annotations

from struct import Struct

from trimq.protocols.contract import ConnectionReceiveMemory

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = 0xCE
END_OCTET = b"\xce"
PREFIX_SIZE = 7  # type, channel, length
OVERHEAD = 8  # and the end octet

START_SIZE = 64 * 1024
KEPT_SIZE = 512 * 1024  # a larger buffer is given back when it is empty

unpack_prefix = Struct(">BHI").unpack_from
pack_prefix = Struct(">BHI").pack

HEARTBEAT_FRAME = pack_prefix(HEARTBEAT, 0, 0) + END_OCTET


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack_prefix(kind, channel, len(payload)) + payload + END_OCTET


class ReceiveBuffer:
    """`data[start:end]` has been received and not yet been taken. Nobody keeps a view of it: what is taken is
    copied. What it takes beyond `START_SIZE` is counted in `held`."""

    __slots__ = ("_held", "data", "end", "receive_count", "start", "view")

    def __init__(self, held: ConnectionReceiveMemory) -> None:
        self._held = held
        self.data = bytearray()
        self.view = memoryview(self.data)
        self.start = 0
        self.end = 0
        self.receive_count = 0

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. As `asyncio.BufferedProtocol.get_buffer`."""
        room = len(self.data)
        if self.start == self.end:
            self.start = self.end = 0
            if room == 0 or room > KEPT_SIZE:
                self._replace(START_SIZE)
        elif self.end == room:
            held = self.end - self.start
            if held * 2 > room:  # it at most doubles what has arrived: a claimed length alone takes no memory
                self._replace(room * 2)
            else:
                self.data[:held] = self.data[self.start : self.end]
                self.start, self.end = 0, held
        return self.view[self.end :]

    def buffer_updated(self, count: int) -> None:
        self.end += count
        self.receive_count += 1

    def release_buffer(self) -> bool:
        """Give back the memory of an idle connection. False: a frame has come in part."""
        if self.start != self.end:
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """The connection is gone, and with it what it sent in part."""
        self.start = self.end = 0
        self._switch_to(bytearray())

    def shrink_to_start(self) -> None:
        """Give back what a long frame needed, if what is there now does not."""
        if len(self.data) > START_SIZE > self.end - self.start:
            self._replace(START_SIZE)

    def _switch_to(self, data: bytearray) -> None:
        self._held.change(max(len(data), START_SIZE) - max(len(self.data), START_SIZE))
        self.data = data
        self.view = memoryview(data)

    def _replace(self, size: int) -> None:
        held = self.end - self.start
        data = bytearray(size)
        data[:held] = self.view[self.start : self.end]
        self._switch_to(data)
        self.start, self.end = 0, held
