"""Findings of `trimq storage verify`, which changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from doubles import TornTails
from storage.kafka_folders import FOLDERS
from storage.log_bench import FOLDER, LogBench, batch_of

from trimq.errors import Damage
from trimq.storage.inspection.partitions import Finding, batches, partitions, segments, verify
from trimq.storage.io.files import DiskFiles
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.partition_log.segment_checksums import SegmentChecksums
from trimq.storage.partition_log.store import ROOT

Change = Callable[[bytearray], None]


@pytest.fixture
def stopped() -> LogBench:
    bench = LogBench(segment_bytes=1000)
    for number in range(9):
        bench.append(bytes(99), producer_id=1, producer_epoch=0, base_sequence=number, transactional=True)
        bench.end_transaction(1, commit=number % 2 == 0)
    bench.fill(20)
    SegmentChecksums(bench.checkpoints, bench.runner.offload).consider(bench.log)
    bench.settle()
    bench.close()
    return bench


def found(files: MemoryFiles) -> list[Finding]:
    return list(verify(files, lambda done, total: None))


def flip(position: int) -> Change:
    def change(data: bytearray) -> None:
        data[position] ^= 1

    return change


def everything(files: MemoryFiles, folder: str = "") -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for name in files.names(folder):
        path = f"{folder}/{name}" if folder else name
        try:
            file = files.open(path)
        except IsADirectoryError:
            contents |= everything(files, path)
        else:
            contents[path] = file.read(0, file.size())
    return contents


def test_a_valid_folder_gives_no_findings_and_is_not_changed(stopped: LogBench) -> None:
    before = everything(stopped.memory)
    assert found(stopped.memory) == []
    assert everything(stopped.memory) == before


def test_the_progress_ends_at_the_size_of_the_files(stopped: LogBench) -> None:
    steps: list[tuple[int, int]] = []
    list(verify(stopped.memory, lambda done, total: steps.append((done, total))))
    size = sum(len(stopped.contents(name)) for name in stopped.names(".log"))
    assert steps[0] == (0, size)
    assert steps[-1] == (size, size)


def test_an_empty_folder_is_valid() -> None:
    assert found(MemoryFiles()) == []


@pytest.mark.parametrize("position", [0, 7, 13, 30, 80], ids=["offset", "offset's end", "epoch", "header", "records"])
@pytest.mark.parametrize("place", [0, 1])
def test_every_flipped_byte_of_a_sealed_segment_is_found(stopped: LogBench, place: int, position: int) -> None:
    """Bytes without a batch checksum included."""
    name = stopped.names(".log")[place]
    stopped.damage(name, flip(position))
    (finding,) = found(stopped.memory)
    assert finding.file == f"{FOLDER}/{name}"
    assert ".lost" in finding.remedy


def test_a_sealed_segment_of_another_size_is_found(stopped: LogBench) -> None:
    name = stopped.names(".log")[0]
    size = stopped.batches()[0].header.size
    stopped.damage(name, lambda data: data.__delitem__(slice(size, None)))
    (finding,) = found(stopped.memory)
    assert (finding.file, finding.position) == (f"{FOLDER}/{name}", size)


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        (".index", flip(3)),
        (".timeindex", flip(0)),
        (".txnindex", flip(1)),
        (".snapshot", flip(20)),
        ("leader-epoch-checkpoint", flip(0)),
        ("partition.metadata", flip(0)),
    ],
)
def test_a_damaged_companion_is_found(stopped: LogBench, suffix: str, change: Change) -> None:
    name = next(name for name in stopped.names(suffix) if stopped.contents(name))
    stopped.damage(name, change)
    (finding,) = found(stopped.memory)
    assert finding.file.startswith(f"{FOLDER}/{name[:20]}")
    assert "tart the broker" in finding.remedy


def test_a_torn_tail_is_distinguished_from_damage() -> None:
    bench = LogBench()
    bench.fill(3)
    bench.begin_append(batch_of(bytes(500)))
    bench.runner.end_pass()
    bench.memory.crash(TornTails(50, keeps_names=True))
    (finding,) = found(bench.memory)
    assert "never acknowledged" in finding.remedy
    bench.open()
    bench.close()
    bench.damage(bench.names(".log")[0], flip(100))
    (finding,) = found(bench.memory)
    assert ".lost" in finding.remedy


def test_a_damaged_table_is_found(stopped: LogBench) -> None:
    name = stopped.memory.names("tables")[0]
    stopped.damage(name, flip(40), folder="tables")
    assert found(stopped.memory)[0].file == f"tables/{name}"


def test_the_suggested_remedy_for_a_damaged_segment_works(stopped: LogBench) -> None:
    name = stopped.names(".log")[0]
    stopped.damage(name, lambda data: data.clear())
    (finding,) = found(stopped.memory)
    with pytest.raises(Damage, match=r"\.lost"):
        stopped.open()
    stopped.memory.open(finding.remedy.rpartition(" ")[2], create=True)
    stopped.memory.sync_all()
    stopped.open()
    stopped.close()
    assert found(stopped.memory) == []


@pytest.mark.parametrize("kafka", FOLDERS, ids=lambda folder: folder.name)
def test_kafkas_own_folders_are_valid(kafka: Path, tmp_path: Path) -> None:
    shutil.copytree(kafka, tmp_path / ROOT / kafka.name)
    files = DiskFiles(str(tmp_path))
    assert list(verify(files, lambda done, total: None)) == []
    files.close()


def test_partitions_are_listed_and_other_folders_are_not(tmp_path: Path) -> None:
    for name in ("a-0", "a-b-12", "a", "-", "x-²", "y-1.leaving", "z-"):
        (tmp_path / ROOT / name).mkdir(parents=True)
    files = DiskFiles(str(tmp_path))
    assert sorted(partitions(files)) == [("a", 0), ("a-b", 12)]


def test_every_batch_is_listed(stopped: LogBench) -> None:
    walked = [header.base_offset for segment in segments(stopped.memory, FOLDER) for _, header, _ in batches(segment)]
    assert walked == [stored.header.base_offset for stored in stopped.batches()]
