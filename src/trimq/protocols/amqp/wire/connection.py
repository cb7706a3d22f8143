"""One AMQP connection without IO: parses received bytes into commands and messages. Knows frames, connection phases,
open channels and the assembly of contents; knows neither sockets nor clocks nor the effects of commands."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from trimq.formats.amqp_content.field_tables import BadField
from trimq.model import Buffer
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.codes import Code, ConnectionFault, SilentClose, WrongProtocol
from trimq.protocols.amqp.wire.contents import CONTENT_METHODS, Content, read_content_header
from trimq.protocols.amqp.wire.erlang_terms import term
from trimq.protocols.amqp.wire.events import Acks, Command, Event, Greeting, Oversized, Publish
from trimq.protocols.amqp.wire.fast_path import PublishFastPath, take_acks
from trimq.protocols.amqp.wire.frames import (
    BODY,
    END,
    HEADER,
    HEARTBEAT,
    KEPT_SIZE,
    METHOD,
    OVERHEAD,
    PREFIX_SIZE,
    START_SIZE,
    unpack_prefix,
)
from trimq.protocols.amqp.wire.method_codec import (
    BadMethod,
    BadTable,
    BadText,
    UnknownMethod,
    method_id,
    read_method,
)
from trimq.wire.receive_buffer import ConnectionReceiveMemory, CopiedReceiveBuffer, ReceiveMemory, copy_into

SERVED_HEADERS = (b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09")  # 0-9-1; 0-9 is served as 0-9-1
HANDSHAKE_FRAME_MAX = 8192  # as RabbitMQ 4.x: until the client has logged in and chosen its own
DEFAULT_MESSAGE_BYTES = 128 * 1024 * 1024

_CLASS_CONNECTION = 10


# Of the payload of each type of frame; a shorter one, and any other type, is an unknown frame.
_MIN_SIZES = {METHOD: 4, HEADER: 12, BODY: 0}
_NEVER = 1 << 32
_CREDIT_METHODS = (0x3C00C8, 0x3C00C9, 0x3C00CA)  # of an old extension: RabbitMQ still knows them
_MAX_MESSAGE_BYTES = 512 * 1024 * 1024  # whatever the setting is
_SHOWN_OCTETS = 16


def _shown(payload: bytes) -> str:
    """Returns the octets of a frame as RabbitMQ shows them in an error."""
    if len(payload) <= _SHOWN_OCTETS:
        return f"all octets = {term(payload)}"
    return f"first {_SHOWN_OCTETS} octets = {term(payload[:_SHOWN_OCTETS])}"


class Phase(Enum):
    GREETING = "waiting for the protocol header"
    STARTING = "waiting for connection.start-ok"
    SECURING = "waiting for connection.secure-ok"
    WAITING = "checking the login"
    TUNING = "waiting for connection.tune-ok"
    OPENING = "waiting for connection.open"
    RUNNING = "open"


_EXPECTED: dict[Phase, tuple[type[methods.Method], ...]] = {
    Phase.STARTING: (methods.ConnectionStartOk,),
    Phase.SECURING: (methods.ConnectionSecureOk,),
    Phase.TUNING: (methods.ConnectionTuneOk,),
    Phase.OPENING: (methods.ConnectionOpen,),
    Phase.RUNNING: (methods.ConnectionClose, methods.ConnectionUpdateSecret),
}


class _Channel:
    """State of a channel: open or waiting for the peer's close-ok, and the partly received content."""

    __slots__ = ("content", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self.content: Content | None = None


class AmqpConnection:
    """Parser of one connection, for `asyncio.BufferedProtocol` (`get_buffer`, `buffer_updated`). After each
    `buffer_updated`, call `next_event` until it returns None. If it raises a ProtocolError, the connection must close
    after the answers to earlier commands.

    The owner advances `phase` with its answers, sets `frame_max` and `channel_max` after negotiation, and reports when
    a channel that the peer opened has ended. `held` counts the bytes of partly received messages and of messages that
    the owner keeps; call `drop` when the connection is closed."""

    def __init__(
        self, max_message_bytes: int = DEFAULT_MESSAGE_BYTES, receive_memory: ReceiveMemory | None = None
    ) -> None:
        self.held = ConnectionReceiveMemory(receive_memory)
        self._received = CopiedReceiveBuffer(self.held, START_SIZE, KEPT_SIZE)
        self._channels: dict[int, _Channel] = {}
        self._max_message_bytes = max_message_bytes
        self._unfinished_bytes = 0
        self._publish_fast_path = PublishFastPath(self._received, max_message_bytes)
        self._ack_channel, self._ack_prefix = 0, b""  # of the last acknowledgement; 0: none
        self.phase = Phase.GREETING
        self.frame_max = HANDSHAKE_FRAME_MAX
        self.channel_max = 0
        self.get_buffer: Callable[[int], memoryview] = self._received.get_buffer
        self.release_memory = self._received.release_memory
        self.receive_count = 0
        """Number of reads: heartbeats compare it with its last value to detect silence."""

    def buffer_updated(self, count: int) -> None:
        self._received.end += count
        self.receive_count += 1

    def receive(self, data: Buffer) -> None:
        """Receives bytes by copying. For tests and transports without buffers."""
        copy_into(self, data)

    def drop(self) -> None:
        """Frees the receive buffer and partly received contents of a closed connection."""
        self._received.drop()
        for channel in self._channels.values():
            self._drop_content(channel)

    def _wait(self) -> None:
        """Checks the memory limit before waiting for more bytes. Raises ConnectionFault if it is exceeded."""
        if not self.held.receive_memory.is_exceeded:
            return
        self._received.shrink(START_SIZE)
        if self.held.must_close():
            self.drop()
            raise ConnectionFault(Code.RESOURCE_ERROR, self.held.reason)

    # -- channels

    @property
    def channels(self) -> list[int]:
        """Numbers of the open channels."""
        return [number for number, channel in self._channels.items() if channel.is_open]

    def end_channel(self, number: int) -> None:
        """Removes a channel that both sides have closed: its number may be reused."""
        self._drop_content(self._channels.pop(number))
        self._reset_fast_paths()

    def refuse_channel(self, number: int) -> None:
        """Marks a channel as closed by the broker: its frames are ignored until the peer sends close-ok."""
        channel = self._channels[number]
        self._drop_content(channel)
        channel.is_open = False
        self._reset_fast_paths()

    def _drop_content(self, channel: _Channel) -> None:
        if channel.content is not None:
            self._unfinished_bytes -= channel.content.received
            self.held.change(-channel.content.held)
            channel.content = None

    def _reset_fast_paths(self) -> None:
        self._publish_fast_path.channel = self._ack_channel = 0

    # -- events

    def next_event(self) -> Event | None:
        """Returns the next command or message, or None until more bytes arrive."""
        received = self._received
        while True:
            publish = self._publish_fast_path.take(self.frame_max)
            if publish is not None:
                return publish
            if self._ack_channel and received.data.startswith(self._ack_prefix, received.start):
                acks = take_acks(received, self._ack_channel, self._ack_prefix)
                if acks is not None:
                    return acks
            if self.phase is Phase.GREETING:
                return self._take_greeting()
            cut = self._cut_frame(received.start)
            if cut is None:
                return None
            event = self._take_frame(*cut)
            if event is not None:
                return event

    def next_similar(self, publish: Publish, most: int) -> list[tuple[bytes, bytes]]:
        """Returns properties and bodies of the messages right after the last event that have the same method frame and
        the same property flags."""
        return self._publish_fast_path.take_similar(publish.header[:2], most, self.frame_max)

    def _take_greeting(self) -> Greeting | None:
        received = self._received
        if received.end - received.start < len(SERVED_HEADERS[0]):
            return None
        header = bytes(received.view[received.start : received.start + len(SERVED_HEADERS[0])])
        if header not in SERVED_HEADERS:
            raise WrongProtocol(f"unsupported protocol header {header!r}")
        received.start += len(header)
        self.phase = Phase.STARTING
        return Greeting()

    def _cut_frame(self, start: int) -> tuple[int, int, bytes] | None:
        """Cuts the next frame. Returns type, channel and payload, or None if the frame is incomplete."""
        received = self._received
        if received.end - start < PREFIX_SIZE:
            return None
        kind, channel, length = unpack_prefix(received.data, start)
        if length > self.frame_max:  # as RabbitMQ: tolerates clients that do not count the 8 bytes around the payload
            reason = f"type {kind}, all octets = <<>>: {{frame_too_large,{length},{self.frame_max - OVERHEAD}}}"
            raise ConnectionFault(Code.FRAME_ERROR, reason)
        finish = start + PREFIX_SIZE + length
        if finish >= received.end:
            self._wait()
            return None
        payload = bytes(received.view[start + PREFIX_SIZE : finish])
        if (end := received.data[finish]) != END:
            reason = f"type {kind}, {_shown(payload)}: {{invalid_frame_end_marker,{end}}}"
            raise ConnectionFault(Code.FRAME_ERROR, reason)
        received.start = finish + 1
        return kind, channel, payload

    def _take_frame(self, kind: int, number: int, payload: bytes) -> Event | None:
        if number and self.phase is not Phase.RUNNING:
            raise ConnectionFault(Code.UNEXPECTED_FRAME, f"type {kind}, {_shown(payload)}")
        if kind == HEARTBEAT and not payload:
            if number:
                raise ConnectionFault(Code.UNEXPECTED_FRAME, f"type {kind}, {_shown(payload)}")
            return None
        if len(payload) < _MIN_SIZES.get(kind, _NEVER):
            raise ConnectionFault(Code.FRAME_ERROR, f"type {kind}, {_shown(payload)}: unknown_frame")
        if number == 0:
            return self._take_connection_frame(kind, payload)
        channel = self._channels.get(number)
        if channel is None:
            self._check_channel_max()
        elif not channel.is_open:
            return self._take_last_frame(number, kind, payload)
        content = None if channel is None else channel.content
        if content is not None:
            assert channel is not None
            return self._take_content_frame(number, channel, content, kind, payload)
        if kind != METHOD:
            raise ConnectionFault(Code.UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        return self._take_method(number, channel, payload)

    def _take_connection_frame(self, kind: int, payload: bytes) -> Command:
        if kind != METHOD:
            raise ConnectionFault(Code.UNEXPECTED_FRAME, f"type {kind}, {_shown(payload)}")
        method = self._read(payload)
        if isinstance(method, _EXPECTED.get(self.phase, ())):
            return Command(0, method)
        if self.phase in (Phase.RUNNING, Phase.OPENING):
            reason = f"unexpected method in connection state {self.phase.name.lower()}"
            raise ConnectionFault(Code.CHANNEL_ERROR, reason, *method.class_and_method)
        raise SilentClose(f"{method.NAME} received while {self.phase.value}")

    def _take_last_frame(self, number: int, kind: int, payload: bytes) -> Command | None:
        """Handles a frame on a channel that the broker has closed."""
        if kind != METHOD or len(payload) < 4:
            return None
        match method_id(payload):
            case methods.ChannelCloseOk.ID:
                del self._channels[number]
            case methods.ChannelClose.ID:  # both sides closed: the peer waits for an answer
                return Command(number, self._read(payload))
        return None

    # -- methods and contents

    def _take_method(self, number: int, channel: _Channel | None, payload: bytes) -> Event | None:
        method = self._read(payload)
        if isinstance(method, methods.ChannelOpen):
            if channel is not None:
                raise ConnectionFault(Code.CHANNEL_ERROR, "second 'channel.open' seen", *method.class_and_method)
            self._channels[number] = _Channel()
            return Command(number, method)
        if channel is None:
            raise ConnectionFault(Code.CHANNEL_ERROR, "expected 'channel.open'", *method.class_and_method)
        if isinstance(method, CONTENT_METHODS):
            channel.content = Content(method)
            self._reset_fast_paths()
            return None
        if method.ID >> 16 == _CLASS_CONNECTION:
            raise ConnectionFault(Code.COMMAND_INVALID, "unimplemented method", *method.class_and_method)
        if isinstance(method, methods.BasicAck):
            self._ack_channel = number
            self._ack_prefix = b"\x01" + number.to_bytes(2, "big") + b"\x00\x00\x00\x0d" + payload[:4]
            return Acks(number, [method.delivery_tag], method.is_multiple)
        return Command(number, method)

    def _check_channel_max(self) -> None:
        """Raises NOT_ALLOWED if no further channel may be used. As in RabbitMQ, before the frame is looked at."""
        if self.channel_max and len(self._channels) >= self.channel_max:
            reason = (
                f"number of channels opened ({len(self._channels)}) has reached the negotiated channel_max "
                f"({self.channel_max})"
            )
            raise ConnectionFault(Code.NOT_ALLOWED, reason)

    def _read(self, payload: bytes) -> methods.Method:
        """Decodes a method. Raises the errors that RabbitMQ has for a malformed one: none at all for an unknown method
        and for a malformed table."""
        try:
            return read_method(payload)
        except BadMethod as error:
            number = method_id(payload)
            ids = number >> 16, number & 0xFFFF
            is_unknown = isinstance(error, UnknownMethod) and number not in _CREDIT_METHODS
            if is_unknown or isinstance(error, BadTable) or self.phase not in (Phase.OPENING, Phase.RUNNING):
                raise SilentClose(str(error)) from None
            if isinstance(error, BadText):
                raise ConnectionFault(Code.FRAME_ERROR, "Malformed UTF-8 in shortstr") from None
            octets = ",".join(map(str, payload[4:]))
            raise ConnectionFault(Code.FRAME_ERROR, f"cannot decode <<{octets}>>", *ids) from None

    def _take_content_frame(
        self, number: int, channel: _Channel, content: Content, kind: int, payload: bytes
    ) -> Event | None:
        if not content.has_header:
            content.size, content.header = read_content_header(content.method, kind, payload)
            content.has_header = True
            self.held.change(len(content.header))
            if content.size > _MAX_MESSAGE_BYTES:
                reason = f"content body size {content.size} exceeds maximum allowed size {_MAX_MESSAGE_BYTES}"
                raise ConnectionFault(Code.FRAME_ERROR, reason, *content.method.class_and_method)
            if content.size > self._max_message_bytes:
                self.refuse_channel(number)
                return Oversized(number, content.size)
        else:
            content.add_body(kind, payload)
            self._unfinished_bytes += len(payload)
            self.held.change(len(payload))
            if self._unfinished_bytes > 2 * self._max_message_bytes:
                reason = f"{self._unfinished_bytes} bytes of incomplete messages"
                raise ConnectionFault(Code.RESOURCE_ERROR, reason, *content.method.class_and_method)
        if content.received < content.size:
            self._wait()
            return None
        self._drop_content(channel)
        return self._finish(number, content)

    def _finish(self, number: int, content: Content) -> Publish:
        method = content.method
        if not isinstance(method, methods.BasicPublish):
            raise ConnectionFault(Code.COMMAND_INVALID, "unimplemented method", *method.class_and_method)
        self._check_properties(content.header)  # after the body, as RabbitMQ does
        self._publish_fast_path.learn(number, method, content.method_frame(number))
        return Publish(
            number,
            method.exchange,
            method.routing_key,
            method.is_mandatory,
            method.is_immediate,
            content.header,
            content.body(),
        )

    def _check_properties(self, header: bytes) -> None:
        try:
            self._publish_fast_path.check_header(header)
        except BadField as error:  # RabbitMQ has no error of its own for it
            raise ConnectionFault(Code.INTERNAL_ERROR, str(error), is_explained=False) from None
