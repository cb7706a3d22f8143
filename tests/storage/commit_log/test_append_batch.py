"""Batches of messages in the commit log: their queues, their index keys, file boundaries, and failed passes."""

from __future__ import annotations

import errno

import pytest
from storage.commit_bench import HOST, START_MS, CommitBench, draft_of

from trimq.errors import DamagedSegment, MessageTooLong, WriteFailed
from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, checksum
from trimq.storage.commit_log.log import AppendedUnits
from trimq.storage.commit_log.store import ROOT


def append_batch(bench: CommitBench, *messages: tuple[str, int, bytes], **more_keys: str) -> AppendedUnits:
    """Appends a batch; `more_keys` maps a letter and a message number to the keys of that message."""
    queues = {(topic, number): bench.store.queue(topic, number) for topic, number, _ in messages}
    more = {int(name[1:]): keys for name, keys in more_keys.items()}
    run: list[BatchMessage] = []
    for topic, number, body in messages:
        draft = draft_of(topic, number, body, keys=more.get(len(run), ""))
        lane = bench.store.lane(queues[topic, number])
        run.append((lane, body, draft.properties, 0, 0, draft.born_ms, 0, 0, checksum(body), HOST))
    unique = [f"U{body[:20].decode()}" for _, _, body in messages]
    return bench.store.append_batch(queues.values(), run, unique, more, HOST)


def test_a_batch_is_stored_as_single_messages_are() -> None:
    messages = [("a", 0, b"one"), ("b", 1, b"two"), ("a", 0, b"three"), ("a", 1, b"four")]
    alone, together = CommitBench(), CommitBench()
    for topic, queue, body in messages:
        alone.append(topic, queue, body)
    placed = append_batch(together, *messages)
    for bench in (alone, together):
        bench.stop()
    assert placed.places[2] == (1, together.units("a", 0)[1].position)
    assert (placed.store_ms, placed.refusal) == (START_MS, None)
    for name in ("commitlog/00000000000000000000", f"consumequeue/a/0/{'0' * 20}", f"consumequeue/b/1/{'0' * 20}"):
        assert together.read(name) == alone.read(name)
    (index,) = together.names("index")
    assert together.read(f"index/{index}") == alone.read(f"index/{index}")


def test_all_keys_of_a_batch_are_found() -> None:
    bench = CommitBench()
    append_batch(bench, ("a", 0, b"one"), ("b", 0, b"two"), _1="k1 k2")
    bench.settle()
    assert (bench.find("a", "Uone"), bench.find("b", "Utwo"), bench.find("b", "k2")) == ([b"one"], [b"two"], [b"two"])
    assert bench.find("a", "k1") == []
    bench.crash()
    assert (bench.find("a", "Uone"), bench.find("b", "k1")) == ([b"one"], [b"two"])


def test_a_batch_continues_in_the_next_file() -> None:
    bench = CommitBench()
    bodies = [b"%d" % number * 700 for number in range(8)]
    placed = append_batch(bench, *(("a", 0, body) for body in bodies))
    bench.settle()
    assert [offset for offset, _ in placed.places] == list(range(8))
    assert bench.names("commitlog") == ["00000000000000000000", "00000000000000004096"]
    assert bench.bodies("a", 0) == bodies
    bench.crash()
    assert bench.bodies("a", 0) == bodies


def test_the_rest_of_a_batch_is_refused_where_no_further_file_can_be_created() -> None:
    bench = CommitBench()

    def refuse(operation: str, name: str) -> None:
        if operation == "create" and name.endswith("4096"):
            raise OSError(errno.ENOSPC, "the disk is full")

    bench.files.before = refuse
    bodies = [b"%d" % number * 700 for number in range(8)]
    placed = append_batch(bench, *(("a", 0, body) for body in bodies))
    kept = len(placed.places)
    assert 0 < kept < 8
    assert isinstance(placed.refusal, WriteFailed)
    bench.settle()
    bench.files.before = lambda operation, name: None
    append_batch(bench, ("a", 0, b"next"))
    bench.settle()
    assert bench.bodies("a", 0) == [*bodies[:kept], b"next"]
    assert bench.find("a", "U" + "7" * 20) == []


def test_a_message_that_fits_no_file_ends_a_batch() -> None:
    bench = CommitBench()
    placed = append_batch(bench, ("a", 0, b"one"), ("a", 0, b"x" * 4096), ("a", 0, b"three"))
    assert (len(placed.places), type(placed.refusal)) == (1, MessageTooLong)
    bench.put("a", 0, b"next")
    assert bench.bodies("a", 0) == [b"one", b"next"]


def test_a_batch_of_a_failed_pass_leaves_nothing_behind() -> None:
    bench = CommitBench()
    bench.put("a", 0, b"kept")

    def refuse(operation: str, name: str) -> None:
        if operation == "write" and "commitlog" in name:
            raise OSError(errno.EIO, "the disk takes nothing")

    bench.files.before = refuse
    placed = append_batch(bench, ("a", 0, b"lost"), ("b", 0, b"gone"))
    bench.runner.end_pass()
    assert isinstance(placed.ticket.refusal, WriteFailed)
    bench.files.before = lambda operation, name: None
    assert append_batch(bench, ("a", 0, b"next")).places[0][0] == 1
    bench.settle()
    assert (bench.bodies("a", 0), bench.bodies("b", 0)) == ([b"kept", b"next"], [])
    assert (bench.find("a", "Ulost"), bench.find("a", "Unext")) == ([], [b"next"])


def test_scattered_units_are_returned_as_stored() -> None:
    bench = CommitBench()
    messages = [("a", number % 3, b"%d" % number * 300) for number in range(24)]
    append_batch(bench, *messages)
    bench.settle()
    log, queue = bench.store.log, bench.store.queue("a", 1)
    entries = [queue.entry(offset) for offset in range(queue.end)]
    places = [(entry.position, entry.size) for entry in entries]
    each = [bytes(log.view(*place)) for place in places]
    assert len({position // log.file_bytes for position, _ in places}) > 1
    for first in range(len(places)):
        for last in range(first, len(places)):
            assert b"".join(log.gather(places[first : last + 1])) == b"".join(each[first : last + 1])


def test_damaged_units_are_not_returned_with_others() -> None:
    bench = CommitBench()
    append_batch(bench, ("a", 0, b"one"), ("b", 0, b"two"), ("a", 0, b"three"))
    bench.stop()
    entries = [bench.store.queue("a", 0).entry(offset) for offset in range(2)]
    bench.memory.open(f"{ROOT}/commitlog/00000000000000000000").write(entries[1].position + 88, [b"x"])
    bench.open()
    with pytest.raises(DamagedSegment):
        bench.store.log.gather([(entry.position, entry.size) for entry in entries])
