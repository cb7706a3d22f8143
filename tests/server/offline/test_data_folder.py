"""Offline inspection of the data folder of a stopped broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trimq.errors import Damage, StartupError
from trimq.server.offline import data_folder
from trimq.storage.io.folder_lock import FolderLock, ReadOnlyFolderLock
from trimq.testing import Broker


@pytest.fixture
def folder(tmp_path: Path) -> str:
    with Broker(folder=tmp_path) as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(10):
            broker.send("orders", f"body {number}", key=f"key {number}", headers={"n": b"%d" % number})
        broker.send("orders", "other", partition=1)
    return str(tmp_path)


def contents(folder: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file() and path.name != FolderLock.NAME
    }


def test_a_sound_folder_has_no_finding_and_is_left_as_it_is(folder: str) -> None:
    before = contents(folder)
    assert list(data_folder.verify(folder, lambda *_: None)) == []
    assert data_folder.stats(folder)
    assert list(data_folder.dump(folder, "orders", 0, 0, None))
    assert contents(folder) == before


def test_a_folder_without_segments_does_not_disturb(folder: str) -> None:
    next(Path(folder).glob("**/orders-0")).with_name("stray-0").mkdir()
    assert list(data_folder.verify(folder, lambda *_: None)) == []
    assert [(row["topic"], row["records"]) for row in data_folder.stats(folder)] == [
        ("orders", 10),
        ("orders", 1),
        ("stray", 0),
    ]
    assert list(data_folder.dump(folder, "stray", 0, 0, None)) == []


def test_damage_is_found_with_its_file(folder: str) -> None:
    log = next(Path(folder).glob("**/orders-0/*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    (finding,) = list(data_folder.verify(folder, lambda *_: None))
    assert log.name in str(finding)


def test_statistics_have_a_table_row_for_each_stream(folder: str) -> None:
    first, second = data_folder.stats(folder)
    assert {key: first[key] for key in ("topic", "stream", "start", "end", "records", "segments")} == {
        "topic": "orders",
        "stream": 0,
        "start": 0,
        "end": 10,
        "records": 10,
        "segments": 1,
    }
    assert (second["stream"], second["end"]) == (1, 1)
    assert first["bytes"] > second["bytes"] > 0


def test_records_are_dumped_from_an_offset_up_to_a_limit(folder: str) -> None:
    rows = list(data_folder.dump(folder, "orders", 0, 3, 4))
    assert [row["offset"] for row in rows] == [3, 4, 5, 6]
    assert (rows[0]["key"], rows[0]["body"], rows[0]["headers"]) == (b"key 3", b"body 3", [["n", b"3"]])
    assert len(list(data_folder.dump(folder, "orders", 0, 0, None))) == 10
    assert list(data_folder.dump(folder, "orders", 0, 0, 0)) == []
    assert list(data_folder.dump(folder, "orders", 0, 100, None)) == []


@pytest.mark.parametrize(("topic", "stream"), [("none", 0), ("orders", 2), ("../partitions/orders", 0), ("", 0)])
def test_a_stream_that_is_not_there_is_a_sentence(folder: str, topic: str, stream: int) -> None:
    with pytest.raises(StartupError, match="has no stream"):
        list(data_folder.dump(folder, topic, stream, 0, None))


def test_a_folder_that_is_not_there_is_a_sentence_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="there is no data folder"):
        data_folder.stats(str(tmp_path / "none"))
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_running_broker_is_a_sentence(tmp_path: Path) -> None:
    with Broker(folder=tmp_path), pytest.raises(StartupError, match="is in use by the broker with pid"):
        data_folder.stats(str(tmp_path))


def test_the_lock_is_always_released(folder: str) -> None:
    with pytest.raises(StartupError):
        list(data_folder.dump(folder, "none", 0, 0, None))
    for _ in data_folder.dump(folder, "orders", 0, 0, None):
        break  # the reader stops early
    with Broker(folder=folder) as broker:
        assert len(broker.records("orders")) == 10


def test_a_newer_format_is_a_sentence(folder: str) -> None:
    (Path(folder) / "format").write_text('{"version":2}')
    for look in (lambda: list(data_folder.verify(folder, lambda *_: None)), lambda: data_folder.stats(folder)):
        with pytest.raises(StartupError, match="has format 2"):
            look()


def refused_to_start(folder: str) -> str:
    """Returns the error of a start in this folder."""
    with pytest.raises((StartupError, Damage)) as error, Broker(folder=Path(folder)):
        pass
    return str(error.value)


def lose(path: Path) -> None:
    path.rename(path.with_suffix(".away"))


@pytest.mark.parametrize("place", [0, 1, -1], ids=["first", "middle", "last"])
def test_a_segment_that_is_missing_is_found_as_a_start_finds_it(tmp_path: Path, place: int) -> None:
    with Broker(folder=tmp_path, storage_segment_bytes=2000) as broker:
        broker.create_topic("orders", partitions=1)
        for _ in range(20):
            broker.send("orders", "x" * 500)
    segments = sorted(tmp_path.glob("**/orders-0/*.log"))
    assert len(segments) > 3
    lose(segments[place])
    findings = list(data_folder.verify(str(tmp_path), lambda *_: None))
    missing = [finding for finding in findings if "is missing" in finding.problem]
    assert missing
    error = refused_to_start(str(tmp_path))
    assert any(finding.file in error and finding.remedy in error for finding in missing)


def test_a_folder_that_is_missing_is_found_as_a_start_finds_it(folder: str) -> None:
    partition = next(Path(folder).glob("**/orders-1"))
    partition.rename(Path(folder) / "away")
    (finding,) = list(data_folder.verify(folder, lambda *_: None))
    assert finding.file in refused_to_start(folder)


def test_a_table_that_a_start_refuses_is_found_with_its_place(folder: str) -> None:
    table = Path(folder) / "tables" / "catalogue.0.log"
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    finding = next(iter(data_folder.verify(folder, lambda *_: None)))
    assert finding.file == "tables/catalogue.0.log"
    assert f"tables/catalogue.0.log is damaged at byte {finding.position}" in refused_to_start(folder)


@pytest.mark.parametrize("look", [lambda folder: list(data_folder.verify(folder, lambda *_: None)), data_folder.stats])
def test_a_folder_that_is_no_data_folder_is_a_sentence_and_nothing_is_written(
    tmp_path: Path, look: Callable[[str], object]
) -> None:
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(StartupError, match="is not the data folder of a broker: it has no file named format"):
        look(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_a_folder_is_looked_through_without_writing_anything(folder: str) -> None:
    (Path(folder) / FolderLock.NAME).unlink()
    before = {str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*")}
    opened_to_write = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and watching and str(arguments[0]).startswith(folder):
            flags = arguments[2]
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                opened_to_write.append(arguments[0])

    watching = True
    sys.addaudithook(note)
    try:
        assert list(data_folder.verify(folder, lambda *_: None)) == []
        assert data_folder.stats(folder)
    finally:
        watching = False
    assert opened_to_write == [], "a read-only snapshot could not be inspected"
    assert {str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*")} == before


def test_two_may_look_at_once_but_no_broker_starts_meanwhile(folder: str) -> None:
    first = data_folder.verify(folder, lambda *_: None)
    glance = ReadOnlyFolderLock(folder)
    assert list(first) == []
    assert "is in use by a tool that is reading it" in refused_to_start(folder)
    glance.release()
