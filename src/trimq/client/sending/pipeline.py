"""Changes of a message before it is sent: interceptors, then the serializer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec

from trimq.client.errors import BadMessage
from trimq.client.messages import Message

Interceptor = Callable[[str, Message], Message | None]
"""Gets topic and message before each send. Returns the message to send, or None to drop it. An exception fails the
send."""


class Serializer(Protocol):
    """Turns values into bodies and back."""

    def dumps(self, value: Any, /) -> bytes: ...

    def loads(self, body: bytes, /) -> Any: ...


class Json:
    """Values as JSON; `kind` is the type that bodies are decoded to and checked against, as msgspec does it."""

    def __init__(self, kind: Any = Any) -> None:
        self._dumps = msgspec.json.Encoder().encode
        self._loads = msgspec.json.Decoder(kind).decode

    def dumps(self, value: Any, /) -> bytes:
        return self._dumps(value)

    def loads(self, body: bytes, /) -> Any:
        return self._loads(body)


class Dropped(Enum):
    """Result of a send whose message an interceptor dropped; BUSY: which `Drop` or the brake dropped, as brokers or
    consumers were busy."""

    DROPPED = "DROPPED"
    BUSY = "BUSY"


class Pipeline:
    def __init__(self, interceptors: Sequence[Interceptor], serializer: Serializer | None) -> None:
        self._interceptors = tuple(interceptors)
        self.serializer = serializer
        self.is_plain = not self._interceptors and serializer is None

    def intercept(self, topic: str, message: Message) -> Message | None:
        """Returns the message to send; None if an interceptor dropped it."""
        for interceptor in self._interceptors:
            changed = interceptor(topic, message)
            if changed is None:
                return None
            message = changed
        return message

    def body(self, value: Any) -> bytes:
        """Returns the bytes to send. Raises BadMessage for a value that is no bytes and has no serializer."""
        if self.serializer is not None:
            return self.serializer.dumps(value)
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise BadMessage(f"the body must be bytes, not {type(value).__name__}: give a serializer to send other values")
