"""Sorts the rows of a task by topic, partition and offset. Rows that exceed the memory limit of a task are spilled to
files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

POSITION_COLUMNS = ("topic", "partition", "offset")
HELD_BYTES = 64 << 20
PIECE_BYTES = 16 << 20
PIECE_ROWS = 5000

_BATCH, _ROW, _SIZE = "batch", "row", "size"


def sort_by_offset(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows by topic, partition and offset, in batches of a few megabytes."""
    spilled: list[pa.RecordBatch] = []
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size > HELD_BYTES:
            spilled += _spill(held)
            held, size = [], 0
    whole = spilled + held
    if whole:
        places = pa.concat_tables([_positions(number, batch) for number, batch in enumerate(whole)])
        ordered = places.sort_by([(name, "ascending") for name in POSITION_COLUMNS])
        for piece in _pieces(ordered):
            yield _take_rows(whole, piece)


def _spill(held: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Returns the same rows, memory-mapped from a file that the system deletes when the last batch is released."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    with tempfile.NamedTemporaryFile(dir=folder or None, prefix="trimq-rows-") as file:
        with pa.ipc.new_file(file, held[0].schema) as writer:
            for batch in held:
                writer.write_batch(batch)
        file.flush()
        found = pa.ipc.open_file(pa.memory_map(file.name))
        return [found.get_batch(number) for number in range(found.num_record_batches)]


def _positions(number: int, batch: pa.RecordBatch) -> pa.Table:
    """Returns the sort key, the location and the approximate size of each row."""
    sizes: Any = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if column.type == pa.binary():
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    sizes += max(batch.nbytes - int(sizes.sum()), 0) // batch.num_rows  # the other columns
    found = {name: batch.column(name) for name in POSITION_COLUMNS}
    found |= {_BATCH: pa.array(np.full(batch.num_rows, number)), _ROW: pa.array(np.arange(batch.num_rows))}
    return pa.table({**found, _SIZE: pa.array(sizes)})


class _Piece(NamedTuple):
    """Batch number and row number of each row."""

    batches: Any
    rows: Any


def _pieces(ordered: pa.Table) -> Iterator[_Piece]:
    batches, rows = ordered[_BATCH].to_numpy(), ordered[_ROW].to_numpy()
    first = size = 0
    for at, more in enumerate(ordered[_SIZE].to_pylist()):
        if at > first and (size + more > PIECE_BYTES or at - first == PIECE_ROWS):
            yield _Piece(batches[first:at], rows[first:at])
            first, size = at, 0
        size += more
    yield _Piece(batches[first:], rows[first:])


def _take_rows(whole: Sequence[pa.RecordBatch], piece: _Piece) -> pa.RecordBatch:
    """Takes rows batch by batch and reorders them. Taking them at once would make Arrow concatenate all of `whole`."""
    by_batch = np.argsort(piece.batches, kind="stable")
    parts = [
        whole[number].take(pa.array(piece.rows[by_batch][piece.batches[by_batch] == number]))
        for number in np.unique(piece.batches)
    ]
    (joined,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return joined.take(pa.array(np.argsort(by_batch)))
