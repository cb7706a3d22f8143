"""Bodies shared by several queues: references, release, and recovery after stops and crashes."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable, Sequence

import pytest
from doubles import TornTails
from storage.queue_logs import QueueLogs, bodies, content

from trimq.formats.amqp_content.content import NO_BLOB, encode_content, encode_reference
from trimq.storage.group_commit.passes import JointTicket, Ticket
from trimq.storage.io.memory_files import NameChange
from trimq.storage.queue_log.compaction import SegmentCompaction
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.shared_bodies import VOLATILE, ReferenceCounts

BIG = b"a body that is long enough to be worth sharing " * 10


class Sharing(QueueLogs):
    """Two queues, and bodies that both reference."""

    def __init__(self, segment_bytes: int = 2000) -> None:
        super().__init__(segment_bytes=segment_bytes)
        self.make("a")
        self.make("b")
        self.prepare()

    def prepare(self) -> None:
        """Waits until the first body number after a start or a failed write is durable; nothing is shared before."""
        assert self.store.blobs.put(b"", False, 1) == NO_BLOB
        self.runner.settle()

    @property
    def a(self) -> QueueLog:
        return self.logs["a"]

    @property
    def b(self) -> QueueLog:
        return self.logs["b"]

    def share(self, *bodies: bytes, is_volatile: bool = False) -> list[int]:
        blobs = []
        for body in bodies:
            blob = self.store.blobs.put(body, is_volatile, 1)
            for log in (self.a, self.b):
                log.append(encode_reference(content(body), blob))
            blobs.append(blob)
        self.runner.settle()
        return blobs

    def publish(self, body: bytes) -> Ticket:
        """To both queues in this pass, with a copy each while the body cannot be shared."""
        blob = self.store.blobs.put(body, False, 1)
        sealed = encode_content(content(body)) if blob == NO_BLOB else encode_reference(content(body), blob)
        return JointTicket([log.append(sealed) for log in (self.a, self.b)])

    def everything_in(self, folder: str) -> bytes:
        opened = [self.files.open(f"{folder}/{name}") for name in self.files.names(folder)]
        return b"".join(file.read(0, file.size()) for file in opened)

    def stored_blobs(self) -> int:
        return sum(log.live for log in self.store.blobs.logs)


def numbered(count: int) -> list[bytes]:
    return [b"%d " % number + BIG for number in range(count)]


def test_a_body_is_stored_once_and_read_by_each_queue() -> None:
    machine = Sharing()
    machine.share(*numbered(3))
    assert bodies(machine.a) == bodies(machine.b) == numbered(3)
    assert machine.stored_blobs() == len(machine.store.blobs) == 3
    assert sum(segment.segment.size for segment in machine.a.segments) < len(BIG)
    assert machine.a.segments.live_bytes() == sum(map(len, numbered(3)))


def test_a_body_is_released_with_its_last_reference() -> None:
    machine = Sharing()
    machine.share(*numbered(3))
    machine.settle(machine.a, 0, 1)
    assert machine.stored_blobs() == 3
    machine.settle(machine.b, 1)
    assert machine.stored_blobs() == len(machine.store.blobs) == 2
    assert bodies(machine.b) == [numbered(3)[0], numbered(3)[2]]
    machine.settle(machine.a, 1)  # a repeated ack
    assert machine.stored_blobs() == 2
    assert machine.b.acks.ack_range(0, 3) == 2
    assert machine.a.acks.ack_range(0, 3, [2]) == 0
    assert machine.stored_blobs() == 1


def test_files_without_referenced_bodies_are_removed() -> None:
    machine = Sharing()
    machine.share(*numbered(40))
    files = len(machine.files.names("queues/shared"))
    machine.a.acks.ack_range(0, 40)
    machine.b.acks.ack_range(0, 40)
    machine.runner.settle()
    assert files > 5
    assert len([name for name in machine.files.names("queues/shared") if name.endswith(".contents")]) == 1


@pytest.mark.parametrize("way", ["stop", "kill", "crash"])
def test_references_are_recovered_after_a_restart(way: str) -> None:
    machine = Sharing()
    machine.share(*numbered(30))
    machine.settle(machine.a, *range(20))
    machine.settle(machine.b, *range(10))
    assert machine.stored_blobs() == 20
    getattr(machine, way)()
    assert bodies(machine.b)[-20:] == numbered(30)[10:]
    machine.a.acks.ack_range(0, 30)
    machine.runner.settle()
    assert bodies(machine.b)[-20:] == numbered(30)[10:]
    machine.b.acks.ack_range(0, 30)
    machine.runner.settle()
    assert machine.stored_blobs() == len(machine.store.blobs) == 0


def test_bodies_of_deleted_queues_are_released_at_once_or_after_a_crash() -> None:
    machine = Sharing()
    machine.share(*numbered(2))
    machine.remove("b")
    assert machine.stored_blobs() == 2
    machine._names.remove("a")
    machine.logs.pop("a")
    machine.kill()
    machine.runner.settle()
    assert machine.stored_blobs() == len(machine.store.blobs) == 0


def test_bodies_of_a_log_in_quarantine_are_kept_when_all_others_let_go() -> None:
    machine = Sharing()
    machine.share(*numbered(3))
    machine.settle(machine.b, 0)
    machine.files.rename("queues/b", "queues/b.set-aside")
    machine._names.remove("b")
    machine.stop()
    machine.a.acks.ack_range(0, 3)
    machine.runner.settle()
    machine.stop()
    machine.files.rename("queues/b.set-aside", "queues/b")
    machine._names.append("b")
    machine.stop()
    assert bodies(machine.a) == []
    assert bodies(machine.b) == numbered(3)[1:]
    assert machine.stored_blobs() == 2


def test_body_numbers_are_never_reused() -> None:
    machine = Sharing()
    seen = machine.share(*numbered(2))
    for way in ("stop", "kill", "crash"):
        getattr(machine, way)()
        machine.prepare()
        (blob,) = machine.share(BIG)
        assert blob >> 32 > seen[-1] >> 32
        seen.append(blob)


@pytest.mark.parametrize(("kept_percent", "keeps_names"), list(itertools.product((0, 30, 70, 100), (False, True))))
def test_a_reference_is_dropped_when_its_body_was_lost_in_a_power_cut(kept_percent: int, keeps_names: bool) -> None:
    machine = Sharing()
    machine.share(*numbered(2))
    for body in numbered(12)[2:]:
        blob = machine.store.blobs.put(body, False, 1)
        for log in (machine.a, machine.b):
            log.append(encode_reference(content(body), blob))
    machine.runner.end_pass()
    machine.crash(TornTails(kept_percent, keeps_names))
    for found in (bodies(machine.a), bodies(machine.b)):
        assert found[:2] == numbered(2)
        assert set(found) <= set(numbered(12))
    assert machine.a.live == len(bodies(machine.a))
    held = {blob for log in (machine.a, machine.b) for segment in log.segments for _, blob in segment.live_blobs()}
    assert len(held) == machine.stored_blobs() == len(machine.store.blobs)


def test_messages_that_refer_to_unwritten_bodies_are_refused() -> None:
    machine = Sharing()
    machine.share(BIG)

    def full(operation: str, name: str) -> None:
        if operation == "write" and "shared" in name:
            raise OSError(errno.ENOSPC, "full")

    machine.a.append(encode_reference(content(BIG), (blob := machine.store.blobs.put(BIG, False, 1))))
    ticket = machine.b.append(encode_reference(content(BIG), blob))
    machine.files.before = full
    machine.runner.settle()
    machine.files.before = lambda operation, name: None
    assert ticket.refusal is not None
    assert machine.a.live == machine.b.live == machine.a.end == 1
    assert len(machine.store.blobs) == machine.stored_blobs() == 1
    machine.prepare()
    machine.share(b"next" + BIG)
    assert bodies(machine.a) == bodies(machine.b) == [BIG, b"next" + BIG]


class _BytesFromBeforeAnUndo:
    """A power cut that keeps all names, and of each file the version with `mark` in it, or else the newest."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return changes

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        return next((version for version in versions if self._mark in version), versions[-1])


def test_a_message_never_gets_the_body_of_one_whose_write_was_undone() -> None:
    machine = Sharing()
    machine.share(BIG)
    machine.files.room_bytes = len(BIG) + 200  # for one of two bodies
    refused = [machine.publish(b"refused 1 " + BIG), machine.publish(b"refused 2 " + BIG)]
    machine.runner.end_pass()
    machine.files.room_bytes = None
    assert all(ticket.refusal for ticket in refused)
    machine.publish(b"accepted " + BIG)
    machine.runner.end_pass()
    machine.crash(_BytesFromBeforeAnUndo(b"refused 1"))
    assert b"refused 1" in machine.everything_in("queues/shared")
    assert bodies(machine.a) == bodies(machine.b) == [BIG, b"accepted " + BIG]


def test_after_a_failed_write_bodies_are_copied_until_a_new_range_of_numbers_is_on_disk() -> None:
    machine = Sharing()
    (first,) = machine.share(BIG)
    machine.files.room_bytes = 0
    machine.publish(b"refused " + BIG)
    machine.runner.settle()
    machine.publish(b"refused, too " + BIG)  # the roll to the new range fails
    machine.runner.settle()
    machine.files.room_bytes = None
    machine.publish(b"copied " + BIG)
    machine.runner.settle()
    assert machine.stored_blobs() == 1
    (shared,) = machine.share(b"shared " + BIG)
    assert shared >> 32 == (first >> 32) + 1
    for again in (machine.stop, machine.crash):
        again()
        assert bodies(machine.a) == bodies(machine.b) == [BIG, b"copied " + BIG, b"shared " + BIG]


def test_an_unreferenced_body_whose_write_failed_does_not_affect_the_next_body_with_its_number() -> None:
    machine = Sharing()
    machine.share(BIG)
    unheld = machine.store.blobs.put(b"unheld " + BIG, False, 1)
    machine.store.blobs.drop_unreferenced(unheld)
    machine.files.room_bytes = 0
    machine.runner.end_pass()
    machine.files.room_bytes = None
    machine.prepare()
    (held,) = machine.share(b"held " + BIG)
    assert held > unheld
    for again in (machine.stop, machine.crash):
        again()
        assert bodies(machine.a) == bodies(machine.b) == [BIG, b"held " + BIG]


def test_an_unreferenced_body_is_removed_once_written() -> None:
    machine = Sharing()
    machine.store.blobs.drop_unreferenced(machine.store.blobs.put(BIG, False, 1))
    machine.runner.settle()
    assert machine.stored_blobs() == len(machine.store.blobs) == 0


def test_a_queue_whose_write_failed_releases_its_reference() -> None:
    machine = Sharing()

    def full(operation: str, name: str) -> None:
        if operation == "write" and name.startswith("queues/a/"):
            raise OSError(errno.ENOSPC, "full")

    machine.files.before = full
    machine.share(BIG)
    machine.files.before = lambda operation, name: None
    assert bodies(machine.a) == []
    assert bodies(machine.b) == [BIG]
    machine.settle(machine.b, 0)
    assert machine.stored_blobs() == 0


def test_bodies_of_volatile_queues_are_never_synced_and_lost_at_a_restart() -> None:
    machine = Sharing()
    volatile = machine.make("v", is_volatile=True)
    synced: list[str] = []
    machine.files.before = lambda operation, name: synced.append(name) if operation.startswith("sync") else None
    blob = machine.store.blobs.put(BIG, True, 1)
    volatile.append(encode_reference(content(BIG), blob))
    machine.runner.settle()
    assert blob & VOLATILE
    assert not [name for name in synced if "shared" in name]
    assert bodies(volatile) == [BIG]
    machine.settle(volatile, 0)
    assert machine.stored_blobs() == 0
    del machine.logs["v"]
    machine.stop()
    assert machine.files.names("volatile") == []


def test_a_compacted_segment_keeps_its_references_across_a_restart() -> None:
    machine = Sharing(segment_bytes=900)
    machine.share(*numbered(40))
    segment = machine.a.segments[0]
    kept = segment.base + 1
    assert segment.is_seal_durable
    machine.settle(machine.a, *(offset for offset in range(segment.end) if offset != kept))
    SegmentCompaction(
        machine.files, machine.runner.passes, machine.checkpoints, machine.a, segment, machine.runner.offload
    ).start()
    machine.runner.settle()
    assert segment.records == 1
    machine.stop()
    assert machine.a.peek(kept).content.body == numbered(40)[kept]
    machine.b.acks.ack_range(0, 40)
    machine.runner.settle()
    assert bodies(machine.a) == [
        body for place, body in enumerate(numbered(40)) if place in (kept, *range(segment.end, 40))
    ]


def test_body_segments_are_compacted_as_message_segments_are() -> None:
    machine = Sharing()
    machine.share(*numbered(9))
    (shared,) = machine.store.blobs.logs
    segment = next(part for part in shared.segments if part.records > 1)
    references = machine.a.segments[0].references
    assert references is not None
    kept = [offset for offset in range(9) if references.blob_of(offset) == segment.base]
    for log in (machine.a, machine.b):
        log.acks.ack_range(0, 9, kept)
    machine.runner.settle()
    SegmentCompaction(
        machine.files, machine.runner.passes, machine.checkpoints, shared, segment, machine.runner.offload
    ).start()
    machine.runner.settle()
    assert segment.records == 1
    assert bodies(machine.a) == [numbered(9)[kept[0]]]


def test_reference_counts_of_zero_use_no_memory() -> None:
    counts = ReferenceCounts()
    for blob in (5, 5, 1 << 40):
        counts.add(blob)
    assert (counts[5], counts[6], counts[1 << 40], len(counts)) == (2, 0, 1, 2)
    assert [counts.take(5), counts.take(5), counts.take(1 << 40)] == [1, 0, 0]
    assert (len(counts), counts._chunks) == (0, {})
