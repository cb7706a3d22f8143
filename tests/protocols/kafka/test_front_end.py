"""Memory limit that the connections of one Kafka front-end share."""

from __future__ import annotations

import struct

import pytest
from protocols.kafka.desk import Desk, Way

from trimq.errors import ProtocolError
from trimq.protocols.kafka.front_end import KafkaConversation

MIB = 1024 * 1024
HALF_A_FRAME = struct.pack(">ihhih", 50 * MIB, 0, 9, 1, -1) + bytes(600 * 1024)


def receive(conversation: KafkaConversation, data: bytes) -> None:
    """Feeds the bytes piece by piece and decodes after each piece, as a session does."""
    view = memoryview(data)
    while view:
        room = conversation.get_buffer(len(view))
        count = min(len(room), len(view))
        room[:count] = view[:count]
        conversation.buffer_updated(count)
        view = view[count:]
        assert conversation.next_event() is None


def test_frames_that_come_in_part_take_a_limited_room_together() -> None:
    desk = Desk(kafka={"received_bytes": 2 * MIB})
    held = [desk.front_end.open_conversation(f"10.0.0.1:{port}", Way()) for port in range(2)]
    for conversation in held:
        receive(conversation, HALF_A_FRAME)
    with pytest.raises(ProtocolError, match=str(2 * MIB)):
        receive(desk.front_end.open_conversation("10.0.0.2:1", Way()), HALF_A_FRAME)
    receive(desk.front_end.open_conversation("10.0.0.3:1", Way()), HALF_A_FRAME[:1000])
    held[0].closed()
    receive(desk.front_end.open_conversation("10.0.0.4:1", Way()), HALF_A_FRAME)
