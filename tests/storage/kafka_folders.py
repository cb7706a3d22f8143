"""Partition folders written by Apache Kafka 4.3.1, and the output of its dump tool for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trimq.formats.kafka_batch.header import BatchHeader, walk
from trimq.formats.kafka_batch.markers import Marker, read_control
from trimq.formats.kafka_batch.records import iterate_records

DATA = Path(__file__).parent.parent / "data" / "kafka-4.3.1"
FOLDERS = sorted(path for path in DATA.iterdir() if path.is_dir())
INDEX_INTERVAL_BYTES = 200  # as set when the topics were created


def companions(suffix: str) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted(folder.glob(f"*{suffix}"))]


def named(path: Path) -> str:
    """Returns a test id for a path."""
    return f"{path.parent.name}/{path.stem.lstrip('0') or '0'}{path.suffix}"


def base_of(path: Path) -> int:
    return int(path.stem)


def log_of(path: Path) -> bytes:
    return path.with_suffix(".log").read_bytes()


def batches_of(log: bytes) -> Iterator[tuple[int, BatchHeader, Marker | None]]:
    """Yields position, header and, for a control batch, the marker."""
    for position, header in walk(log, 0, len(log)):
        marker = read_control(next(iter(iterate_records(log, position)))) if header.is_control else None
        yield position, header, marker


def end_of(log: bytes) -> int:
    """Returns the offset after the last."""
    return max(header.next_offset for _, header, _ in batches_of(log))


def printed(path: Path) -> list[dict[str, int]]:
    """The lines of Kafka's dump tool for one file, each as a mapping of names to numbers. `OptionalLong.empty` is
    -1."""
    text = (DATA / f"{path.parent.name}.dump.txt").read_text()
    section = text.split(f"Dumping {path.name}\n", 1)[1].split("Dumping ", 1)[0]
    pattern = re.compile(r"(\w+): (?:OptionalLong)?\[?(-?\d+|\.empty)")
    lines = [line for line in section.splitlines() if ": " in line]
    return [{name: -1 if value == ".empty" else int(value) for name, value in pattern.findall(line)} for line in lines]
