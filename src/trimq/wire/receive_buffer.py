"""Receive buffers of connections, and the limit on their total memory. A front-end chooses one of two policies: readers
copy the data (`CopiedReceiveBuffer`), or readers keep views of it (`ViewedReceiveBuffer`). Knows no socket; a subclass
or an owner knows the frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from trimq.model import Buffer

ALWAYS_ALLOWED_BYTES = 64 * 1024
"""A connection that holds no more than this is never refused, even when the limit of all connections is exceeded."""

_NO_LIMIT = 1 << 62
_MIN_ROOM = 1 / 8  # if less of a buffer is free, receiving into the rest means too many small reads
SHRINK_AFTER = 16  # consecutive uses for which a quarter of the buffer would have been enough


class ReceiveMemory:
    """Counts the bytes of partly received requests on all connections of a front-end, against their limit. Beyond it
    one connection after the other has to yield: of the client address that holds the most, the largest of those that
    have waited longest."""

    __slots__ = ("_holders", "count", "limit")

    def __init__(self, limit: int = _NO_LIMIT) -> None:
        self.limit = limit
        self.count = 0
        # Connections that hold more than is always allowed, the one that has waited longest first.
        self._holders: dict[ConnectionReceiveMemory, None] = {}

    def change(self, delta: int) -> None:
        self.count += delta

    @property
    def is_exceeded(self) -> bool:
        return self.count > self.limit

    def hold(self, connection: ConnectionReceiveMemory) -> None:
        self._holders[connection] = None

    def forget(self, connection: ConnectionReceiveMemory) -> None:
        self._holders.pop(connection, None)

    def make_room_for(self, asking: ConnectionReceiveMemory) -> bool:
        """Closes other connections until the limit is kept. Returns False if `asking` has to yield itself."""
        while self.is_exceeded:
            yielding = self._choose()
            if yielding is None or yielding is asking:
                return False
            yielding.evict()
        return True

    def _choose(self) -> ConnectionReceiveMemory | None:
        by_source: dict[str, list[ConnectionReceiveMemory]] = {}
        for holder in self._holders:
            if holder.can_yield:
                by_source.setdefault(holder.source, []).append(holder)
        if not by_source:
            return None
        most = max(by_source.values(), key=lambda holders: sum(holder.count for holder in holders))
        return max(most[: (len(most) + 1) // 2], key=lambda holder: holder.count)


class ConnectionReceiveMemory:
    """Bytes that one connection holds in a `ReceiveMemory`."""

    __slots__ = ("_allowed_bytes", "_close", "_is_evicted", "count", "receive_memory", "source")

    def __init__(self, receive_memory: ReceiveMemory | None = None, allowed_bytes: int = ALWAYS_ALLOWED_BYTES) -> None:
        self.receive_memory = ReceiveMemory() if receive_memory is None else receive_memory
        self.count = 0
        self.source = ""
        self._allowed_bytes = allowed_bytes
        self._close: Callable[[str], None] | None = None
        self._is_evicted = False

    def attach(self, source: str, close: Callable[[str], None]) -> None:
        """Lets the connection yield to others. `source`: the address of its client; `close` closes it at once, and gets
        the reason."""
        self.source = source
        self._close = close

    @property
    def can_yield(self) -> bool:
        return self._close is not None

    def change(self, delta: int) -> None:
        if self._is_evicted:
            return
        before = self.count
        self.count = after = before + delta
        self.receive_memory.count += delta
        if after > self._allowed_bytes:
            if before <= self._allowed_bytes:
                self.receive_memory.hold(self)
        elif before > self._allowed_bytes:
            self.receive_memory.forget(self)

    def renew(self) -> None:
        """A request was received completely: what is held from now on belongs to a newer one."""
        if self.count > self._allowed_bytes:
            self.receive_memory.forget(self)
            self.receive_memory.hold(self)

    def give_back(self) -> None:
        """Releases all counted bytes: the connection is closed or holds nothing."""
        self.change(-self.count)

    def evict(self) -> None:
        """Closes the connection; its bytes do not count any more."""
        reason = f"{self.count} bytes of partly received requests make room for others: {self.reason}"
        self.give_back()
        self._is_evicted = True
        close, self._close = self._close, None
        if close is not None:
            close(reason)

    def must_close(self) -> bool:
        """Returns whether this connection, which holds more than is always allowed, has to close: the limit of all is
        exceeded, and no other connection could yield."""
        if not self.receive_memory.is_exceeded or self.count <= self._allowed_bytes:
            return False
        return not self.receive_memory.make_room_for(self)

    @property
    def reason(self) -> str:
        return f"partly received requests exceed the {self.receive_memory.limit} bytes allowed"


class Receiver(Protocol):
    """Receiving part of `asyncio.BufferedProtocol`."""

    def get_buffer(self, size_hint: int, /) -> bytearray | memoryview: ...

    def buffer_updated(self, count: int, /) -> None: ...


def copy_into(receiver: Receiver, data: Buffer) -> None:
    """Passes bytes to a receiver by copying them into its buffers."""
    left = memoryview(data)
    while left:
        with memoryview(receiver.get_buffer(len(left))) as room:
            count = min(len(room), len(left))
            room[:count] = left[:count]
        receiver.buffer_updated(count)
        left = left[count:]


class ReceiveBuffer:
    """Receive buffer of one connection. `data[start:end]` is received and not yet read; a reader advances `start`.
    `get_buffer` and `buffer_updated` are those of `asyncio.BufferedProtocol`. The size beyond `start_size` is counted
    in `memory`. The declared length of a frame allocates nothing: the buffer at most doubles the received bytes."""

    __slots__ = ("data", "end", "memory", "start", "start_size")

    def __init__(self, start_size: int, memory: ConnectionReceiveMemory) -> None:
        self.start_size = start_size
        self.memory = memory
        self.data = bytearray()
        self.start = 0
        self.end = 0

    def buffer_updated(self, count: int) -> None:
        self.end += count

    def release_memory(self) -> bool:
        """Frees the memory of an idle connection; the next `get_buffer` allocates it again. Returns False if a frame is
        partly received."""
        if self.start != self.end:
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """Frees the memory and discards unread bytes: the connection is closed."""
        self.start = self.end = 0
        self._switch_to(bytearray())

    def _switch_to(self, data: bytearray) -> None:
        self.memory.change(max(len(data), self.start_size) - max(len(self.data), self.start_size))
        self.data = data

    def _replace(self, size: int) -> None:
        """Moves the unread bytes to a new bytearray. Views of the old one stay valid."""
        held = self.end - self.start
        data = bytearray(size)
        data[:held] = memoryview(self.data)[self.start : self.end]
        self._switch_to(data)
        self.start, self.end = 0, held


class CopiedReceiveBuffer(ReceiveBuffer):
    """Receive buffer whose readers copy the data, so that its memory is always reused. `view` is a view of `data`. A
    new buffer has `size` bytes, which the owner may raise; a buffer beyond `kept_size` is freed when it is empty. At
    least `min_room` bytes are free after `get_buffer`."""

    __slots__ = ("_kept_size", "_min_room", "size", "view")

    def __init__(self, memory: ConnectionReceiveMemory, start_size: int, kept_size: int, min_room: int = 1) -> None:
        super().__init__(start_size, memory)
        self._kept_size = kept_size
        self._min_room = min_room
        self.size = start_size
        self.view = memoryview(self.data)

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Returns memory for the next bytes; never empty."""
        if self.start == self.end:
            self.start = self.end = 0
            if not self.size <= len(self.data) <= self._kept_size:
                self._switch_to(bytearray(self.size))
        elif len(self.data) - self.end < self._min_room:
            held = self.end - self.start
            if held * 2 > len(self.data):
                self._replace(max(len(self.data) * 2, self.size))
            elif len(self.data) < self.size:
                self._replace(self.size)
            else:
                self.data[:held] = self.data[self.start : self.end]
                self.start, self.end = 0, held
        return self.view[self.end :]

    def drop(self) -> None:
        super().drop()
        self.size = self.start_size

    def shrink(self, size: int) -> None:
        """Reduces a larger buffer to `size` bytes, if the unread bytes fit."""
        if len(self.data) > size > self.end - self.start:
            self._replace(size)

    def _switch_to(self, data: bytearray) -> None:
        super()._switch_to(data)
        self.view = memoryview(data)


class ViewedReceiveBuffer(ReceiveBuffer, ABC):
    """Receive buffer whose readers keep views of `data`. Bytes that were read stay unchanged while a view of `data`
    exists: the next bytes are received behind them or into a new bytearray. A subclass knows the length of the first
    frame, for which `get_buffer` makes room."""

    __slots__ = ("_too_big",)

    def __init__(self, start_size: int, memory: ConnectionReceiveMemory) -> None:
        super().__init__(start_size, memory)
        self._too_big = 0

    @abstractmethod
    def first_frame_size(self) -> int:
        """Size of the first unread frame, or of its prefix until that was received."""

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Returns memory for the next bytes; never empty."""
        if self.start == self.end:
            self._rewind()
        else:
            self._make_room()
        return memoryview(self.data)[self.end :]

    def _rewind(self) -> None:
        """Reuses the buffer from its start when everything is read and no view of it exists."""
        room = len(self.data)
        if self.end == 0:
            if room == 0:
                self._switch_to(bytearray(self.start_size))
        elif self._has_no_views():
            self._shrink_slowly()
            self.start = self.end = 0
        elif room - self.end <= room * _MIN_ROOM:
            self._replace(room)

    def _make_room(self) -> None:
        """Moves a partly received frame to a place where it fits, unless there is room behind it."""
        held = self.end - self.start
        needed = self.first_frame_size()
        room = len(self.data)
        if self.end < room and (self.start + needed <= room or needed > room):
            return
        if held == room or needed > room:
            self._replace(max(room, min(needed, 2 * held)) if needed > held else 2 * held)
        elif self._has_no_views():
            self.data[:held] = self.data[self.start : self.end]
            self.start, self.end = 0, held
        else:
            self._replace(room)

    def _has_no_views(self) -> bool:
        """Returns whether no view exists: a bytearray cannot be resized while one does."""
        try:
            last = self.data.pop()
        except BufferError:
            return False
        self.data.append(last)
        return True

    def _shrink_slowly(self) -> None:
        """Halves a buffer if at most a quarter of it was used `SHRINK_AFTER` times in a row."""
        if self.end * 4 > len(self.data):
            self._too_big = 0
            return
        self._too_big += 1
        if self._too_big >= SHRINK_AFTER and len(self.data) > self.start_size:
            self._switch_to(bytearray(max(self.start_size, len(self.data) // 2)))
            self._too_big = 0
