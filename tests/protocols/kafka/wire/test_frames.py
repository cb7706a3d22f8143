from __future__ import annotations

import struct

import pytest

from trimq.errors import ProtocolError
from trimq.protocols.kafka.wire.frames import START_SIZE, InvalidFrame, ReceivedFrames
from trimq.wire.receive_buffer import SHRINK_AFTER, ReceiveMemory

LIMIT = 100 * 1024 * 1024


def put(buffer: ReceivedFrames, data: bytes) -> None:
    while data:
        room = buffer.get_buffer()
        assert len(room) > 0
        count = min(len(room), len(data))
        room[:count] = data[:count]
        room.release()
        buffer.buffer_updated(count)
        data = data[count:]


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def take(buffer: ReceivedFrames) -> memoryview | None:
    found = buffer.next_frame()
    return None if found is None else memoryview(buffer.data)[found[0] : found[1]]


def test_frames_come_out_as_they_went_in() -> None:
    buffer = ReceivedFrames(LIMIT)
    put(buffer, frame(b"one") + frame(b"two") + frame(b"three")[:5])
    assert [take(buffer), take(buffer), take(buffer)] == [b"one", b"two", None]
    put(buffer, frame(b"three")[5:])
    assert take(buffer) == b"three"


@pytest.mark.parametrize("length", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_a_length_that_is_not_positive_or_over_the_limit_is_refused(length: int) -> None:
    buffer = ReceivedFrames(1000)
    put(buffer, struct.pack(">i", length))
    with pytest.raises(InvalidFrame, match=f"{length} bytes, but 1 to 1000"):
        buffer.next_frame()
    assert issubclass(InvalidFrame, ProtocolError)


def test_a_frame_of_the_limit_is_taken() -> None:
    buffer = ReceivedFrames(1000)
    put(buffer, frame(bytes(1000)))
    assert take(buffer) == bytes(1000)


def test_a_claimed_length_takes_no_memory() -> None:
    buffer = ReceivedFrames(LIMIT)
    put(buffer, struct.pack(">i", LIMIT) + b"x")
    assert buffer.next_frame() is None
    buffer.get_buffer().release()
    assert len(buffer.data) == START_SIZE


def test_the_buffer_at_most_doubles_the_received_bytes() -> None:
    buffer = ReceivedFrames(LIMIT)
    content = frame(bytes(3_000_000))
    for position in range(0, len(content), 10_000):
        put(buffer, content[position : position + 10_000])
        assert len(buffer.data) <= max(START_SIZE, 2 * (position + 10_000))
    assert take(buffer) == bytes(3_000_000)
    assert len(buffer.data) <= len(content)


def test_memory_is_reused_when_no_view_refers_to_it() -> None:
    buffer = ReceivedFrames(LIMIT)
    put(buffer, frame(b"a" * 50_000))
    memory = buffer.data
    for _ in range(10):
        view = take(buffer)
        assert view is not None
        view.release()
        put(buffer, frame(b"b" * 50_000))
    assert buffer.data is memory


def test_memory_with_views_is_never_overwritten() -> None:
    buffer = ReceivedFrames(LIMIT, start_size=64)
    views = []
    for number in range(100):
        put(buffer, frame(bytes([number]) * number + b"."))
        views.append(take(buffer))
    assert [bytes(view or b"") for view in views] == [bytes([number]) * number + b"." for number in range(100)]


def test_room_is_found_behind_memory_with_views() -> None:
    buffer = ReceivedFrames(LIMIT)
    put(buffer, frame(b"held"))
    memory, view = buffer.data, take(buffer)
    put(buffer, frame(b"next"))
    assert take(buffer) == b"next"
    assert buffer.data is memory
    assert view == b"held"


def test_half_a_frame_moves_to_new_memory_while_the_old_has_views() -> None:
    buffer = ReceivedFrames(LIMIT, start_size=64)
    put(buffer, frame(b"held" * 10) + frame(b"moved" * 8)[:10])
    memory, view = buffer.data, take(buffer)
    put(buffer, frame(b"moved" * 8)[10:])
    assert take(buffer) == b"moved" * 8
    assert buffer.data is not memory
    assert view == b"held" * 10


def test_half_a_frame_moves_to_the_front_without_views() -> None:
    buffer = ReceivedFrames(LIMIT, start_size=64)
    put(buffer, frame(b"gone" * 10) + frame(b"moved" * 8)[:10])
    memory = buffer.data
    assert buffer.next_frame() is not None
    put(buffer, frame(b"moved" * 8)[10:])
    assert take(buffer) == b"moved" * 8
    assert buffer.data is memory


def test_unread_frames_are_kept() -> None:
    buffer = ReceivedFrames(LIMIT, start_size=16)
    for number in range(50):
        put(buffer, frame(b"%d" % number))
    assert [bytes(take(buffer) or b"") for _ in range(50)] == [b"%d" % number for number in range(50)]


def test_a_buffer_that_is_far_too_big_shrinks_slowly() -> None:
    buffer = ReceivedFrames(LIMIT)
    put(buffer, frame(bytes(1_000_000)))
    assert buffer.next_frame() is not None
    grown = len(buffer.data)
    for _ in range(SHRINK_AFTER * 10):
        put(buffer, frame(b"small"))
        assert buffer.next_frame() is not None
    assert grown > 1_000_000
    assert len(buffer.data) == START_SIZE


def test_an_idle_connection_can_give_its_memory_back() -> None:
    buffer = ReceivedFrames(LIMIT)
    put(buffer, frame(b"held"))
    view = take(buffer)
    assert buffer.release_memory()
    assert len(buffer.data) == 0
    put(buffer, frame(b"again"))
    assert take(buffer) == b"again"
    assert view == b"held"


def test_half_a_frame_is_not_released() -> None:
    buffer = ReceivedFrames(LIMIT)
    put(buffer, frame(b"whole")[:6])
    assert not buffer.release_memory()
    put(buffer, frame(b"whole")[6:])
    assert take(buffer) == b"whole"


def test_buffers_together_hold_no_more_than_their_limit() -> None:
    receive_memory = ReceiveMemory(10_000)
    buffers = [ReceivedFrames(LIMIT, 1000, receive_memory) for _ in range(50)]
    half = frame(bytes(10_000))[:6000]
    refused = 0
    for buffer in buffers:
        put(buffer, half)
        if receive_memory.is_exceeded:
            refused += 1
            with pytest.raises(InvalidFrame, match="10000"):
                buffer.next_frame()
        else:
            assert buffer.next_frame() is None
        assert receive_memory.count <= 10_000 + 12_000
    assert 45 <= refused < 50
    whole = ReceivedFrames(LIMIT, 1000, receive_memory)
    put(whole, frame(b"small"))
    assert take(whole) == b"small"
    for buffer in buffers:
        buffer.drop()
    assert receive_memory.count == 0
    put(buffers[0], frame(bytes(10_000)))
    assert take(buffers[0]) == bytes(10_000)


def test_the_bytes_of_a_buffer_are_counted_through_growth_and_release() -> None:
    receive_memory = ReceiveMemory(LIMIT)
    buffer = ReceivedFrames(LIMIT, 1000, receive_memory)
    for size in (10, 5000, 100_000, 10, 10):
        put(buffer, frame(bytes(size)))
        view = take(buffer)
        assert view == bytes(size)
        assert receive_memory.count == max(len(buffer.data) - 1000, 0)
        view.release()
    for _ in range(20 * SHRINK_AFTER):
        put(buffer, frame(b"x"))
        assert take(buffer) == b"x"
        assert receive_memory.count == max(len(buffer.data) - 1000, 0)
    put(buffer, frame(bytes(50_000)))
    assert take(buffer) == bytes(50_000)
    assert buffer.release_memory()
    assert receive_memory.count == 0
