"""Send queue of one connection."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimq.metrics import Counter
from trimq.model import Buffer
from trimq.server.connection.send_queue import SLICE_BYTES, SendQueue, send_eof


class Socket:
    """Accepts `room` bytes, then asks for a pause."""

    def __init__(self, outbox: SendQueue, room: int = 1 << 40) -> None:
        self.outbox = outbox
        self.room = room
        self.writes: list[bytes] = []

    def write(self, data: Buffer) -> None:
        self.writes.append(bytes(data))
        self.room -= len(data)
        self.outbox.is_blocked = self.room <= 0

    def writelines(self, list_of_data: list[Buffer]) -> None:
        self.write(b"".join(list_of_data))


def test_small_parts_leave_in_one_write() -> None:
    outbox = SendQueue(Counter())
    outbox.put([b"a", bytearray(b"b"), memoryview(b"cd")])
    outbox.put([b"", b"e"])
    assert outbox.unsent_bytes == 5
    socket = Socket(outbox)
    outbox.write_to(socket)
    assert socket.writes == [b"abcde"]
    assert not outbox
    assert outbox.unsent_bytes == 0


def test_a_long_part_is_not_copied() -> None:
    outbox = SendQueue(Counter())
    view = memoryview(bytearray(SLICE_BYTES + 50_000))
    outbox.put([b"before", view, b"after"])
    written: list[Buffer] = []

    class Keeping:
        def write(self, data: Buffer) -> None:
            written.append(data)

        def writelines(self, list_of_data: list[Buffer]) -> None:
            raise AssertionError("this transport has no gather writes")

    outbox.write_to(Keeping())
    assert [isinstance(data, memoryview) and data.obj is view.obj for data in written] == [False, True, True, False]


def test_a_pass_has_a_share() -> None:
    outbox = SendQueue(Counter())
    outbox.put([b"x" * (10 * SLICE_BYTES)])
    socket = Socket(outbox)
    outbox.write_to(socket)
    assert [len(data) for data in socket.writes] == [SLICE_BYTES] * 4
    assert outbox.unsent_bytes == 6 * SLICE_BYTES


def test_nothing_is_written_to_a_socket_that_is_full() -> None:
    outbox = SendQueue(Counter())
    outbox.put([b"x" * (2 * SLICE_BYTES)])
    socket = Socket(outbox, room=1)
    outbox.write_to(socket)
    outbox.write_to(socket)
    assert len(socket.writes) == 1
    outbox.clear()
    assert not outbox
    assert outbox.unsent_bytes == 0


sizes = (
    st.integers(0, 8)
    | st.integers(0, 70_000)
    | st.integers(SLICE_BYTES - 3, SLICE_BYTES + 3)
    | st.integers(0, 3 * SLICE_BYTES)
)


@given(st.lists(st.lists(sizes, max_size=6), max_size=6))
def test_everything_queued_is_sent_once_in_order_and_in_slices(passes: list[list[int]]) -> None:
    counter = Counter()
    outbox = SendQueue(counter)
    socket = Socket(outbox)
    expected = bytearray()
    for number, parts in enumerate(passes):
        data = [bytes([number * 16 + place]) * size for place, size in enumerate(parts)]
        expected += b"".join(data)
        outbox.put(data)
        outbox.write_to(socket)
        assert outbox.unsent_bytes == len(expected) - sum(map(len, socket.writes))
    while outbox:
        outbox.write_to(socket)
    assert b"".join(socket.writes) == expected
    assert all(0 < len(data) <= SLICE_BYTES for data in socket.writes)
    assert counter.value == len(expected)


def test_a_transport_that_gathers_gets_a_long_answer_in_one_write_and_uncopied() -> None:
    outbox = SendQueue(Counter())
    outbox.supports_gather_write = True
    view = memoryview(bytearray(SLICE_BYTES + 50_000))
    outbox.put([b"be", b"fore", view, b"after"])
    rows: list[list[Buffer]] = []

    class Gathering:
        def write(self, data: Buffer) -> None:
            rows.append([data])

        def writelines(self, list_of_data: list[Buffer]) -> None:
            rows.append(list_of_data)

    outbox.write_to(Gathering())
    (row,) = rows
    assert b"".join(row) == b"before" + view + b"after"
    assert [isinstance(data, memoryview) and data.obj is view.obj for data in row] == [False, False, True, False]
    outbox.put([b"one"])
    outbox.write_to(Gathering())
    assert rows[1:] == [[b"one"]]
    assert (outbox.unsent_bytes, bool(outbox)) == (0, False)


def test_a_share_is_kept_by_a_transport_that_gathers() -> None:
    outbox = SendQueue(Counter())
    outbox.supports_gather_write = True
    outbox.put([b"x" * (10 * SLICE_BYTES)])
    socket = Socket(outbox)
    outbox.write_to(socket)
    assert [len(data) for data in socket.writes] == [4 * SLICE_BYTES]
    assert outbox.unsent_bytes == 6 * SLICE_BYTES


def test_a_lost_peer_gets_no_end_of_file() -> None:
    class Gone:
        calls = 0

        def write_eof(self) -> None:
            self.calls += 1
            raise OSError(107, "Transport endpoint is not connected")

    gone = Gone()
    send_eof(gone)
    assert gone.calls == 1
