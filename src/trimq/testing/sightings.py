"""What a broker saw, kept for the report of a failing test: the last events and log messages, as they are, turned into
text only when somebody asks. And what went wrong, which is a failure of the test."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque

from trimq.clock import monotonic_seconds

KEPT = 400

_LOGGER = logging.getLogger("trimq")
_lock = threading.Lock()
_open: list[Sightings] = []
_ended: list[Sightings] = []


class Sightings(logging.Handler):
    """The last events of one broker. Log messages are told apart from those of other brokers by their thread."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.title = "not started"
        self.failures: list[BaseException] = []
        self._thread: int | None = None
        self._began = monotonic_seconds()
        self._events: deque[tuple[float, object]] = deque(maxlen=KEPT)
        self._count = 0

    def see(self, event: object) -> None:
        """Keep `event`, whose text is made only for a report."""
        self._events.append((monotonic_seconds() - self._began, event))
        self._count += 1

    def fail(self, error: BaseException) -> None:
        """A test may not pass over this."""
        self.see(f"FAILED: {error!r}")
        self.failures.append(error)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        self.see(f"{record.levelname} {record.name}: {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None and record.levelno >= logging.ERROR:
            self.failures.append(record.exc_info[1])

    # -- from start to end

    def open(self) -> None:
        """Listen to the log."""
        with _lock:
            if not _open and _LOGGER.level == logging.NOTSET:
                _LOGGER.setLevel(logging.INFO)
                _lowered.append(_LOGGER)
            _open.append(self)
        _LOGGER.addHandler(self)

    def follow(self, thread: int | None) -> None:
        self._thread = thread

    def end(self) -> None:
        _LOGGER.removeHandler(self)
        with _lock:
            _open.remove(self)
            _ended.append(self)
            if not _open and _lowered:
                _lowered.pop().setLevel(logging.NOTSET)

    # -- the report

    def text(self) -> str:
        dropped = self._count - len(self._events)
        lines = [f"({dropped} earlier events are not kept)"] if dropped else []
        for text, group in itertools.groupby(((at, str(event)) for at, event in list(self._events)), lambda row: row[1]):
            rows = list(group)
            times = f"  ({len(rows)} times)" if len(rows) > 1 else ""
            lines.append(f"{rows[0][0]:+9.3f}s  {text}{times}")
        return "\n".join(lines) or "nothing"


_lowered: list[logging.Logger] = []


def reports() -> list[tuple[str, str]]:
    """A title and a text for each broker that runs, or has ended since `forget_ended`."""
    with _lock:
        shown = [*_ended, *_open]
    return [(f"what {sightings.title} saw", sightings.text()) for sightings in shown]


def forget_ended() -> None:
    with _lock:
        _ended.clear()
