"""One AMQP connection without IO: received bytes become commands and messages. Knows frames, the phases of a
connection, which channels are open, and how contents are put together; nothing of sockets, clocks, or what a command
does."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from trimq.formats.amqp_content.field_tables import BadField
from trimq.model import Buffer
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.codes import Code, ConnectionFault, SilentClose, WrongProtocol
from trimq.protocols.amqp.wire.contents import CONTENT_METHODS, Content, read_content_header
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
from trimq.protocols.amqp.wire.method_codec import BadMethod, UnknownMethod, method_id, read_method
from trimq.protocols.receive_buffer import ConnectionReceiveMemory, CopiedReceiveBuffer, ReceiveMemory, copy_into

SERVED_HEADERS = (b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09")  # 0-9-1, and 0-9, which is served as it
DEFAULT_FRAME_MAX = 131_072
DEFAULT_MESSAGE_BYTES = 128 * 1024 * 1024

_CLASS_CONNECTION = 10


class Phase(Enum):
    GREETING = "the header is expected"
    STARTING = "connection.start-ok is expected"
    SECURING = "connection.secure-ok is expected"
    WAITING = "nothing is expected: the login is looked at"
    TUNING = "connection.tune-ok is expected"
    OPENING = "connection.open is expected"
    RUNNING = "open"


_EXPECTED: dict[Phase, tuple[type[methods.Method], ...]] = {
    Phase.STARTING: (methods.ConnectionStartOk,),
    Phase.SECURING: (methods.ConnectionSecureOk,),
    Phase.TUNING: (methods.ConnectionTuneOk,),
    Phase.OPENING: (methods.ConnectionOpen,),
    Phase.RUNNING: (methods.ConnectionClose, methods.ConnectionCloseOk, methods.ConnectionUpdateSecret),
}


class _Channel:
    """Whether a channel is open, or waits for the peer's close-ok; and the content that is on its way."""

    __slots__ = ("content", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self.content: Content | None = None


class AmqpConnection:
    """For `asyncio.BufferedProtocol`: `get_buffer` and `buffer_updated` are its methods of that name. After each
    `buffer_updated` call `next_event` until it gives None. A ProtocolError from it means that the connection must
    close, after the answers to earlier commands.

    The owner moves `phase` on as it answers, sets `frame_max` and `channel_max` when they are agreed upon, and tells
    when a channel that the peer opened has ended. `held` counts what has come in part, and what the owner keeps
    of messages that wait; call `drop` when the connection is gone.
    """

    def __init__(
        self, max_message_bytes: int = DEFAULT_MESSAGE_BYTES, receive_memory: ReceiveMemory | None = None
    ) -> None:
        self.held = ConnectionReceiveMemory(receive_memory)
        self._received = CopiedReceiveBuffer(self.held, START_SIZE, KEPT_SIZE)
        self._channels: dict[int, _Channel] = {}
        self._max_message_bytes = max_message_bytes
        self._unfinished_bytes = 0
        self._publish_fast_path = PublishFastPath(self._received, max_message_bytes)
        self._ack_channel, self._ack_prefix = 0, b""  # of the last acknowledgement; 0: there is none
        self.phase = Phase.GREETING
        self.frame_max = DEFAULT_FRAME_MAX
        self.channel_max = 0
        self.get_buffer: Callable[[int], memoryview] = self._received.get_buffer
        self.release_memory = self._received.release_memory
        self.receive_count = 0
        """Number of reads: heartbeats compare it with its last value to detect silence."""

    def buffer_updated(self, count: int) -> None:
        self._received.end += count
        self.receive_count += 1

    def receive(self, data: Buffer) -> None:
        """Take bytes by copying them. For tests and transports without buffers."""
        copy_into(self, data)

    def drop(self) -> None:
        """The connection is gone: nothing of what has come in part is kept."""
        self._received.drop()
        for channel in self._channels.values():
            self._drop_content(channel)

    def _wait(self) -> None:
        """More has to come. ConnectionFault: there is no room for it."""
        if not self.held.receive_memory.is_exceeded:
            return
        self._received.shrink(START_SIZE)
        if self.held.is_over_limit:
            self.drop()
            raise ConnectionFault(Code.RESOURCE_ERROR, self.held.reason)

    # -- channels

    @property
    def channels(self) -> list[int]:
        """Those that are open."""
        return [number for number, channel in self._channels.items() if channel.is_open]

    def end_channel(self, number: int) -> None:
        """Both sides have closed it: its number may be used again."""
        self._drop_content(self._channels.pop(number))
        self._reset_fast_paths()

    def refuse_channel(self, number: int) -> None:
        """We have closed it: whatever comes on it is ignored until the peer says that it knows."""
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
        """The next command or message, or None until more bytes arrive."""
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
        """Properties and bodies of further messages, after the last event, that go the same way and have the same kinds
        of properties."""
        return self._publish_fast_path.take_similar(publish.header[:2], most, self.frame_max)

    def _take_greeting(self) -> Greeting | None:
        received = self._received
        if received.end - received.start < len(SERVED_HEADERS[0]):
            return None
        header = bytes(received.view[received.start : received.start + len(SERVED_HEADERS[0])])
        if header not in SERVED_HEADERS:
            raise WrongProtocol(f"the connection begins with {header!r}")
        received.start += len(header)
        self.phase = Phase.STARTING
        return Greeting()

    def _cut_frame(self, start: int) -> tuple[int, int, bytes] | None:
        """The type, channel and payload of the next frame, if all of it is there."""
        received = self._received
        if received.end - start < PREFIX_SIZE:
            return None
        kind, channel, length = unpack_prefix(received.data, start)
        if length > self.frame_max:  # as RabbitMQ, which forgives a client that forgot the eight bytes around it
            reason = f"type {kind}, all octets = <<>>: {{frame_too_large,{length},{self.frame_max - OVERHEAD}}}"
            raise ConnectionFault(Code.FRAME_ERROR, reason)
        finish = start + PREFIX_SIZE + length
        if finish >= received.end:
            self._wait()
            return None
        payload = bytes(received.view[start + PREFIX_SIZE : finish])
        if (end := received.data[finish]) != END:
            raise ConnectionFault(Code.FRAME_ERROR, f"type {kind}: {{invalid_frame_end_marker,{end}}}")
        received.start = finish + 1
        return kind, channel, payload

    def _take_frame(self, kind: int, number: int, payload: bytes) -> Event | None:
        if kind == HEARTBEAT and not payload:
            if number:
                raise ConnectionFault(Code.UNEXPECTED_FRAME, "type 8, all octets = <<>>")
            return None
        if kind not in (METHOD, HEADER, BODY):
            raise ConnectionFault(Code.FRAME_ERROR, f"type {kind}: unknown_frame")
        if number == 0:
            return self._take_connection_frame(kind, payload)
        if self.phase is not Phase.RUNNING:
            raise SilentClose(f"a frame on channel {number} before the connection is open")
        channel = self._channels.get(number)
        if channel is not None and not channel.is_open:
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
            raise ConnectionFault(Code.UNEXPECTED_FRAME, f"type {kind} on channel 0")
        method = self._read(payload)
        if isinstance(method, _EXPECTED.get(self.phase, ())):
            return Command(0, method)
        if self.phase in (Phase.RUNNING, Phase.OPENING):
            reason = f"unexpected method in connection state {self.phase.name.lower()}"
            raise ConnectionFault(Code.CHANNEL_ERROR, reason, *method.class_and_method)
        raise SilentClose(f"{method.NAME} where {self.phase.value}")

    def _take_last_frame(self, number: int, kind: int, payload: bytes) -> Command | None:
        """On a channel that we have closed."""
        if kind != METHOD or len(payload) < 4:
            return None
        match method_id(payload):
            case methods.ChannelCloseOk.ID:
                del self._channels[number]
            case methods.ChannelClose.ID:  # both closed at once: the peer waits for an answer too
                return Command(number, self._read(payload))
        return None

    # -- methods and contents

    def _take_method(self, number: int, channel: _Channel | None, payload: bytes) -> Event | None:
        method = self._read(payload)
        if isinstance(method, methods.ChannelOpen):
            self._open_channel(number, channel, method)
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

    def _open_channel(self, number: int, channel: _Channel | None, method: methods.Method) -> None:
        if channel is not None:
            raise ConnectionFault(Code.CHANNEL_ERROR, "second 'channel.open' seen", *method.class_and_method)
        if self.channel_max and len(self._channels) >= self.channel_max:
            reason = (
                f"number of channels opened ({len(self._channels)}) has reached the negotiated channel_max "
                f"({self.channel_max})"
            )
            raise ConnectionFault(Code.NOT_ALLOWED, reason)
        self._channels[number] = _Channel()

    def _read(self, payload: bytes) -> methods.Method:
        try:
            return read_method(payload)
        except BadMethod as error:
            if len(payload) < 4:
                raise SilentClose(str(error)) from None
            number = method_id(payload)
            if isinstance(error, UnknownMethod) and all(known >> 16 != number >> 16 for known in methods.METHODS):
                raise SilentClose(str(error)) from None  # RabbitMQ has no words for an unknown class
            if self.phase is not Phase.RUNNING:
                raise SilentClose(str(error)) from None
            raise ConnectionFault(Code.FRAME_ERROR, str(error), number >> 16, number & 0xFFFF) from None

    def _take_content_frame(
        self, number: int, channel: _Channel, content: Content, kind: int, payload: bytes
    ) -> Event | None:
        if not content.has_header:
            content.size, content.header = read_content_header(content.method, kind, payload)
            content.has_header = True
            self.held.change(len(content.header))
            self._check_properties(content.header, content.method)
            if content.size > self._max_message_bytes:
                self.refuse_channel(number)
                return Oversized(number, content.size)
        else:
            content.add_body(kind, payload)
            self._unfinished_bytes += len(payload)
            self.held.change(len(payload))
            if self._unfinished_bytes > 2 * self._max_message_bytes:
                reason = f"{self._unfinished_bytes} bytes of unfinished messages"
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

    def _check_properties(self, header: bytes, method: methods.Method) -> None:
        try:
            self._publish_fast_path.check_header(header)
        except BadField as error:
            raise ConnectionFault(Code.FRAME_ERROR, str(error), *method.class_and_method) from None
