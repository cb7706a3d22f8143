"""A full disk: the failure is a readable sentence, finished work counts, and the next run completes the rest."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pyspark_trimq.pipelines import PipelineContext, PipelineFailure, archive, dedupe
from pyspark_trimq.pipelines.lakes.lake import open_for_reading
from trimq.testing import Broker

SENTENCE = r"^a disk is full \(.*\): free space for the lake, the checkpoint and .* nothing is lost$"
COUNT, SIZE = 20, 20_000


def with_descendants(pid: int) -> list[int]:
    found = [pid]
    for process in found:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                found += [int(child) for child in children.read_text().split()]
    return found


def limit_files(jvm: int, limits: tuple[int, int]) -> None:
    for process in with_descendants(jvm):
        with suppress(ProcessLookupError):
            resource.prlimit(process, resource.RLIMIT_FSIZE, limits)


@contextmanager
def room_for(bytes_per_file: int, spark: Any) -> Iterator[None]:
    """Limits the file size of Spark and its workers: simulates a full disk without root rights."""
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    before = resource.prlimit(jvm, resource.RLIMIT_FSIZE)
    try:
        limit_files(jvm, (bytes_per_file, before[1]))
        yield
    finally:
        limit_files(jvm, before)


@pytest.fixture
def filled(broker: Broker) -> Broker:
    broker.create_topic("orders")
    for number in range(COUNT):
        broker.send("orders", os.urandom(SIZE), str(number))
    return broker


def test_a_full_disk_of_a_lake_is_reported_and_the_next_run_completes_it(
    spark: Any, filled: Broker, tmp_path: Path
) -> None:
    context = PipelineContext(bootstrap=filled.http, spark=spark, show=False)
    with room_for(COUNT * SIZE // 2, spark), pytest.raises(PipelineFailure, match=SENTENCE):
        archive(["orders"], lake=tmp_path / "lake", context=context)
    assert archive(["orders"], lake=tmp_path / "lake", context=context).figures["rows archived"] == COUNT
    assert sum(file.rows for file in open_for_reading(tmp_path / "lake").files()) == COUNT


def test_a_full_disk_of_a_checkpoint_is_reported_and_the_next_run_resumes(
    spark: Any, filled: Broker, tmp_path: Path
) -> None:
    filled.create_topic("once")
    context = PipelineContext(bootstrap=filled.http, spark=spark, show=False, checkpoint=tmp_path / "checkpoint")
    with room_for(0, spark), pytest.raises(PipelineFailure, match=SENTENCE):
        dedupe(["orders"], to="once", by="key", context=context)
    assert dedupe(["orders"], to="once", by="key", context=context).figures["written"] == COUNT
    filled.send("orders", "more", "more")
    with room_for(0, spark), pytest.raises(PipelineFailure, match=SENTENCE):
        dedupe(["orders"], to="once", by="key", context=context)
    assert dedupe(["orders"], to="once", by="key", context=context).figures["written"] == 1
    assert len(filled.records("once")) == COUNT + 1
