"""State of one HTTP/2 stream: request headers, windows in both directions, and data that waits for them."""

from __future__ import annotations

from collections import deque
from typing import Any

from trimq.model import Buffer
from trimq.protocols.grpc.hpack import HeaderBlock


class Http2Stream:
    """One stream. `credit`: bytes that the peer may still send; `window`: bytes that it still accepts. `work` belongs
    to the owner that answers the call."""

    __slots__ = (
        "block",
        "credit",
        "granted",
        "has_ended",
        "has_headers",
        "headers_kept",
        "held",
        "is_open",
        "kept",
        "message",
        "number",
        "partial",
        "tail",
        "window",
        "work",
    )

    def __init__(self, number: int, block: HeaderBlock, credit: int, window: int, has_ended: bool) -> None:
        self.number = number
        self.block = block
        self.credit = credit
        self.window = window
        self.has_ended = has_ended
        """The peer sends no more data on this stream."""
        self.is_open = True
        self.has_headers = False
        """The response headers were sent."""
        self.held: deque[Buffer] | None = None
        """Data for which the window of the peer has no room yet."""
        self.tail = b""
        """Last frame, sent after the waiting data."""
        self.partial: bytearray | None = None
        """Partly received message."""
        self.granted = 0
        self.kept = 0
        """Counted memory of received data, including headers if they are long."""
        self.headers_kept = 0
        self.message: tuple[int, bytes] | None = None
        """Message of a unary call with its flag, until the peer ends the stream."""
        self.work: Any = None
