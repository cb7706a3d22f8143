"""Receive flow control of a connection: windows that reopen as bytes are read, grants for long messages (few streams at
a time), and the memory of incomplete messages. Knows sizes only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trimq.protocols.grpc.frames import ErrorCode, Http2ConnectionError, window_update
from trimq.protocols.grpc.streams import Http2Stream
from trimq.wire.receive_buffer import ConnectionReceiveMemory

# Initial window of a stream: shorter messages are sent at once.
STREAM_WINDOW = 64 * 1024
CONNECTION_WINDOW = 1024 * 1024

# The last frame of a message may be padded.
_PADDING_BYTES = 256


class ReceiveWindow:
    """Receive windows of one connection. A message longer than the window of its stream gets a grant for its missing
    bytes, as soon as all granted bytes fit into `room_bytes` or no other grant exists. A granted message can always
    arrive completely, so messages cannot deadlock. `post` queues frames to send. `held` counts the kept bytes."""

    def __init__(self, room_bytes: int, post: Callable[[bytes], None], held: ConnectionReceiveMemory) -> None:
        self._held = held
        self._room_bytes = room_bytes
        self._granted_bytes = 0
        self._credit = CONNECTION_WINDOW
        self._asking: deque[tuple[Http2Stream, int]] = deque()
        self._post = post

    def open(self, stream: Http2Stream) -> None:
        """Counts long headers while their stream is open. Short headers are not counted: almost all calls of a client
        share them."""
        if stream.block.long_bytes:
            stream.headers_kept = stream.block.long_bytes
            self.keep(stream, 0)

    def keep(self, stream: Http2Stream, size: int) -> None:
        """Sets the number of received bytes that are kept for the stream."""
        size += stream.headers_kept if stream.is_open else 0
        if size != stream.kept:
            self._held.change(size - stream.kept)
            stream.kept = size

    @property
    def shortage(self) -> str:
        """Reason why no more bytes may be kept; empty if they may."""
        return self._held.reason if self._held.must_close() else ""

    def take(self, size: int) -> None:
        """Subtracts received bytes from the connection window. Raises Http2ConnectionError if they exceed it."""
        self._credit -= size
        if self._credit < CONNECTION_WINDOW // 2:
            if self._credit < 0:
                raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "peer exceeded the window of the connection")
            self._post(window_update(0, CONNECTION_WINDOW - self._credit))
            self._credit = CONNECTION_WINDOW

    def give_back(self, stream: Http2Stream, padding: int) -> None:
        """Returns the window of padding bytes to the stream."""
        stream.credit += padding
        self._post(window_update(stream.number, padding))

    def expect(self, stream: Http2Stream, missing_bytes: int) -> None:
        """Requests a grant for the missing bytes of a message."""
        wanted = missing_bytes + _PADDING_BYTES - stream.credit
        if wanted > 0 and not stream.granted:
            stream.granted = wanted
            self._asking.append((stream, wanted))
            self._grant()

    def complete(self, stream: Http2Stream) -> None:
        """Releases the grant of a message that is complete or abandoned."""
        if stream.granted:
            self._release_grant(stream)
        if stream.is_open and not stream.has_ended and stream.credit < STREAM_WINDOW // 2:
            self._post(window_update(stream.number, STREAM_WINDOW - stream.credit))
            stream.credit = STREAM_WINDOW

    def _release_grant(self, stream: Http2Stream) -> None:
        waiting = [each for each in self._asking if each[0] is not stream]
        if len(waiting) == len(self._asking):
            self._granted_bytes -= stream.granted
        else:
            self._asking = deque(waiting)
        stream.granted = 0
        self._grant()

    def _grant(self) -> None:
        while self._asking:
            stream, wanted = self._asking[0]
            if self._granted_bytes and self._granted_bytes + wanted > self._room_bytes:
                return
            self._asking.popleft()
            self._granted_bytes += wanted
            stream.credit += wanted
            self._post(window_update(stream.number, wanted))
