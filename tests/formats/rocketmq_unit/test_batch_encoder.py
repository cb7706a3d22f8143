"""Units encoded in a batch equal those encoded one by one."""

from __future__ import annotations

from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, QueueTarget, checksum, encode_batch
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.unit import MAGIC, MAGIC_LONG_TOPIC, UnitDraft, encode_unit, topic_field

BORN, STORE, ELSEWHERE = pack_host("10.0.0.1", 77), pack_host("10.0.0.2", 10911), pack_host("10.9.8.7", 99)


class Queue:
    """Gives out offsets from a number on, and records the positions."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.taken: list[tuple[int, int, int]] = []

    def take(self, position: int, size: int, code: int) -> int:
        self.taken.append((position, size, code))
        self.end += 1
        return self.end - 1


def lane_of(queue: Queue, topic: bytes, number: int) -> QueueTarget:
    return QueueTarget(queue.take, number, *topic_field(topic), 0)


def test_a_batch_is_the_concatenation_of_its_units() -> None:
    short, long = b"orders", b"o" * 128
    first, second = Queue(5), Queue(0)
    lanes = lane_of(first, short, 3), lane_of(second, long, 0)
    assert [lane.magic for lane in lanes] == [MAGIC, MAGIC_LONG_TOPIC]
    run: list[BatchMessage] = [
        (lanes[0], memoryview(b"one"), b"a\x01b\x02", 7, 1, 1000, 2, 65, checksum(b"one"), BORN),
        (lanes[1], b"two" * 100, b"", 0, 0, -1, 0, 0, checksum(b"two" * 100), ELSEWHERE),
        (lanes[0], b"three", b"c\x01d", -1, 0, 2000, 0, 0, checksum(b"three"), ELSEWHERE),
    ]
    data, places = encode_batch(run, 4096, 10_000, 3000, STORE)
    drafts = [
        UnitDraft(short, 3, b"one", b"a\x01b\x02", 7, 1, 1000, BORN, 2),
        UnitDraft(long, 0, b"two" * 100, b"", 0, 0, -1, ELSEWHERE),
        UnitDraft(short, 3, b"three", b"c\x01d", -1, 0, 2000, ELSEWHERE),
    ]
    assert [offset for offset, _ in places] == [5, 0, 6]
    units = [encode_unit(draft, *place, 3000, STORE) for draft, place in zip(drafts, places, strict=True)]
    assert data == b"".join(units)
    ends = [4096, 4096 + len(units[0]), 4096 + len(units[0]) + len(units[1])]
    assert [position for _, position in places] == ends
    assert first.taken == [(ends[0], len(units[0]), 65), (ends[2], len(units[2]), 0)]


def test_a_batch_ends_at_the_end_of_the_file_and_messages_without_room_get_no_offset() -> None:
    queue = Queue(0)
    lane = lane_of(queue, b"t", 0)
    run: list[BatchMessage] = [(lane, b"x" * 10, b"", 0, 0, 0, 0, 0, 0, BORN)] * 3
    size = len(encode_batch(run[:1], 0, 1000, 0, STORE)[0])
    for room, count in ((0, 0), (size - 1, 0), (size, 1), (3 * size - 1, 2), (3 * size, 3)):
        queue.end = 0
        data, places = encode_batch(run, 0, room, 0, STORE)
        assert (len(places), len(data), queue.end) == (count, count * size, count)
