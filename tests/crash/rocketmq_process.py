"""A broker process for RocketMQ clients that tests kill."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tools.broker import COMMAND, _await_ready

PATIENCE_S = 30


class Broker:
    """A process that is started repeatedly on the same folder."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> None:
        ready, log = self._folder / "ready.json", self._folder / "broker.log"
        ready.unlink(missing_ok=True)
        flags = [
            "--kafka-listen",
            "off",
            "--amqp-listen",
            "off",
            "--http-listen",
            "off",
            "--rocketmq-grpc-listen",
            "off",
        ]
        flags += ["--rocketmq-listen", "127.0.0.1:0", "--rocketmq-broker-listen", "127.0.0.1:0"]
        flags += ["--rocketmq-commit-file-bytes", "65536", "--rocketmq-queue-file-entries", "100"]
        flags += ["--rocketmq-index-keys", "1000", "--storage-checkpoint-bytes", "20000"]
        flags += ["--rocketmq-delay-levels", "1s 2s", "--rocketmq-transaction-timeout-ms", "300"]
        flags += ["--rocketmq-transaction-check-interval-ms", "1500", "--data-dir", str(self._folder / "data")]
        flags += self._flags  # of a repeated flag the last one applies
        with log.open("ab") as output:
            command = [*COMMAND, "serve", *flags, "--ready-file", str(ready)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        self.address = _await_ready(self._process, ready, log)["rocketmq_broker"]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    def restart(self) -> None:
        """Kills the process and starts it again."""
        self.kill()
        self.wait()
        self.start()

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self.wait() == 0

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def eventually(look: Callable[[], bool]) -> None:
    """Waits until `look()` is true. The broker is a separate process with its own clock."""
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.02)
