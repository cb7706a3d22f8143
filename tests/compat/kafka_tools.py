"""Apache Kafka's `DumpLogSegments`, run on a partition folder."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from compat.maven import classpath

ARTIFACTS = ("org.apache.kafka:kafka-tools:4.3.1", "org.slf4j:slf4j-nop:1.7.36")

_SUFFIXES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
_FAULTS_IN_OUTPUT = re.compile(r"isvalid: false|invalid bytes at the end|Exception|Could not", re.IGNORECASE)
_GAPS = "Non-consecutive offsets in "
_GAP = re.compile(r"  (-?\d+) is followed by (\d+)$")


class Dump(NamedTuple):
    output: str
    errors: str
    status: int


def dump(folder: Path) -> Dump:
    """All files of the folder, records and contents included, in the order of their names."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in _SUFFIXES)
    command = ["java", "-Xmx256m", "-cp", classpath(ARTIFACTS), "org.apache.kafka.tools.DumpLogSegments"]
    command += ["--deep-iteration", "--print-data-log", "--files", ",".join(names)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return Dump(done.stdout, done.stderr, done.returncode)


def complaints_of(folder: Path, has_gaps: bool = False) -> list[str]:
    """Faults that the tool finds in the folder. `has_gaps`: it was compacted, and offsets may be missing."""
    return complaints_in(dump(folder), has_gaps)


def complaints_in(dumped: Dump, has_gaps: bool = False) -> list[str]:
    found = [line for line in dumped.output.splitlines() if _is_fault(line)]
    found += _unexpected(dumped.errors.splitlines(), has_gaps)
    if dumped.status != 0:
        found.append(f"the tool ended with {dumped.status}")
    return found


def _is_fault(line: str) -> bool:
    # Lines with record contents are not messages of the tool.
    return not line.startswith("|") and _FAULTS_IN_OUTPUT.search(line) is not None


def _unexpected(errors: list[str], has_gaps: bool) -> Iterator[str]:
    """Filters false alarms: Kafka 4.3.1 assumes -1 as the offset before a file's first, and reports a gap in all files
    that do not begin at 0."""
    log = first_offset = ""
    for line in errors:
        gap = _GAP.match(line)
        if line.startswith(_GAPS):
            log = line.removeprefix(_GAPS)
            first_offset = str(int(Path(log).stem))
        elif gap is None:
            yield line
        elif not has_gaps and (gap[1], gap[2]) != ("-1", first_offset):
            yield f"{log}: {line.strip()}"
