"""Celery workers in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from compat import celery_tasks

from tools.broker import running

PATIENCE_S = 45


def url_of(address: str) -> str:
    return f"pyamqp://guest:guest@{address}//"


class Workshop:
    """A broker's address, an application that uses it, and the workers that were started."""

    def __init__(self, folder: Path, url: str, queue_type: str) -> None:
        self.app = celery_tasks.make_app(url, queue_type)
        self._url, self._queue_type = url, queue_type
        self.address = url.split("@")[1].rstrip("/")
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self, name: str, *flags: str, url: str = "") -> subprocess.Popen[bytes]:
        """Starts a worker that runs until the workshop closes or the test ends it."""
        command = [sys.executable, celery_tasks.__file__, url or self._url, self._queue_type]
        with (self._folder / f"{name}.log").open("wb") as log:
            worker = subprocess.Popen(
                [*command, "-P", "solo", "-l", "warning", "-n", name, *flags],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        self._workers.append(worker)
        return worker

    @contextmanager
    def worker(self, name: str, *flags: str, url: str = "") -> Iterator[subprocess.Popen[bytes]]:
        worker = self.start_worker(name, *flags, url=url)
        try:
            yield worker
        finally:
            worker.terminate()
            worker.wait(PATIENCE_S)

    def send(self, task: str, *arguments: object, **options: Any) -> Any:
        return self.app.tasks[task].apply_async(arguments, **options)

    def done(self, task: str, *arguments: object, **options: Any) -> Any:
        """Returns the result of a task."""
        return self.send(task, *arguments, **options).get(timeout=PATIENCE_S)

    def complaints(self, name: str) -> str:
        """Returns the output of this worker."""
        return (self._folder / f"{name}.log").read_text()

    def close(self) -> None:
        self.app.close()
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait(PATIENCE_S)


@contextmanager
def workshop(factory: pytest.TempPathFactory, queue_type: str) -> Iterator[Workshop]:
    """Opens a workshop with one ready worker."""
    with running(factory.mktemp("broker"), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        shop = Workshop(factory.mktemp("workers"), url_of(addresses["amqp"]), queue_type)
        try:
            shop.start_worker("first@here")
            # Connections that all tests share are opened here, so that they do not count as leaks of a test.
            assert shop.done("add", 1, 1) == 2
            assert shop.app.control.ping(timeout=PATIENCE_S, limit=1)
            yield shop
        finally:
            shop.close()
