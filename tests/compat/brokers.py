"""A broker process that a test can restart on the same folder and port, with access to its files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tools.broker import running
from trimq.formats.kafka_batch.header import BatchHeader, read_header


class CompatBroker:
    """Broker process that runs for the duration of a `with` block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self.address = "127.0.0.1:0"

    def __enter__(self) -> CompatBroker:
        (self._folder / "ready.json").unlink(missing_ok=True)
        addresses = self._running.enter_context(running(self._folder, ["--kafka-listen", self.address]))
        self.address = addresses["kafka"]
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()

    def restart(self) -> None:
        self.__exit__()
        self.__enter__()

    def first_batch(self, topic: str) -> BatchHeader:
        """Header of the first batch in the files of partition 0."""
        return read_header((self._folder / "data" / "partitions" / f"{topic}-0" / f"{0:020}.log").read_bytes())
