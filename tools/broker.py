"""A broker process on free ports, for the examples and for the commands in documents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from trimq.config import declarations

COMMAND = (sys.executable, "-m", "trimq.cli")
START_S = 30
STOP_S = 30


class BrokerFailed(Exception):
    """The broker did not become ready, or did not stop cleanly. The text holds its output."""


def listeners() -> dict[str, str]:
    """Returns the default address of each default listener, by its name in the ready file."""
    return {
        setting.key.removesuffix("listen").replace(".", "_").strip("_"): str(setting.default)
        for setting in declarations()
        if setting.is_listener and setting.default is not None
    }


def free_port_flags() -> list[str]:
    """Returns flags that move every default listener to a port chosen by the system."""
    opened = [setting for setting in declarations() if setting.is_listener and setting.default is not None]
    return [word for setting in opened for word in (setting.flag, "127.0.0.1:0")]


@contextmanager
def running(folder: Path, arguments: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Runs `trimq serve` with its data in `folder`, yields the address of each listener by name, and stops it."""
    ready, log = folder / "ready.json", folder / "broker.log"
    # Settings in the environment of this process are not meant for the broker; TRIMQ_KAFKA and the like are no
    # settings.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            # If a flag is given twice, the last one counts.
            [*COMMAND, "serve", *free_port_flags(), "--data-dir", "data", *arguments, "--ready-file", str(ready)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        yield _await_ready(process, ready, log)
    except BaseException:
        process.kill()
        process.wait()
        raise
    _stop(process, log)


def as_environment(addresses: Mapping[str, str]) -> dict[str, str]:
    """Returns the addresses under the names that examples and commands use: TRIMQ_KAFKA, TRIMQ_HTTP, …"""
    return {f"TRIMQ_{name.upper()}": address for name, address in addresses.items()}


def _await_ready(process: subprocess.Popen[bytes], ready: Path, log: Path) -> dict[str, str]:
    deadline = time.monotonic() + START_S
    while True:
        if process.poll() is not None:
            raise BrokerFailed(f"the broker ended with {process.returncode} before it was ready:\n{log.read_text()}")
        if ready.exists():
            return {name: str(value) for name, value in json.loads(ready.read_text()).items() if name != "pid"}
        if time.monotonic() > deadline:
            raise BrokerFailed(f"the broker was not ready after {START_S} s:\n{log.read_text()}")
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise BrokerFailed(f"the broker did not stop within {STOP_S} s:\n{log.read_text()}") from None
    if code:
        raise BrokerFailed(f"the broker ended with {code}:\n{log.read_text()}")
