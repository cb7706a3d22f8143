"""Send flow control of a connection: the windows of the peer, and the data that waits for them. Encodes DATA frames;
knows no message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trimq.model import Buffer
from trimq.protocols.grpc.frames import (
    DEFAULT_WINDOW,
    FRAME_BYTES,
    HEAD,
    LARGEST_WINDOW,
    ErrorCode,
    Http2ConnectionError,
)
from trimq.protocols.grpc.streams import Http2Stream


class SendWindow:
    """Send windows of one connection. A stream that waits for its own window resumes when that is opened; streams that
    wait for the connection window resume in order of arrival. `ended` is called when the last frame of a stream is
    sent, and returns the bytes to send after it."""

    def __init__(self, ended: Callable[[Http2Stream], bytes]) -> None:
        self._ended = ended
        self.window = DEFAULT_WINDOW
        self.stream_window = DEFAULT_WINDOW
        self.frame_bytes = FRAME_BYTES
        self.held_bytes = 0
        self._sent_bytes = 0
        self._given_back = [0, 0]  # credit returned for sent bytes: of the connection, of all streams
        self._waiting: dict[Http2Stream, None] = {}

    def send(self, stream: Http2Stream, head: bytes, data: bytes, tail: bytes = b"") -> list[Buffer]:
        """Sends the frame `head`, the data as frames, and the last frame `tail`. Returns the bytes that may be sent
        now; holds the rest."""
        size = len(data)
        if stream.held is None and size <= self.window and size <= stream.window and size <= self.frame_bytes:
            self.window -= size
            stream.window -= size
            self._sent_bytes += size
            after = self._ended(stream) if tail else b""
            return [b"".join((head, HEAD.pack(size << 8, 0, stream.number), data, tail, after))]
        if stream.held is None:
            stream.held = deque()
        stream.held.append(data)
        self.held_bytes += size
        stream.tail = tail
        return [head, *self._resume(stream)]

    def finish(self, stream: Http2Stream, tail: bytes) -> list[Buffer]:
        """Sends the last frame, after the data that waits."""
        if stream.held is None:
            return [tail, self._ended(stream)]
        stream.tail = tail
        return []

    def _resume(self, stream: Http2Stream) -> list[Buffer]:
        held = stream.held
        assert held is not None
        parts: list[Buffer] = []
        while held:
            most = min(self.window, stream.window, self.frame_bytes)
            if most <= 0:
                if stream.window > 0:
                    self._waiting[stream] = None
                return parts
            piece = held.popleft()
            if len(piece) > most:
                view = memoryview(piece)
                held.appendleft(view[most:])
                piece = view[:most]
            size = len(piece)
            self.window -= size
            stream.window -= size
            self.held_bytes -= size
            self._sent_bytes += size
            parts += (HEAD.pack(size << 8, 0, stream.number), piece)
        stream.held = None
        if stream.tail:
            parts += (stream.tail, self._ended(stream))
        return parts

    def add_credit(self, increment: int) -> list[Buffer]:
        """Adds credit to the connection window. Returns the bytes that may be sent now."""
        self.window += increment
        if self.window > LARGEST_WINDOW:
            raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "window of the connection exceeds its maximum")
        parts: list[Buffer] = []
        while self._waiting and self.window > 0:
            stream = next(iter(self._waiting))
            del self._waiting[stream]
            parts += self._resume(stream)
        return parts

    def add_stream_credit(self, stream: Http2Stream, increment: int) -> list[Buffer] | None:
        """Like `add_credit`, for one stream. Returns None if its window exceeds the maximum."""
        stream.window += increment
        if stream.window > LARGEST_WINDOW:
            return None
        if stream.held is None or stream.window <= 0 or stream in self._waiting:
            return []
        return self._resume(stream)

    def give_back(self, on_stream: bool, increment: int) -> bool:
        """Records credit returned by the peer. Returns whether it covers bytes that were sent and not yet credited."""
        given_back = self._given_back[on_stream] + increment
        self._given_back[on_stream] = min(given_back, self._sent_bytes)
        return given_back <= self._sent_bytes

    def forget(self, stream: Http2Stream) -> None:
        """Discards the waiting data of an ended stream."""
        if stream.held is not None:
            self.held_bytes -= sum(map(len, stream.held))
            stream.held = None
            self._waiting.pop(stream, None)
