"""The client's side of an AMQP connection with one channel in the simulation: sends methods, returns replies in order,
and passes unrequested methods on. Knows frames, not the meaning of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from client_connection import ClientConnection, Lost
from simulated_loop import SimulatedLoop
from simulated_trace import SimulationFailure
from simulated_wires import Peer

from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.codes import Code
from trimq.protocols.amqp.wire.frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    OVERHEAD,
    PREFIX_SIZE,
    frame,
    unpack_prefix,
)
from trimq.protocols.amqp.wire.method_codec import read_method, write_method

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
CHANNEL = 1

# Replies to any method by a broker that is stopping, or with a full or failing disk.
_EXPECTED = (Code.CONNECTION_FORCED, Code.PRECONDITION_FAILED, Code.INTERNAL_ERROR, Code.RESOURCE_ERROR)

_WITH_CONTENT = (methods.BasicDeliver, methods.BasicGetOk, methods.BasicReturn)
_NOTIFICATIONS = (methods.ConnectionBlocked, methods.ConnectionUnblocked)

Content = tuple[methods.Method, bytes]
"""A method with its body."""


class AmqpLink(ClientConnection):
    """`unasked` gets contents and confirms on arrival, while the link is intact as far as the client knows."""

    def __init__(self, loop: SimulatedLoop, peer: Peer, frame_max: int) -> None:
        self._wire = peer.wire
        self.life = peer.wire.host
        self.frame_max = frame_max
        self.unasked: Callable[[methods.Method, bytes], None] = lambda method, body: None
        self._partial: tuple[methods.Method, int, bytearray] | None = None
        self._confirms: dict[int, asyncio.Future[bytes]] = {}
        super().__init__(loop, peer, keeps_order=True)

    @property
    def is_sound(self) -> bool:
        """Whether the broker is alive and the connection is intact on both sides."""
        return self.life.is_alive and not self._wire.is_cut and not self.is_over

    def send(self, id: int, frame: bytes) -> asyncio.Future[bytes]:
        return self._lost() if self.is_over else super().send(id, frame)

    def _lost(self) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        _lose(answer)
        return answer

    def send_methods(self, *sent: methods.Method, channel: int = CHANNEL) -> None:
        self.send_only(b"".join(frame(METHOD, channel, write_method(method)) for method in sent))

    def ask(self, *asked: methods.Method, channel: int = CHANNEL) -> asyncio.Future[bytes]:
        """Sends methods; returns the reply to the last one. The others have none."""
        data = b"".join(frame(METHOD, channel, write_method(method)) for method in asked)
        return self.send(self.next_id(), data)

    def greet(self) -> asyncio.Future[bytes]:
        return self.send(self.next_id(), PROTOCOL_HEADER)

    def expect_confirm(self, tag: int) -> asyncio.Future[bytes]:
        """Returns a future that ends when this message is confirmed or refused."""
        if self.is_over:
            return self._lost()
        answer = self._confirms[tag] = self._loop.create_future()
        return answer

    def publish(self, exchange: str, key: str, header: bytes, body: bytes) -> None:
        """Publishes as mandatory."""
        piece = self.frame_max - OVERHEAD
        publish = write_method(methods.BasicPublish(exchange=exchange, routing_key=key, is_mandatory=True))
        parts = [frame(METHOD, CHANNEL, publish)]
        parts.append(frame(HEADER, CHANNEL, b"\0\x3c\0\0" + len(body).to_bytes(8) + header))
        parts += [frame(BODY, CHANNEL, body[at : at + piece]) for at in range(0, len(body), piece)]
        self.send_only(b"".join(parts))

    # -- incoming frames

    def _hand_out(self) -> None:
        data = self._received
        while len(data) >= PREFIX_SIZE and not self.is_over:
            kind, _, size = unpack_prefix(data)
            if len(data) < size + OVERHEAD:
                return
            payload = bytes(data[PREFIX_SIZE : PREFIX_SIZE + size])
            if data[PREFIX_SIZE + size] != 0xCE:
                raise SimulationFailure(f"a frame ends with {data[PREFIX_SIZE + size]}")
            del data[: size + OVERHEAD]
            self._take(kind, payload)

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == METHOD:
            if self._partial is not None:
                raise SimulationFailure("got a method in place of the rest of a content")
            self._take_method(payload)
        elif kind == HEADER and self._partial is not None:
            self._partial = self._partial[0], int.from_bytes(payload[4:12]), bytearray()
            self._complete()
        elif kind == BODY and self._partial is not None:
            self._partial[2].extend(payload)
            self._complete()
        elif kind != HEARTBEAT:
            raise SimulationFailure(f"a frame of kind {kind}is out of order")

    def _complete(self) -> None:
        assert self._partial is not None
        method, size, body = self._partial
        if len(body) > size:
            raise SimulationFailure(f"a body of {len(body)} bytes, where {size} were announced")
        if len(body) == size:
            self._partial = None
            self.unasked(method, bytes(body))
            if isinstance(method, methods.BasicGetOk):
                self._answer(write_method(method))

    def _take_method(self, payload: bytes) -> None:
        method = read_method(payload)
        if isinstance(method, _WITH_CONTENT):
            self._partial = method, -1, bytearray()
        elif isinstance(method, methods.BasicAck | methods.BasicNack):
            self.unasked(method, b"")
            self._confirm(method.delivery_tag, method.is_multiple)
        elif isinstance(method, methods.ConnectionClose | methods.ChannelClose):
            self._refused(method)
        elif not isinstance(method, _NOTIFICATIONS):
            self._answer(payload)

    def _confirm(self, tag: int, is_multiple: bool) -> None:
        tags = [each for each in self._confirms if each <= tag] if is_multiple else [tag]
        for each in tags:
            answer = self._confirms.pop(each, None)
            if answer is not None and not answer.done():
                answer.set_result(b"")

    def _refused(self, method: methods.ConnectionClose | methods.ChannelClose) -> None:
        if method.reply_code not in _EXPECTED:
            raise SimulationFailure(f"{method.NAME}: {method.reply_text}")
        self._loop.trace.note(f"a client gets {method.reply_text}")
        self.close()

    def _answer(self, payload: bytes) -> None:
        if not self._waiting:
            raise SimulationFailure(f"{read_method(payload).NAME} is a reply without a request")
        answer = self._waiting.pop(next(iter(self._waiting)))
        if not answer.done():
            answer.set_result(payload)

    def _end(self) -> None:
        super()._end()
        confirms, self._confirms = self._confirms, {}
        for answer in confirms.values():
            if not answer.done():
                _lose(answer)


def _lose(answer: asyncio.Future[bytes]) -> None:
    answer.set_exception(Lost())
    answer.exception()  # marks the exception as retrieved
