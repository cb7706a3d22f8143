"""Child processes of a measurement: started here, read as one JSON line, and ended by their process id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.broker import COMMAND, free_port_flags

PROJECT = Path(__file__).parent.parent
PATIENCE_S = 60


def _environment() -> dict[str, str]:
    """Environment of this process without settings of a broker, and with compiled modules as in an installed broker."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    if "PYTHONPYCACHEPREFIX" in ours:
        ours.pop("PYTHONDONTWRITEBYTECODE", None)
    return ours


class ChildFailed(Exception):
    """A child process or a broker failed."""


def run_module(module: str, *words: str) -> dict[str, Any]:
    """Runs a module of the bench in a new interpreter and returns its last line of output, decoded from JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        env=_environment(),
        check=False,
    )
    if done.returncode:
        raise ChildFailed(f"{module} {' '.join(words)} ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


class RunningBroker:
    """A running `trimq serve`. `started_s` is the start time of the process, `ready_s` the time that it took to become
    ready."""

    def __init__(self, pid: int, addresses: dict[str, Any], started_s: float, ready_s: float) -> None:
        self.pid = pid
        self.addresses = addresses
        self.started_s = started_s
        self.ready_s = ready_s

    def cpu_s(self) -> float:
        """CPU time of the broker in user and kernel mode."""
        return cpu_s(self.pid)

    def resident_mb(self) -> float:
        return resident_mb(self.pid)


def cpu_s(pid: int) -> float:
    """CPU time of a process in user and kernel mode: all threads, including those that have ended."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9  # clock_getcpuclockid(3), which Python does not have


def resident_mb(pid: int | str = "self", field: str = "VmRSS") -> float:
    """Resident memory of a process: current with "VmRSS", peak with "VmHWM"."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ChildFailed(f"process {pid} has ended")


@contextmanager
def broker_in(folder: Path, flags: Sequence[str] = ()) -> Iterator[RunningBroker]:
    """Runs a broker process with its data in `folder`, and stops it with SIGTERM at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    words = [
        *COMMAND,
        "serve",
        *free_port_flags(),
        "--data-dir",
        str(folder / "data"),
        *flags,
        "--ready-file",
        str(ready),
    ]
    with (folder / "broker.log").open("wb") as log:
        started_s = time.perf_counter()
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment())
    try:
        while not ready.exists():
            if process.poll() is not None or time.perf_counter() > started_s + PATIENCE_S:
                raise ChildFailed(f"the broker did not start:\n{(folder / 'broker.log').read_text()}")
            time.sleep(0.0005)
        ready_s = time.perf_counter() - started_s
        yield RunningBroker(process.pid, json.loads(ready.read_text()), started_s, ready_s)
        process.terminate()
        if process.wait(PATIENCE_S):
            raise ChildFailed(f"the broker ended with {process.returncode}:\n{(folder / 'broker.log').read_text()}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
