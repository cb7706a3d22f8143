"""Start of a broker, as a process and embedded in a test, and its memory when idle."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, at_most
from bench.processes import broker_in, run_module
from bench.sizes import Sizes


def measure_process(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    ready_s: list[float] = []
    cpu_s: list[float] = []
    idle_mb = 0.0
    for number in range(sizes.starts + 1):
        with broker_in(folder / "start") as broker:
            if number:  # the first start compiles the modules, unlike an installed broker
                ready_s.append(broker.ready_s)
                cpu_s.append(broker.cpu_s())
            if number == sizes.starts:
                time.sleep(sizes.settle_seconds)  # includes modules that are loaded in the background
                idle_mb = broker.resident_mb()
        shutil.rmtree(folder / "start")
    note = (
        f"wall time, median of {sizes.starts} is judged; least {min(ready_s):.3g} s; CPU until ready {min(cpu_s):.3g} s"
    )
    yield Figure("process start to ready", statistics.median(ready_s), "s", goal=at_most(0.5), note=note)
    yield Figure("idle RSS", idle_mb, "MB", goal=at_most(70), note="VmRSS, with modules loaded in the background")


def measure_embedded(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """Measures in a new interpreter each time: the first broker of a test run includes the imports."""
    run_module("bench.startup")  # compiles the modules
    runs = [run_module("bench.startup") for _ in range(max(sizes.starts // 2, 1))]
    first_s = [run["import_s"] + run["start_s"] for run in runs]
    least = {name: min(run[name] for run in runs) for name in runs[0]}
    yield Figure(
        "embedded broker, imports and first start",
        statistics.median(first_s),
        "s",
        goal=at_most(0.3),
        note=f"wall time, median of {len(runs)} is judged; least of imports {least['import_s']:.3g} s, "
        f"of the first start {least['start_s']:.3g} s, of the next one {least['again_s']:.3g} s",
    )


def _start_embedded() -> dict[str, float]:
    began_s = time.perf_counter()
    from trimq.testing import Broker  # the import is part of the measurement

    imported_s = time.perf_counter()
    with Broker():
        started_s = time.perf_counter()
    stopped_s = time.perf_counter()
    with Broker():
        again_s = time.perf_counter()
    return {
        "import_s": imported_s - began_s,
        "start_s": started_s - imported_s,
        "again_s": again_s - stopped_s,
    }


if __name__ == "__main__":
    json.dump(_start_embedded(), sys.stdout)
