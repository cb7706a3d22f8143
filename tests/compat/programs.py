"""Programs in other languages that drive their own client: started with a scenario, and judged by their output."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parent / "clients"
PATIENCE_S = 150

Line = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """Program that takes an address, the name of a scenario and its options, and prints one JSON object per line."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, address: str, scenario: str, **options: object) -> list[Line]:
        done = subprocess.run(
            self._words(address, scenario, options),
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0:
            pytest.fail(f"{done.stderr[-3000:]}\nafter it had printed:\n{done.stdout[-2000:]}", pytrace=False)
        return [json.loads(line) for line in done.stdout.splitlines()]

    @contextmanager
    def talking(self, address: str, scenario: str, **options: object) -> Iterator[Conversation]:
        """Runs a program that waits for input in the middle of its scenario."""
        process = subprocess.Popen(
            self._words(address, scenario, options),
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield Conversation(process)
            finally:
                process.kill()

    def _words(self, address: str, scenario: str, options: Mapping[str, object]) -> list[str]:
        return [*self.command, address, scenario, *(f"{name}={value}" for name, value in options.items())]


@dataclass(frozen=True)
class Conversation:
    process: subprocess.Popen[str]

    def heard(self) -> Line:
        """Returns the next line of output."""
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            found: Line = json.loads(line)
            return found
        assert self.process.stderr is not None
        pytest.fail(self.process.stderr.read()[-3000:], pytrace=False)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ended(self) -> None:
        """Asserts that the program ended without further output and without an error."""
        rest, complaint = self.process.communicate(timeout=PATIENCE_S)
        assert (rest, self.process.returncode) == ("", 0), complaint[-3000:]


def fingerprint(paths: Iterable[Path], *more: str) -> str:
    """Short hash of these files and words, for the name of a build."""
    digest = hashlib.sha256("\0".join(more).encode())
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
