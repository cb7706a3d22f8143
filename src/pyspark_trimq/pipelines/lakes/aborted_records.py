"""List of aborted records that an archive does not contain, stored beside it, so that an audit does not report their
sequence numbers as gaps. One small file per batch, written before the batch is committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark_trimq.pipelines.runner.checkpoint import write_atomically
from trimq.formats.sequences import SEQUENCES, ProducerStream, SequenceRun

FOLDER = "_trimq/aborted"


class AbortedRecords:
    def __init__(self, lake: Path) -> None:
        self._folder = lake / FOLDER

    def note(self, writer: str, batch: int, found: Sequence[tuple[str, str]]) -> None:
        """Stores the aborted records of a batch. A repeated batch overwrites its file."""
        if found:
            self._folder.mkdir(parents=True, exist_ok=True)
            rows = [[topic, *each] for topic, listed in found for each in json.loads(listed)]
            write_atomically(self._folder / f"{writer}-{batch:012}.json", json.dumps(rows))

    def runs(self, topics: Iterable[str]) -> list[SequenceRun]:
        """Returns the aborted records of these topics, each once, even if several files list them."""
        rows = set()
        for path in self._folder.glob("*.json"):
            rows |= {tuple(row) for row in json.loads(path.read_text())}
        wanted = set(topics)
        found = []
        covered: dict[tuple[str, int], int] = {}
        for topic, partition, producer, epoch, offset, sequence, records in sorted(rows, key=lambda row: row[4]):
            known = max(covered.get((topic, partition), 0) - offset, 0)
            if topic in wanted and known < records:
                track = ProducerStream(topic, partition, producer, epoch)
                found.append(SequenceRun(track, offset + known, (sequence + known) % SEQUENCES, records - known))
                covered[topic, partition] = offset + records
        return found
