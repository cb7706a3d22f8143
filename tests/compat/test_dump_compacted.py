"""Apache Kafka's dump tool finds no fault in partition folders that TriMQ compacted."""

from __future__ import annotations

from pathlib import Path

import pytest
from compat.kafka_tools import complaints_in, dump
from storage.keyed_logs import DAY_MS, FOLDER, KeyedLog, with_settings

from trimq.formats.kafka_batch.compression import Codec
from trimq.storage.io.files import DiskFiles

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]


@pytest.fixture
def keyed(tmp_path: Path) -> KeyedLog:
    return KeyedLog(DiskFiles(str(tmp_path)), with_settings(segment_bytes=6000))


def complaints(keyed: KeyedLog, tmp_path: Path) -> tuple[list[str], str]:
    keyed.close()
    dumped = dump(tmp_path / FOLDER)
    return complaints_in(dumped, has_gaps=True), dumped.output


def write(keyed: KeyedLog, turns: range) -> None:
    """Writes batches of every codec, of idempotent and transactional producers, and tombstones."""
    for turn in turns:
        for codec in Codec:
            pairs = [
                (b"%d-%d" % (codec, number * turn % 23), None if (number + turn) % 11 == 0 else b"value %d " % turn * 5)
                for number in range(1, 9)
            ]
            keyed.now_ms += 7
            keyed.append(pairs, codec)
            keyed.append(pairs[:3], codec, producer_id=50 + codec, producer_epoch=0, base_sequence=3 * turn)
            keyed.append(
                pairs[3:5],
                codec,
                producer_id=9,
                producer_epoch=1,
                base_sequence=10 * turn + 2 * codec,
                transactional=True,
            )
        keyed.end_transaction(9, commit=turn % 3 > 0)


def test_a_log_after_several_compactions(keyed: KeyedLog, tmp_path: Path) -> None:
    keyed.append([(b"a", b"1"), (b"b", b"1")], producer_id=77, producer_epoch=0, base_sequence=0)
    keyed.append([(b"a", b"2"), (b"b", None)])
    table = {}
    for round in range(4):
        write(keyed, range(5 * round, 5 * round + 5))
        keyed.roll()
        table = keyed.table()
        keyed.compact()
        keyed.now_ms += DAY_MS // 2
    assert keyed.table() == table
    found, output = complaints(keyed, tmp_path)
    assert found == []
    assert "count: 0 " in output
    assert "deleteHorizonMs: OptionalLong[" in output
    for codec in Codec:
        assert f"compresscodec: {codec.name.lower()}" in output
    assert "endTxnMarker: ABORT" in output


def test_a_log_that_is_almost_empty_after_compaction(keyed: KeyedLog, tmp_path: Path) -> None:
    write(keyed, range(1, 12))
    for codec in Codec:
        keyed.append([(b"%d-%d" % (codec, number), None) for number in range(23)])
    for _ in range(4):
        keyed.append([(b"last", b"%d" % keyed.now_ms)])
        keyed.roll()
        keyed.log.producers.expire(keyed.now_ms + DAY_MS, DAY_MS)
        keyed.compact()
        keyed.now_ms += DAY_MS
    assert [record.key for record in keyed.records()] == [b"last"]
    found, output = complaints(keyed, tmp_path)
    assert found == []
    assert "isControl: true" not in output
