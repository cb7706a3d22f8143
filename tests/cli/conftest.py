"""The real command in a process of its own, and a double of the HTTP port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import trimq as trimq_package

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def environment_of_command() -> dict[str, str]:
    """Environment without TRIMQ settings, and with this checkout in the path even if it is not installed."""
    source = str(Path(trimq_package.__file__).parents[1])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    return inherited | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


@pytest.fixture
def command_environment() -> dict[str, str]:
    return environment_of_command()


@pytest.fixture
def trimq() -> Run:
    """Runs `trimq` with these arguments. Its environment has no settings but the given ones."""

    def run(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trimq.cli", *words],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment_of_command() | dict(environment or {}),
        )

    return run


@dataclass
class HttpDouble:
    """Answers by (method, path) from a table, and records the requests."""

    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def broker_http() -> Iterator[HttpDouble]:
    double = HttpDouble()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            double.asked.append((self.command, self.path, body))
            double.logins += self.headers.get_all("Authorization", [])
            missing = (404, {"error": "NotFound", "message": f"no resource at {self.path}"})
            status, answer = double.answers.get((self.command, self.path), missing)
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if status != 204:
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    double.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield double
    server.shutdown()
    thread.join()
    server.server_close()
