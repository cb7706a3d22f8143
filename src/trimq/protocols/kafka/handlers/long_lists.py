"""Responses with a long array, made over several turns of the event loop. Knows the shape of responses, no API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from trimq.model import Buffer
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.connection import Request, frame_response
from trimq.protocols.kafka.wire.primitives import varint
from trimq.protocols.turns import reply_over_turns

# Weight per turn of the loop: about a millisecond. At most 126, so that the compact length of an array has one byte.
_AT_ONCE = 100

T = TypeVar("T")


class LongList(Generic[T]):
    """Encodes a response in parts: the codec encodes whole messages, of which the elements are cut out.

    `encode` encodes the response with these elements; `tail_bytes` is the length of its fields behind the array.
    `weigh` tells how much of a turn an element takes; an element that was left out counts as one."""

    def __init__(
        self,
        request: Request,
        rows: Iterator[T | None],
        encode: Callable[[list[T]], bytes],
        tail_bytes: int = 0,
        weigh: Callable[[T], int] = lambda row: 1,
    ) -> None:
        self._request = request
        self._rows = rows
        self._encode = encode
        self._weigh = weigh
        self._count = 0
        self._parts: list[Buffer] = []
        self._is_compact = codec.is_flexible(request.api_key, request.api_version)
        empty = encode([])
        tail = tail_bytes + (1 if self._is_compact else 0)  # tagged fields
        self._begin = len(empty) - tail
        self._tail = empty[self._begin :]
        self._head = empty[: self._begin - (1 if self._is_compact else 4)]

    def reply(self, context: Context) -> Reply:
        return reply_over_turns(context.clock.liveness, self._add, self._finish)

    def _add(self) -> bool:
        """Encodes some of the elements. Returns False if there were no more."""
        some: list[T] = []
        weight = 0
        is_over = False
        while weight < _AT_ONCE:
            try:
                row = next(self._rows)
            except StopIteration:
                is_over = True
                break
            weight += 1 if row is None else max(1, self._weigh(row))
            if row is not None:
                some.append(row)
        if some:
            encoded = self._encode(some)
            self._parts.append(encoded[self._begin : len(encoded) - len(self._tail)])
            self._count += len(some)
        return not is_over

    def _finish(self) -> Reply:
        count = self._count
        length = varint(count + 1) if self._is_compact else count.to_bytes(4, "big")
        body = b"".join((self._head, length, *self._parts, self._tail))
        return Reply.now(frame_response(self._request, [body], len(body), self._request.api_version))
