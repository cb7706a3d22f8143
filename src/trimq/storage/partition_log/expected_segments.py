"""Compares the segments in a partition folder with the checkpoints. Used by the start, which rejects mismatches, and by
the inspection of a stopped broker's folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from trimq.errors import Damage
from trimq.storage.checkpoints.file_names import LOG
from trimq.storage.checkpoints.log_checkpoints import Checkpoints, RecoveryPoint
from trimq.storage.group_commit.segment import segment_name

GIVEN_UP = ".lost"


class SegmentMismatch(NamedTuple):
    """A segment that differs from its checkpoint, and the position of the difference."""

    file: str
    position: int
    problem: str


def remedy(path: str) -> str:
    """Returns advice for a damaged or missing segment."""
    return f"restore it from a copy, or, to drop its records, create a file {path.removesuffix(LOG)}{GIVEN_UP}"


def require_expected(
    folder: str, sizes: Mapping[int, int], checkpoints: Checkpoints, given_up: Collection[int] = ()
) -> None:
    """Raises Damage for the first mismatch."""
    for breach in find_mismatches(folder, sizes, checkpoints, given_up):
        raise Damage(f"{breach.file} {breach.problem}: {remedy(breach.file)}")


def find_mismatches(
    folder: str, sizes: Mapping[int, int], checkpoints: Checkpoints, given_up: Collection[int] = ()
) -> Iterator[SegmentMismatch]:
    """Yields segments that are missing or shorter than recorded. `sizes` holds the existing ones by base, in order; the
    operator has accepted the loss of the records of `given_up`."""
    point = checkpoints.point(folder)
    if point is None:
        return
    bases = list(sizes)
    if not bases:
        yield _missing(folder, point.base, point)
        return
    if bases[0] > point.start:
        yield _missing(folder, point.start, point)
    first = first_kept(bases, point)
    if point.base not in sizes:
        yield _missing(folder, point.base, point)
    elif sizes[point.base] < point.position and point.base not in given_up:
        size = sizes[point.base]
        yield SegmentMismatch(
            _path(folder, point.base), size, f"ends at byte {size}, but {point.position} bytes were durable"
        )
    for base in checkpoints.marked(folder):
        mark = checkpoints.sealed(folder, base)
        if base >= point.base or mark is None:
            continue
        if base not in sizes:
            if base > first:
                yield _missing(folder, base, point)
        elif sizes[base] != mark.size and base not in given_up:
            problem = f"has {sizes[base]} bytes, but was sealed with {mark.size}"
            yield SegmentMismatch(_path(folder, base), sizes[base], problem)


def first_kept(bases: list[int], point: RecoveryPoint) -> int:
    """Returns the base of the first segment with readable records. The removal of earlier segments may be incomplete: a
    crash can bring back any of them without its neighbours."""
    reached = min(point.start, point.base)
    return max((base for base in bases if base <= reached), default=bases[0])


def _path(folder: str, base: int) -> str:
    return f"{folder}/{segment_name(base, LOG)}"


def _missing(folder: str, base: int, point: RecoveryPoint) -> SegmentMismatch:
    held = f"of a stream that held the offsets from {point.start} to {point.offset - 1} at least"
    return SegmentMismatch(_path(folder, base), 0, f"is missing, {held}")
