"""Adoption of a commit log written by another program: consume queues and index are rebuilt; unsupported folders are
refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from storage.commit_bench import CommitBench

from trimq.errors import Damage, StartupError
from trimq.storage.commit_log.store import ROOT

BLANK = struct.pack(">qiq", 0, 2**31 - 1, 0)


def forget_tables(bench: CommitBench) -> None:
    """Removes TriMQ's own tables, as in a folder that TriMQ never opened."""
    for name in bench.memory.names("tables"):
        bench.memory.remove(f"tables/{name}")


def test_queues_and_keys_are_built_from_the_log_alone() -> None:
    bench = CommitBench()
    bench.put("a", 1, b"one", b"two", keys="k")
    bench.stop()
    forget_tables(bench)
    bench.memory.open(f"{ROOT}/consumequeue/a/1/{0:020}").write(0, [b"\xff" * 40])
    bench.memory.make_folder(f"{ROOT}/consumequeue/stray/7")
    bench.memory.open(f"{ROOT}/consumequeue/stray/7/{2000:020}", create=True)
    bench.memory.open(f"{ROOT}/timerwheel", create=True)
    bench.open()
    assert bench.bodies("a", 1) == [b"one", b"two"]
    assert bench.find("a", "k") == [b"two", b"one"]
    bench.stop()
    assert bench.names("consumequeue") == ["a"]
    assert "timerwheel" not in bench.names("")


def test_a_topic_that_was_recreated_has_its_newer_messages() -> None:
    bench = CommitBench()
    bench.put("a", 0, b"old 0", b"old 1", b"old 2")
    bench.store.drop("a")
    bench.put("a", 0, b"new 0", b"new 1")
    bench.stop()
    forget_tables(bench)
    bench.open()
    assert bench.bodies("a", 0) == [b"new 0", b"new 1"]
    assert bench.put("a", 0, b"new 2")[0].queue_offset == 2


def test_a_queue_that_does_not_begin_at_zero_is_filled_as_rocketmq_does_it() -> None:
    bench = CommitBench()
    bench.put("a", 0, *(b"%d" % number * 700 for number in range(8)))
    bench.stop()
    forget_tables(bench)
    bench.memory.remove(f"{ROOT}/commitlog/{0:020}")
    bench.open()
    queue = bench.store.queue("a", 0)
    assert 0 < queue.start < 8
    assert [body[:1] for body in bench.bodies("a", 0)] == [b"%d" % number for number in range(queue.start, 8)]
    bench.stop()
    assert bench.read(f"consumequeue/a/0/{0:020}")[: queue.start * 20] == BLANK * queue.start


def test_a_log_with_smaller_files_is_not_opened() -> None:
    bench = CommitBench()
    bench.put("a", 0, *(b"x" * 700 for _ in range(8)))
    bench.stop()
    forget_tables(bench)
    bench.settings = replace(bench.settings, file_bytes=8192)
    with pytest.raises(Damage, match="has 4096 bytes, but the files of this log have 8192"):
        bench.open()
    assert len(bench.names("commitlog")) == 2


def test_batch_consume_queues_are_refused() -> None:
    bench = CommitBench()
    bench.stop()
    forget_tables(bench)
    bench.memory.make_folder(f"{ROOT}/batchconsumequeue/a")
    with pytest.raises(StartupError, match="batch consume queues are not supported"):
        bench.open()
