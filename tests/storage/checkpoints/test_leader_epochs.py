from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from storage.kafka_folders import FOLDERS

from trimq.storage.checkpoints.file_names import LEADER_EPOCHS, PARTITION_METADATA, CorruptCompanion
from trimq.storage.checkpoints.leader_epochs import (
    EpochStart,
    format_epochs,
    format_partition_metadata,
    format_uuid,
    parse_epochs,
    parse_partition_metadata,
    parse_uuid,
)

TOPIC = UUID("f3a1b2c4-0000-4000-8000-fffefdfcfbfa")
METADATA = format_partition_metadata(TOPIC)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kafkas_own_text_files_are_written_again_byte_for_byte(folder: Path) -> None:
    epochs = (folder / LEADER_EPOCHS).read_bytes()
    assert parse_epochs(epochs) == [EpochStart(0, 0)]
    assert format_epochs(parse_epochs(epochs)) == epochs
    metadata = (folder / PARTITION_METADATA).read_bytes()
    assert format_partition_metadata(parse_partition_metadata(metadata)) == metadata


def test_epochs_are_read_in_order() -> None:
    starts = [EpochStart(0, 0), EpochStart(3, 17), EpochStart((1 << 31) - 1, (1 << 63) - 1)]
    assert format_epochs(starts[:2]) == b"0\n2\n0 0\n3 17\n"
    assert parse_epochs(format_epochs(starts)) == starts


@pytest.mark.parametrize("data", [b"", b"0\n0\n"])
def test_a_log_without_epochs_has_none(data: bytes) -> None:
    assert parse_epochs(data) == []


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"1\n0\n", "version 1 is not supported"),
        (b"x\n0\n", "'x' is not a valid version"),
        (b"0\n", "number of entries is missing"),
        (b"0\nmany\n", "'many' is not a valid number of entries"),
        (b"0\n2\n0 0\n", "2 entries are announced, but 1 are present"),
        (b"0\n1\n0 0\n1 5\n", "1 entries are announced, but 2 are present"),
        (b"0\n1\n0\n", "'0' is not an epoch and an offset"),
        (b"0\n1\n0 0 0\n", "'0 0 0' is not an epoch and an offset"),
        (b"0\n1\n-1 0\n", "'-1' is not a valid epoch"),
        (b"0\n1\n0 9223372036854775808\n", "is not a valid offset"),
        (b"0\n1\n2147483648 0\n", "is not a valid epoch"),
        (b"0\n1\n0 " + b"1" * 5000 + b"\n", "is not a valid offset"),
        (b"0\n2\n1 0\n1 5\n", "epoch 1 cannot start at 5"),
        (b"0\n2\n1 5\n2 5\n", "epoch 2 cannot start at 5"),
        (b"\xff\n", "not ASCII text"),
        ("0\n\u0661\n0 0\n".encode(), "not ASCII text"),
    ],
)
def test_invalid_epochs_are_refused_with_a_reason(data: bytes, complaint: str) -> None:
    with pytest.raises(CorruptCompanion, match=complaint):
        parse_epochs(data)


def test_an_id_is_printed_as_kafka_prints_it() -> None:
    assert format_uuid(TOPIC) == "86GyxAAAQACAAP_-_fz7-g"
    assert parse_uuid("86GyxAAAQACAAP_-_fz7-g") == parse_uuid("86GyxAAAQACAAP_-_fz7-g==") == TOPIC
    assert METADATA == b"version: 0\ntopic_id: 86GyxAAAQACAAP_-_fz7-g"


def test_a_line_end_after_the_metadata_is_ignored() -> None:
    assert parse_partition_metadata(METADATA + b"\n") == TOPIC


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "instead of version and topic_id"),
        (b"version: 0\n", "instead of version and topic_id"),
        (METADATA + b"\nmore: 1", "instead of version and topic_id"),
        (METADATA + b"\nversion: 0", "is not a valid line"),
        (b"version 0\n", "is not a valid line"),
        (METADATA.replace(b"0\n", b"1\n", 1), "version '1' is not supported"),
        (METADATA[:-1], "is not a topic id"),
        (METADATA + b"A", "is not a topic id"),
        (METADATA[:-1] + b"h", "is not a topic id"),  # bits that no id has
        (METADATA[:-1] + b"*", "is not a topic id"),
        (METADATA + b"=" * 1000, "is not a topic id"),
        (format_partition_metadata(UUID(int=0)), "is not a topic id"),
        (b"\xff", "not ASCII text"),
    ],
)
def test_invalid_metadata_is_refused_with_a_reason(data: bytes, complaint: str) -> None:
    with pytest.raises(CorruptCompanion, match=complaint):
        parse_partition_metadata(data)
