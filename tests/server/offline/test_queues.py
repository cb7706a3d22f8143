"""Offline inspection of the AMQP queues of a stopped broker, shared bodies included."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pika
import pytest

from trimq.cli.main import main
from trimq.errors import StartupError
from trimq.server.offline import data_folder
from trimq.storage.inspection.partitions import Finding
from trimq.testing import Broker

SHARED_BYTES = 1000
MESSAGES = 40
PERSISTENT = pika.BasicProperties(delivery_mode=2, headers={"n": "1"})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with two queues of several segments: long bodies are shared by both, short ones are in the first only."""
    folder = tmp_path_factory.mktemp("queues")
    sizes = {"storage_queue_segment_bytes": 10_000, "amqp_shared_body_bytes": SHARED_BYTES}
    no_rocketmq = {"rocketmq_listen": "off", "rocketmq_broker_listen": "off", "rocketmq_grpc_listen": "off"}
    with Broker(folder=folder, **sizes, **no_rocketmq) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.amqp))
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in ("a", "b"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "amq.fanout")
        for number in range(MESSAGES):
            channel.basic_publish("", "a", b"short %03d " % number + bytes(800), PERSISTENT)
            channel.basic_publish("amq.fanout", "k", b"long %03d " % number + bytes(SHARED_BYTES), PERSISTENT)
        method, _, _ = channel.basic_get("a")
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        connection.close()
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    shutil.copytree(written, copy)
    return copy


def findings(folder: Path) -> list[Finding]:
    return list(data_folder.verify(str(folder), lambda *_: None))


def file_with(folder: Path, text: bytes, ending: str = ".contents") -> Path:
    return next(path for path in sorted(folder.glob(f"queues/*/*{ending}")) if text in path.read_bytes())


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_sound_folder_has_no_finding(folder: Path) -> None:
    assert findings(folder) == []


def test_each_queue_has_a_table_row_and_the_shared_bodies_have_one(folder: Path) -> None:
    rows = {row["queue"]: row for row in data_folder.queue_stats(str(folder))}
    first, second = rows["a"], rows["b"]
    assert (first["vhost"], first["end"], first["messages"], first["settled"]) == ("/", 80, 80, 1)
    assert (second["end"], second["messages"], second["settled"]) == (MESSAGES, MESSAGES, 0)
    # After a start, bodies are copied until the first number of the new reference counts is durable.
    assert MESSAGES - 5 < first["shared"] == second["shared"] == rows["(shared bodies)"]["messages"] < MESSAGES
    assert first["segments"] > 1


def test_messages_are_printed_with_their_bodies_wherever_those_are(folder: Path) -> None:
    records = list(data_folder.dump_queue(str(folder), "/", "a", 0, None))
    assert [record["offset"] for record in records] == list(range(80))
    assert [record["settled"] for record in records] == [True] + [False] * 79
    shared = [record for record in records if record["shared"] is not None]
    assert shared[-1]["body"] == b"long 039 " + bytes(SHARED_BYTES)
    assert (shared[-1]["exchange"], shared[-1]["key"], shared[-1]["headers"]) == ("amq.fanout", b"k", [["n", b"1"]])
    assert [record["offset"] for record in data_folder.dump_queue(str(folder), "/", "a", 10, 2)] == [10, 11]
    with pytest.raises(StartupError, match="no durable queue c in the virtual host /"):
        list(data_folder.dump_queue(str(folder), "/", "c", 0, None))


@pytest.mark.parametrize("text", [b"short 003 ", b"long 010 "])
def test_a_flipped_bit_is_found_with_its_file_and_place(folder: Path, text: bytes) -> None:
    path = file_with(folder, text)
    at = path.read_bytes().index(text)
    flip(path, at)
    (finding,) = findings(folder)
    assert finding.file == str(path.relative_to(folder))
    assert at - 200 < finding.position < at
    assert finding.problem == "no complete message at this position, or its checksum does not match"
    assert finding.remedy.startswith("Restore it from a copy")
    assert ("queues/shared" in finding.file) == text.startswith(b"long")


def test_a_torn_tail_is_cut_by_the_next_start(folder: Path) -> None:
    path = file_with(folder, b"short 039 ")
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x07\x07\x07")
    (finding,) = findings(folder)
    assert (finding.position, finding.remedy) == (size, "Start the broker: it cuts bytes that were never acknowledged.")


def test_a_full_segment_that_is_shorter_or_gone_is_named(folder: Path) -> None:
    path = file_with(folder, b"short 003 ")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    name = str(path.relative_to(folder))
    assert (finding := findings(folder)[0]).file == name
    assert finding.problem == f"has {size - 1} bytes, but was sealed with {size}"
    path.unlink()
    assert [(each.file, each.problem) for each in findings(folder)] == [(name, "the file is missing")]


def test_unreadable_acknowledged_messages_are_named(folder: Path) -> None:
    (path,) = [path for path in folder.glob("queues/*/*.acks") if path.stat().st_size]
    flip(path, 0)
    (finding,) = findings(folder)
    assert (finding.file, finding.position) == (str(path.relative_to(folder)), 0)
    assert finding.problem == "no complete ack record at this position"


@pytest.mark.parametrize("left", [b"", bytes(8192)], ids=["an empty file", "room"])
def test_a_message_without_its_body_is_named(folder: Path, left: bytes) -> None:
    last = sorted(folder.glob("queues/shared/*.contents"))[-1]
    assert b"long 039 " in last.read_bytes()
    last.write_bytes(left)
    found = findings(folder)
    assert found
    assert all("shared body" in finding.problem and "/shared/" not in finding.file for finding in found)


def test_the_commands_speak_of_queues(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "stats", "--data-dir", str(folder)]) == 0
    assert "(shared bodies)" in capsys.readouterr().out
    assert main(["storage", "dump", "--queue", "b", "--limit", "1", "--json", "--data-dir", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out)["exchange"] == "amq.fanout"
    flip(path := file_with(folder, b"short 003 "), path.read_bytes().index(b"short 003 "))
    assert main(["storage", "verify", "--data-dir", str(folder)]) == 1
    assert str(path.relative_to(folder)) in capsys.readouterr().out
