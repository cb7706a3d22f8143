"""Recorded events of a broker for the report of a failing test: the last events and log messages, formatted only for a
report, and internal failures, which fail the test."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque

from trimq.clock import monotonic_seconds

MAX_EVENTS = 400

_LOGGER = logging.getLogger("trimq")


class EventRecorder(logging.Handler):
    """Records the last events of one broker. Log messages are assigned to a broker by their thread."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.title = "a broker that did not start"
        self.failures: list[BaseException] = []
        self._thread: int | None = None
        self._began = monotonic_seconds()
        self._events: deque[tuple[float, object]] = deque(maxlen=MAX_EVENTS)
        self._count = 0

    def open(self) -> None:
        """Starts recording log messages and adds this recorder to the reports."""
        _registry.add(self)

    def follow(self, thread: int | None) -> None:
        """Records the log messages of this thread."""
        self._thread = thread

    def end(self) -> None:
        """Stops recording; the events are kept for the report of this test."""
        _registry.end(self)

    def add_event(self, event: object) -> None:
        """Records an event; it is converted to text only for a report."""
        self._events.append((monotonic_seconds() - self._began, event))
        self._count += 1

    def fail(self, error: BaseException) -> None:
        """Records a failure, which fails the test."""
        self.add_event(f"FAILED: {error!r}")
        self.failures.append(error)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        self.add_event(f"{record.levelname} {record.name}: {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None and record.levelno >= logging.ERROR:
            self.failures.append(record.exc_info[1])

    def lines(self) -> list[str]:
        """Returns one line for each event, and one for events that repeat without another between them."""
        events = list(self._events)
        lines = [f"({self._count - len(events)} earlier events were dropped)"] if self._count > len(events) else []
        for text, same in itertools.groupby(((at, str(event)) for at, event in events), key=lambda row: row[1]):
            times = [at for at, _ in same]
            repeated = f"  ({len(times)} times)" if len(times) > 1 else ""
            lines.append(f"{times[0]:+9.3f}s  {text}{repeated}")
        return lines

    def text(self) -> str:
        return "\n".join(self.lines()) or "nothing"


class _Registry:
    """Recorders of all brokers of this process that appear in a report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[EventRecorder] = []
        self._ended: list[EventRecorder] = []
        self._has_set_level = False

    def add(self, sightings: EventRecorder) -> None:
        with self._lock:
            self._open.append(sightings)
            _LOGGER.addHandler(sightings)
            if _LOGGER.level == logging.NOTSET:  # no level was configured, and the default drops INFO
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
    """Returns a title and a text for each broker that is running, or has ended since `forget_ended`."""
    return [(f"events of {sightings.title}, oldest first", sightings.text()) for sightings in _registry.all()]


def forget_ended() -> None:
    """Removes ended brokers, so that the reports of the next test do not include those of this one."""
    _registry.forget_ended()
