"""Bytes as clients send them, and a connection with a completed handshake."""

from __future__ import annotations

from struct import pack

from trimq.formats.amqp_content.property_list import EMPTY
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.connection import AmqpConnection, Phase
from trimq.protocols.amqp.wire.events import Event
from trimq.protocols.amqp.wire.frames import BODY, HEADER, METHOD, frame
from trimq.protocols.amqp.wire.method_codec import write_method
from trimq.wire.receive_buffer import ReceiveMemory


def command(channel: int, method: methods.Method) -> bytes:
    return frame(METHOD, channel, write_method(method))


def header_frame(channel: int, size: int, header: bytes = EMPTY, class_id: int = 60) -> bytes:
    return frame(HEADER, channel, pack(">HHQ", class_id, 0, size) + header)


def publish(
    channel: int, method: methods.BasicPublish, body: bytes, header: bytes = EMPTY, piece: int = 131_064
) -> bytes:
    bodies = [frame(BODY, channel, body[at : at + piece]) for at in range(0, len(body), piece)]
    return b"".join([command(channel, method), header_frame(channel, len(body), header), *bodies])


def running(
    *channels: int, max_message_bytes: int = 1 << 20, receive_memory: ReceiveMemory | None = None
) -> AmqpConnection:
    """Returns an open connection with these channels."""
    connection = AmqpConnection(max_message_bytes, receive_memory)
    connection.frame_max = 131_072
    connection.phase = Phase.RUNNING
    connection.receive(b"".join(command(channel, methods.ChannelOpen()) for channel in channels))
    assert len(events(connection)) == len(channels)
    return connection


def events(connection: AmqpConnection) -> list[Event]:
    found: list[Event] = []
    while (event := connection.next_event()) is not None:
        found.append(event)
    return found
