"""What a broker saw, kept for the report of a failing test: the last events and log messages, as they are, turned into
text only when somebody asks. And what went wrong, which is a failure of the test."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque

from trimq.clock import monotonic_seconds

MAX_EVENTS = 400

_LOGGER = logging.getLogger("trimq")


class EventRecorder(logging.Handler):
    """The last events of one broker. Log messages are told apart from those of other brokers by their thread."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.title = "a broker that did not start"
        self.failures: list[BaseException] = []
        self._thread: int | None = None
        self._began = monotonic_seconds()
        self._events: deque[tuple[float, object]] = deque(maxlen=MAX_EVENTS)
        self._count = 0

    def open(self) -> None:
        """Listen to the log, and be part of reports."""
        _registry.add(self)

    def follow(self, thread: int | None) -> None:
        """The log messages of this thread are the broker's."""
        self._thread = thread

    def end(self) -> None:
        """The broker is gone; what it saw is kept for the report of this test."""
        _registry.end(self)

    def add_event(self, event: object) -> None:
        """Keep `event`, whose text is made only for a report."""
        self._events.append((monotonic_seconds() - self._began, event))
        self._count += 1

    def fail(self, error: BaseException) -> None:
        """A test may not pass over this."""
        self.add_event(f"FAILED: {error!r}")
        self.failures.append(error)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        self.add_event(f"{record.levelname} {record.name}: {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None and record.levelno >= logging.ERROR:
            self.failures.append(record.exc_info[1])

    def text(self) -> str:
        events = list(self._events)
        lines = [f"({self._count - len(events)} earlier events are not kept)"] if self._count > len(events) else []
        for text, same in itertools.groupby(((at, str(event)) for at, event in events), key=lambda row: row[1]):
            times = [at for at, _ in same]
            repeated = f"  ({len(times)} times)" if len(times) > 1 else ""
            lines.append(f"{times[0]:+9.3f}s  {text}{repeated}")
        return "\n".join(lines) or "nothing"


class _Registry:
    """All brokers of this process that a report may have to speak of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[EventRecorder] = []
        self._ended: list[EventRecorder] = []
        self._has_set_level = False

    def add(self, sightings: EventRecorder) -> None:
        with self._lock:
            self._open.append(sightings)
            _LOGGER.addHandler(sightings)
            if _LOGGER.level == logging.NOTSET:  # nobody has chosen one, and INFO would not come through
                _LOGGER.setLevel(logging.INFO)
                self._has_set_level = True

    def end(self, sightings: EventRecorder) -> None:
        with self._lock:
            self._open.remove(sightings)
            self._ended.append(sightings)
            _LOGGER.removeHandler(sightings)
            if self._has_set_level and not self._open:
                _LOGGER.setLevel(logging.NOTSET)
                self._has_set_level = False

    def all(self) -> list[EventRecorder]:
        with self._lock:
            return [*self._ended, *self._open]

    def forget_ended(self) -> None:
        with self._lock:
            self._ended.clear()


_registry = _Registry()


def reports() -> list[tuple[str, str]]:
    """A title and a text for each broker that runs, or has ended since `forget_ended`."""
    return [(f"what {sightings.title} saw", sightings.text()) for sightings in _registry.all()]


def forget_ended() -> None:
    """The reports of the next test are not about the brokers of the last."""
    _registry.forget_ended()
