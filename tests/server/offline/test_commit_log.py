"""Offline inspection of the commit log of a stopped broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from compat.rocketmq_wire import Wire

from tools.broker import running
from trimq.errors import StartupError
from trimq.server.offline import data_folder
from trimq.storage.inspection.partitions import Finding

FLAGS = (
    *("--rocketmq-listen", "127.0.0.1:0", "--rocketmq-broker-listen", "127.0.0.1:0"),
    *("--rocketmq-commit-file-bytes", "65536", "--rocketmq-queue-file-entries", "100", "--rocketmq-index-keys", "1000"),
)
MESSAGES = 300


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commit-log")
    with running(folder, FLAGS) as addresses, Wire(addresses["rocketmq_broker"]) as wire:
        for number in range(MESSAGES):
            wire.send("orders", b"body %d " % number + bytes(100), number % 2, KEYS=f"k{number}")
    return folder / "data"


@pytest.fixture
def folder(written: Path) -> str:
    return str(written)


def findings(folder: str) -> list[Finding]:
    return list(data_folder.verify(folder, lambda *_: None))


def test_a_sound_log_has_no_finding(folder: str) -> None:
    assert findings(folder) == []


def test_each_queue_has_a_table_row(folder: str) -> None:
    rows = {(row["topic"], row["stream"]): row for row in data_folder.stats(folder)}
    for number in (0, 1):
        row = rows["orders", number]
        assert (row["start"], row["end"], row["records"]) == (0, MESSAGES // 2, MESSAGES // 2)


def test_messages_are_printed_with_their_properties(folder: str) -> None:
    records = list(data_folder.dump(folder, "orders", 1, 10, 2))
    assert [record["offset"] for record in records] == [10, 11]
    assert records[0]["body"].startswith(b"body 21 ")
    assert records[0]["key"] == b"k21"
    assert ["KEYS", b"k21"] in records[0]["headers"]
    with pytest.raises(StartupError, match="no stream 7 of topic orders"):
        list(data_folder.dump(folder, "orders", 7, 0, None))


def test_a_flipped_bit_is_found_with_its_file_and_place(folder: str) -> None:
    path = sorted(Path(folder, "store", "commitlog").iterdir())[0]
    data = path.read_bytes()
    at = data.index(b"body 20 ")
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    try:
        finding, *_ = findings(folder)
        assert (finding.file, finding.problem) == (
            f"store/commitlog/{path.name}",
            "no complete message at this position: the checksum of the body does not match",
        )
        assert finding.position < at
        assert "copy" in finding.remedy
    finally:
        path.write_bytes(data)


def test_a_queue_that_leads_nowhere_is_found(folder: str) -> None:
    path = sorted(Path(folder, "store", "consumequeue", "orders", "0").iterdir())[0]
    data = path.read_bytes()
    path.write_bytes(data[:40] + (12345).to_bytes(8, "big") + data[48:])
    try:
        (finding,) = findings(folder)
        assert (finding.file, finding.position) == (f"store/consumequeue/orders/0/{path.name}", 40)
    finally:
        path.write_bytes(data)
