"""Receive buffers: the two policies, and the memory limit of all connections. The policy whose readers keep views is
tested with Kafka's frames, in `kafka/wire/test_frames.py`."""

from __future__ import annotations

import pytest

from trimq.wire.receive_buffer import (
    ALWAYS_ALLOWED_BYTES,
    ConnectionReceiveMemory,
    CopiedReceiveBuffer,
    ReceiveMemory,
    ViewedReceiveBuffer,
    copy_into,
)


def copied(start_size: int = 100, kept_size: int = 400, min_room: int = 1) -> CopiedReceiveBuffer:
    return CopiedReceiveBuffer(ConnectionReceiveMemory(ReceiveMemory()), start_size, kept_size, min_room)


def read(buffer: CopiedReceiveBuffer, count: int) -> bytes:
    found = bytes(buffer.view[buffer.start : buffer.start + count])
    buffer.start += count
    return found


@pytest.mark.parametrize("piece", [1, 7, 100, 1000])
def test_bytes_are_read_as_they_were_received(piece: int) -> None:
    buffer, sent = copied(), bytes(range(250)) * 4
    for at in range(0, len(sent), piece):
        copy_into(buffer, sent[at : at + piece])
        if buffer.end - buffer.start > 300:
            held = buffer.end - buffer.start
            assert read(buffer, held - 50) == sent[at + piece - held : at + piece - 50]
    assert bytes(buffer.view[buffer.start : buffer.end]) == sent[-(buffer.end - buffer.start) :]


def test_an_empty_buffer_is_used_again_from_its_beginning() -> None:
    buffer = copied()
    copy_into(buffer, b"x" * 100)
    memory = buffer.data
    read(buffer, 100)
    assert len(buffer.get_buffer()) == 100
    assert buffer.data is memory


def test_little_that_is_not_yet_read_moves_to_the_beginning_and_much_to_a_larger_buffer() -> None:
    buffer = copied()
    copy_into(buffer, b"x" * 60 + b"y" * 40)
    read(buffer, 60)
    memory = buffer.data
    assert len(buffer.get_buffer()) == 60
    assert buffer.data is memory
    copy_into(buffer, b"y" * 60)
    assert len(buffer.get_buffer()) == 100
    assert buffer.memory.count == 100
    assert read(buffer, 100) == b"y" * 100


def test_least_room_is_free_for_every_read() -> None:
    buffer = copied(min_room=40)
    copy_into(buffer, b"x" * 70)
    read(buffer, 50)
    assert len(buffer.get_buffer()) == 80


def test_a_buffer_beyond_the_kept_size_is_freed_when_it_is_empty() -> None:
    buffer = copied()
    for size, kept in ((350, 400), (900, 100)):
        copy_into(buffer, bytes(size))
        read(buffer, size)
        buffer.get_buffer().release()
        assert len(buffer.data) == kept
    assert buffer.memory.count == 0


def test_an_owner_may_have_larger_buffers_made_until_the_memory_is_released() -> None:
    buffer = copied()
    buffer.size = 200
    assert len(buffer.get_buffer()) == 200
    assert buffer.memory.count == 100
    assert buffer.release_memory()
    assert len(buffer.get_buffer()) == 100
    assert buffer.memory.count == 0


def test_a_buffer_shrinks_only_to_a_size_that_holds_the_unread_bytes() -> None:
    buffer = copied()
    copy_into(buffer, b"x" * 340 + b"y" * 60)
    buffer.shrink(100)
    assert len(buffer.data) == 400
    read(buffer, 340)
    buffer.shrink(100)
    assert len(buffer.data) == 100
    assert read(buffer, 60) == b"y" * 60


def test_memory_is_released_only_when_everything_is_read() -> None:
    buffer = copied()
    copy_into(buffer, b"half")
    assert not buffer.release_memory()
    assert read(buffer, 4) == b"half"
    assert buffer.release_memory()
    assert not buffer.data
    copy_into(buffer, b"again")
    buffer.drop()
    assert (buffer.start, buffer.end, len(buffer.data)) == (0, 0, 0)


def test_a_connection_is_over_the_limit_only_with_more_than_its_allowed_bytes() -> None:
    everybody = ReceiveMemory(100)
    small, large = ConnectionReceiveMemory(everybody), ConnectionReceiveMemory(everybody)
    strict = ConnectionReceiveMemory(everybody, allowed_bytes=0)
    small.change(ALWAYS_ALLOWED_BYTES)
    large.change(ALWAYS_ALLOWED_BYTES + 1)
    strict.change(1)
    assert [each.must_close() for each in (small, large, strict)] == [False, True, True]
    assert "100 bytes" in large.reason
    for each in (small, large):
        each.give_back()
    assert everybody.count == 1
    assert not strict.must_close()


def test_the_policy_with_views_needs_to_know_the_frames() -> None:
    with pytest.raises(TypeError, match="first_frame_size"):
        ViewedReceiveBuffer(100, ConnectionReceiveMemory(ReceiveMemory()))  # type: ignore[abstract]


def test_a_buffer_grows_to_the_size_that_its_owner_asked_for_while_bytes_are_unread() -> None:
    """A client that keeps the socket full leaves a part of a frame in the buffer at every read."""
    buffer = copied(start_size=100)
    copy_into(buffer, b"x" * 90 + b"y" * 10)
    read(buffer, 90)
    buffer.size = 200
    assert len(buffer.get_buffer()) == 190
    assert read(buffer, 10) == b"y" * 10


class Holder:
    """A connection that holds bytes in part, until it is closed."""

    def __init__(self, everybody: ReceiveMemory, source: str, size: int) -> None:
        self.memory = ConnectionReceiveMemory(everybody, allowed_bytes=0)
        self.memory.attach(source, self._close)
        self.reason = ""
        self.memory.change(size)

    def _close(self, reason: str) -> None:
        self.reason = reason


def test_the_oldest_and_largest_of_the_address_that_holds_most_yields_to_a_newcomer() -> None:
    everybody = ReceiveMemory(1000)
    one = Holder(everybody, "10.0.0.1", 300)
    old = [Holder(everybody, "10.0.0.2", size) for size in (100, 200, 150, 190)]
    new = Holder(everybody, "10.0.0.3", 250)
    assert not new.memory.must_close()
    assert [bool(each.reason) for each in (one, *old, new)] == [False, False, True, False, False, False]
    assert "200 bytes of partly received requests make room" in old[1].reason
    assert everybody.count == 990


def test_an_evicted_connection_is_not_counted_any_more() -> None:
    everybody = ReceiveMemory(100)
    old, new = Holder(everybody, "a", 90), Holder(everybody, "b", 50)
    assert not new.memory.must_close()
    old.memory.change(1000)
    old.memory.give_back()
    assert (everybody.count, new.reason) == (50, "")


def test_a_connection_that_received_a_whole_request_is_as_new_as_any() -> None:
    everybody = ReceiveMemory(100)
    busy, silent = Holder(everybody, "a", 40), Holder(everybody, "a", 40)
    busy.memory.renew()
    new = Holder(everybody, "b", 30)
    assert not new.memory.must_close()
    assert (bool(busy.reason), bool(silent.reason)) == (False, True)


def test_a_connection_that_holds_most_itself_has_to_close() -> None:
    everybody = ReceiveMemory(100)
    other = Holder(everybody, "b", 20)
    greedy = Holder(everybody, "a", 150)
    assert greedy.memory.must_close()
    assert not other.reason


def test_each_of_many_newcomers_finds_room() -> None:
    everybody = ReceiveMemory(1000)
    attackers = [Holder(everybody, "10.0.0.9", 95) for _ in range(30)]
    for number in range(20):
        honest = Holder(everybody, f"10.0.1.{number}", 10)
        assert not honest.memory.must_close()
        attackers.append(Holder(everybody, "10.0.0.9", 95))
        attackers[-1].memory.must_close()
        assert not honest.reason
        honest.memory.give_back()
        assert everybody.count <= 1000
