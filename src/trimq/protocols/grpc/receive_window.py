"""How much a peer may send: windows that are opened again as bytes are taken, room for long messages, which few streams
have at a time, and what is kept of all until it is whole. Knows sizes only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trimq.protocols.grpc.frames import ErrorCode, Http2ConnectionError, window_update
from trimq.protocols.grpc.streams import Http2Stream
from trimq.protocols.receive_buffer import ConnectionReceiveMemory

# What comes on a stream without being asked for: messages up to this are sent at once.
STREAM_WINDOW = 64 * 1024
CONNECTION_WINDOW = 1024 * 1024

# The last piece of a message may be padded.
_PADDING_BYTES = 256


class ReceiveWindow:
    """Of one connection. A message that does not fit into its stream's window is granted room for the rest of it, as
    soon as the rests of all messages fit into `room_bytes`, or no other is on its way: each that is granted can come
    whole, so that none waits for another in a circle. `post` takes frames that are to be sent. `held` counts what is
    kept."""

    def __init__(self, room_bytes: int, post: Callable[[bytes], None], held: ConnectionReceiveMemory) -> None:
        self._held = held
        self._room_bytes = room_bytes
        self._granted_bytes = 0
        self._credit = CONNECTION_WINDOW
        self._asking: deque[tuple[Http2Stream, int]] = deque()
        self._post = post

    def open(self, stream: Http2Stream) -> None:
        """Long headers are kept for as long as their stream is open. Others are not counted: nearly all calls of a
        client share theirs."""
        if stream.block.long_bytes:
            stream.headers_kept = stream.block.long_bytes
            self.keep(stream, 0)

    def keep(self, stream: Http2Stream, size: int) -> None:
        """So much of what came on the stream is kept now."""
        size += stream.headers_kept if stream.is_open else 0
        if size != stream.kept:
            self._held.change(size - stream.kept)
            stream.kept = size

    @property
    def shortage(self) -> str:
        """Why no more may be kept than is already; empty: it may."""
        return self._held.reason if self._held.is_over_limit else ""

    def take(self, size: int) -> None:
        """So much has come on the connection. BrokenConnection: more than was allowed."""
        self._credit -= size
        if self._credit < CONNECTION_WINDOW // 2:
            if self._credit < 0:
                raise Http2ConnectionError(
                    ErrorCode.FLOW_CONTROL_ERROR, "more was sent than the connection's window allows"
                )
            self._post(window_update(0, CONNECTION_WINDOW - self._credit))
            self._credit = CONNECTION_WINDOW

    def give_back(self, stream: Http2Stream, padding: int) -> None:
        """So much of what came on the stream said nothing."""
        stream.credit += padding
        self._post(window_update(stream.number, padding))

    def expect(self, stream: Http2Stream, missing_bytes: int) -> None:
        """A message on this stream lacks so much."""
        wanted = missing_bytes + _PADDING_BYTES - stream.credit
        if wanted > 0 and not stream.granted:
            stream.granted = wanted
            self._asking.append((stream, wanted))
            self._grant()

    def complete(self, stream: Http2Stream) -> None:
        """The message is there, or will never be."""
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
