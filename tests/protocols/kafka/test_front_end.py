"""Memory limit that the connections of one Kafka front-end share."""

from __future__ import annotations

import struct

from protocols.kafka.desk import Desk, Way

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
    ways = [Way() for _ in range(3)]
    held = [desk.front_end.open_conversation("10.0.0.1:1", way) for way in ways]
    receive(held[0], HALF_A_FRAME)
    receive(held[1], HALF_A_FRAME)
    receive(desk.front_end.open_conversation("10.0.0.2:1", ways[2]), HALF_A_FRAME)
    assert [way.is_closed for way in ways] == [True, False, False]  # the oldest yields
    receive(desk.front_end.open_conversation("10.0.0.3:1", Way()), HALF_A_FRAME[:1000])
    held[0].closed()
    assert desk.front_end._held_bytes.count <= 2 * MIB
