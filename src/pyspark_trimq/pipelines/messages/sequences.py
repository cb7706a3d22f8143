"""Condenses records to runs of consecutive sequence numbers in Spark's tasks, many records per run.
`trimq.formats.sequences` finds the faults in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from trimq.formats.sequences import SEQUENCES

COLUMNS = "topic STRING, partition INT, offset BIGINT, producerId BIGINT, producerEpoch INT, sequence INT"
RUNS = (
    "topic STRING, partition INT, producer BIGINT, epoch INT, "
    "first_offset BIGINT, first_sequence BIGINT, records BIGINT"
)


def runs_in(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields the runs of each record batch as RUNS; for `mapInArrow` over COLUMNS. Records without a sequence number
    are counted in one row per partition with the producer -1."""
    import numpy
    import pyarrow

    for batch in batches:
        table = batch.to_pandas()
        stamped = table[(table["producerId"].fillna(-1) >= 0) & (table["sequence"].fillna(-1) >= 0)]
        keys = ["topic", "partition", "producerId", "producerEpoch"]
        stamped = stamped.sort_values([*keys, "offset"], kind="stable")
        same = (stamped[keys] == stamped[keys].shift()).all(axis=1).to_numpy()
        sequence = stamped["sequence"].to_numpy(dtype=numpy.int64)
        follows = numpy.zeros(len(stamped), dtype=bool)
        follows[1:] = same[1:] & (sequence[1:] == (sequence[:-1] + 1) % SEQUENCES)
        starts = numpy.flatnonzero(~follows)
        lengths = numpy.diff(numpy.append(starts, len(stamped)))
        first = stamped.iloc[starts]
        columns: list[Sequence[Any]] = [
            list(first["topic"]),
            *(first[name].astype("int64").tolist() for name in [*keys[1:], "offset", "sequence"]),
            lengths.tolist(),
        ]
        unstamped = table.drop(stamped.index).groupby(["topic", "partition"]).size()
        for (topic, partition), count in unstamped.items():
            row = [topic, int(partition), -1, 0, 0, 0, int(count)]
            columns = [[*column, value] for column, value in zip(columns, row, strict=True)]
        types = [pyarrow.string(), pyarrow.int32(), pyarrow.int64(), pyarrow.int32(), *[pyarrow.int64()] * 3]
        names = [field.split()[0] for field in RUNS.split(", ")]
        yield pyarrow.record_batch(
            [pyarrow.array(column, type) for column, type in zip(columns, types, strict=True)], names=names
        )
