"""Runs of the fuzzer: mutated streams against one port of a broker process for a given time, and what must hold."""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.request import urlopen

from security.attacked import Health

from fuzz.corpus import load
from fuzz.frames import FORMATS
from fuzz.mutations import Mutator
from tools.broker import running

LIFE_S = 60
"""A broker takes mutated streams for so long, is stopped, and started once more with what they left in its folder."""

MOST_RESIDENT_MIB = 400
MOST_WAITED_S = 5.0
LEAVE_S = 20
FLAGS = ("--storage-low-water-bytes", "0")

_FAULT = re.compile(r"Traceback|CRITICAL|ERROR ")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass
class Report:
    port: str
    streams: int = 0
    sent_bytes: int = 0
    waits_s: list[float] = field(default_factory=list)
    resident_mib: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        waits = sorted(self.waits_s) or [0.0]
        p50, p99, last = waits[len(waits) // 2], waits[int(len(waits) * 0.99)], waits[-1]
        return (
            f"{self.port}: {self.streams} streams, {self.sent_bytes / 1e6:.0f} MB, at most {self.resident_mib} MiB; "
            f"others p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.0f} ms, max {last * 1e3:.0f} ms; "
            f"{len(self.faults)} faults" + "".join("\n  " + fault for fault in self.faults)
        )


def run(
    port: str, folder: Path, seed: int, seconds: float, show: Callable[[Report], object] = lambda _: None
) -> Report:
    """Fuzzes one port for about so many seconds. Each life of the broker has a folder of its own."""
    report = Report(port)
    deadline = time.monotonic() + seconds
    life = 0
    while (remaining := deadline - time.monotonic()) > 0 and not report.faults:
        home = folder / f"{port}-{life}"
        home.mkdir()
        _live(report, home, f"{seed}/{life}", min(remaining, LIFE_S), show)
        life += 1
    return report


def _live(report: Report, home: Path, seed: str, seconds: float, show: Callable[[Report], object]) -> None:
    mutator = Mutator(FORMATS[report.port], load(report.port))
    with running(home, FLAGS) as addresses:
        pid = json.loads((home / "ready.json").read_text())["pid"]
        for port in FORMATS:
            for frames in load(port):
                play(addresses[port], frames, Random(seed))
        with Health(addresses["http"]) as health:
            deadline = time.monotonic() + seconds
            number = 0
            while time.monotonic() < deadline:
                name = f"{report.port}/{seed}/{number}"
                frames = mutator.stream(name)
                try:
                    report.sent_bytes += play(addresses[report.port], frames, Random(name))
                except ConnectionRefusedError:
                    report.faults.append(f"the broker listens no more (stream {name})")
                    return
                report.streams += 1
                number += 1
                if number % 100 == 0:
                    show(report)
        report.waits_s += health.seconds
        if max(health.seconds) > MOST_WAITED_S:
            report.faults.append(f"others waited {max(health.seconds):.1f} s (seed {seed})")
        report.resident_mib = max(report.resident_mib, _resident_mib(pid))
        if report.resident_mib > MOST_RESIDENT_MIB:
            report.faults.append(f"the broker took {report.resident_mib} MiB (seed {seed})")
        if left := _connections_left(addresses["http"], report.port):
            report.faults.append(f"{left} connections are open {LEAVE_S} s after the last stream (seed {seed})")
    report.faults += [f"{fault} (seed {seed})" for fault in log_faults(home / "broker.log")]
    (home / "ready.json").unlink()
    with running(home, FLAGS):
        pass
    report.faults += [f"after a restart: {fault} (seed {seed})" for fault in log_faults(home / "broker.log")]


def play(address: str, frames: list[bytes], random: Random) -> int:
    """Sends a stream, reads what comes meanwhile, and leaves in one of three ways. Returns the bytes sent."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.settimeout(2)
        data = b"".join(frames)
        with suppress(OSError):
            for piece in _pieces(random, data):
                connection.sendall(piece)
                _drain(connection, 0)
            match random.randrange(3):
                case 0:  # reset
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                case 1:  # closed with answers unread
                    pass
                case _:
                    connection.shutdown(socket.SHUT_WR)
                    _drain(connection, 0.02)
    return len(data)


def _pieces(random: Random, data: bytes) -> list[bytes]:
    if random.random() < 0.6:
        return [data]
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randint(1, 6)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _drain(connection: socket.socket, patience_s: float) -> None:
    while select.select([connection], [], [], patience_s)[0]:
        if not connection.recv(1 << 16):
            return


def _resident_mib(pid: int) -> int:
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(peak) >> 10


def _connections_left(http: str, port: str) -> int:
    deadline = time.monotonic() + LEAVE_S
    while True:
        with urlopen(f"http://{http}/metrics", timeout=20) as page:
            text = page.read().decode()
        (count,) = re.findall(rf'^trimq_connections{{listener="{port}"}} (\d+)', text, re.MULTILINE)
        left = int(count) - (port == "http")
        if left <= 0 or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def log_faults(log: Path) -> list[str]:
    """Lines of a log that a client must not be able to cause: tracebacks, errors, and control characters."""
    lines = log.read_text(errors="surrogateescape").split("\n")
    found = []
    for number, line in enumerate(lines):
        if _FAULT.search(line):
            found.append(" | ".join(lines[number : number + 40])[:6000])
        elif _CONTROL.search(line):
            found.append(f"control characters in the log: {line[:200]!r}")
    return found[:5]
