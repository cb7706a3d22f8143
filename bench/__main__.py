"""`python -m bench [--tiny] [--only WORD] [--folder F]`: one JSON line per figure on standard output, then a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench import appends, group_commit, reads, startup, streams, whole_path
from bench.figures import Figure
from bench.runner import run, scratch
from bench.sizes import FULL, TINY, Sizes
from bench.work_cost import broker_gc_settings

Measure = Callable[[Sizes, Path], Iterator[Figure]]

MEASURES: dict[str, Measure] = {
    "append of large batches": appends.measure_large,
    "append of small batches": appends.measure_small,
    "group commit": group_commit.measure,
    "fdatasync against syncfs": group_commit.measure_crossover,
    "sequential read": reads.measure_reads,
    "recovery": reads.measure_recovery,
    "many streams": streams.measure,
    "process start": startup.measure_process,
    "embedded start": startup.measure_embedded,
    "whole path": whole_path.measure,
}


def main(words: list[str] | None = None) -> int:
    """Returns 0 even if a goal is missed: the figures depend on the other load of the machine."""
    chosen = _parser().parse_args(words)
    sizes = TINY if chosen.tiny else FULL
    measures = {name: measure for name, measure in MEASURES.items() if chosen.only in name}
    if not measures:
        print(f"no measurement matches {chosen.only!r}; there are: {', '.join(MEASURES)}", file=sys.stderr)
        return 2
    with scratch(chosen.folder) as folder, broker_gc_settings():
        run({name: partial(measure, sizes, folder) for name, measure in measures.items()})
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="check that every figure runs; the values are meaningless")
    parser.add_argument("--only", default="", metavar="WORD", help="only the measurements with this in their name")
    parser.add_argument("--folder", type=Path, help="folder for 3 GB of temporary files; default: TMPDIR or build/")
    return parser


if __name__ == "__main__":
    sys.exit(main())
