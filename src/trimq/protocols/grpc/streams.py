"""One stream of an HTTP/2 connection: what it asked, what may still be sent on it each way, and what waits for that."""

from __future__ import annotations

from collections import deque
from typing import Any

from trimq.model import Buffer
from trimq.protocols.grpc.hpack import HeaderBlock


class Http2Stream:
    """`credit` is what the peer may still send, `window` what it still takes. `work` is for whoever answers."""

    __slots__ = (
        "asked",
        "block",
        "credit",
        "granted",
        "has_ended",
        "has_headers",
        "headers_kept",
        "held",
        "is_open",
        "kept",
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
        """The peer will send nothing more on it."""
        self.is_open = True
        self.has_headers = False
        """The answer has begun."""
        self.held: deque[Buffer] | None = None
        """What the peer has no room for yet."""
        self.tail = b""
        """The frame to be sent behind it."""
        self.partial: bytearray | None = None
        """A message that has come in part."""
        self.granted = 0
        self.kept = 0
        """How much memory is counted for what has come on it, with its headers if they are long."""
        self.headers_kept = 0
        self.asked: tuple[int, bytes] | None = None
        """The one message of a plain call and its flag, until the peer says that there is no other."""
        self.work: Any = None
