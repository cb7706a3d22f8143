"""A bounded part of the fuzzer, and its parts. `make fuzz` runs it for longer."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fuzz.corpus import FOLDER, load, save, select
from fuzz.frames import FORMATS, HTTP, KAFKA
from fuzz.mutations import LARGEST_STREAM, Mutator, mutate_json
from fuzz.runs import log_faults, run
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record

SECONDS = 5
PORTS = list(FORMATS)


@pytest.mark.parametrize("port", PORTS)
def test_mutated_streams_do_no_harm(port: str, tmp_path: Path) -> None:
    """No crash, no traceback, no hang, bounded memory, and others are answered."""
    report = run(port, tmp_path, seed=0, seconds=SECONDS)
    assert report.faults == [], str(report)
    assert report.streams >= 20
    print(report)


@pytest.mark.parametrize("port", PORTS)
def test_the_same_seed_gives_the_same_streams(port: str) -> None:
    corpus = load(port)
    streams = [Mutator(FORMATS[port], corpus).stream(f"{number}") for number in range(200)]
    assert streams == [Mutator(FORMATS[port], corpus).stream(f"{number}") for number in range(200)]
    assert len({b"".join(frames) for frames in streams}) > 150
    assert max(sum(map(len, frames)) for frames in streams) <= LARGEST_STREAM


@pytest.mark.parametrize("port", PORTS)
def test_a_frame_that_is_opened_and_closed_is_the_same(port: str) -> None:
    form = FORMATS[port]
    for frames in load(port):
        for frame in frames:
            assert form.close(*form.open(frame)).lower() == frame.lower()


@pytest.mark.parametrize("port", PORTS)
def test_a_recorded_stream_is_cut_into_its_frames(port: str) -> None:
    for frames in load(port):
        if b"AMQP" in frames[0][:4] or port != "amqp":
            assert FORMATS[port].cut(b"".join(frames)) == frames


def test_the_corpora_are_small_and_ask_for_much() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 300_000
    assert len({frame[4:6] for frames in load("kafka") for frame in frames}) >= 60
    kinds = {port: {kind for frames in load(port) for kind in FORMATS[port].kinds(frames)} for port in PORTS}
    assert len(kinds["rocketmq_broker"]) >= 60
    assert len(kinds["rocketmq"]) >= 15
    assert len(kinds["amqp"]) >= 35
    assert len({path for _, path in kinds["rocketmq_grpc"]}) >= 8  # type: ignore[misc]
    assert len(kinds["http"]) >= 25


def test_the_checksum_of_a_mutated_batch_is_right() -> None:
    batch = bytes(from_records([Record(b"value", timestamp_ms=1)]))
    content = b"\x00\x00\x00\x09" + bytes(20) + batch
    damaged = bytearray(content)
    damaged[-1] ^= 1
    closed = KAFKA.close(b"", bytes(damaged))
    mended = closed[-len(batch) :]
    assert mended[17:21] != batch[17:21]
    assert KAFKA.close(b"", closed[4:]) == closed
    assert mended[:17] + batch[17:21] + mended[21:-1] + batch[-1:] == batch


def test_a_mutated_body_of_a_request_has_its_right_length() -> None:
    frame = b"POST /api/topics HTTP/1.1\r\ncontent-length: 2\r\nHost: x\r\n\r\n{}"
    head, body = HTTP.open(frame)
    assert body == b"{}"
    assert b"Content-Length: 5\r\n" in HTTP.close(head, b"12345")


def test_mutated_json_changes() -> None:
    document = {"a": [1, "b"], "c": {"d": None}}
    assert len({repr(mutate_json(Random(seed), document)) for seed in range(300)}) > 60


def test_few_streams_are_chosen_that_ask_for_everything(tmp_path: Path) -> None:
    def request(api: int) -> bytes:
        return b"\x00\x00\x00\x08\x00" + bytes([api]) + bytes(6)

    chosen = select("kafka", [request(1) * 50, request(1), request(1) + request(2), b"\x00\x00\x00\xff"])
    assert {frame[5] for frames in chosen for frame in frames} == {1, 2}
    assert sum(map(len, chosen)) <= 5
    save("kafka", chosen, tmp_path)
    assert load("kafka", tmp_path) == chosen


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("2026-11-17 23:59:59,999 ERROR trimq.server: x\n", "ERROR"),
        ("Traceback (most recent call last):\n  File\nValueError\n", "ValueError"),
        ("2026-11-17 INFO trimq: \x1b[31m\n", "control characters"),
    ],
)
def test_a_fault_in_the_log_is_found(tmp_path: Path, text: str, fault: str) -> None:
    log = tmp_path / "broker.log"
    log.write_text("2026-11-17 23:59:59,999 WARNING trimq: fine\n" + text)
    (found,) = log_faults(log)
    assert fault in found
