"""Log of the broker process on its standard error: level and format as the settings say. Text of clients can neither
forge lines nor flood the log."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from trimq.config import Log

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_WINDOW_S = 60.0
_MAX_KINDS = 1000
# Control characters, line and paragraph separators, and characters that change the direction of text.
_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape(text: str) -> str:
    """Replaces characters that would start a line of their own or control a terminal by their escapes in Python."""
    return _NOT_SHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class TextFormatter(logging.Formatter):
    """One line per message; the lines of a traceback are indented."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escape(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join("  " + escape(line) for line in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time` (UTC), `level`, `logger`, `message`, and `traceback` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


@dataclass(slots=True)
class _Window:
    """Messages of one kind in the current minute."""

    began_s: float
    level: int
    written: int = 0
    left_out: int = 0


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes a bounded number of messages per minute of each kind: logger and text before its values are filled in.
    The number of those left out is written with the first message after the minute."""

    def __init__(self, repeats_per_minute: int) -> None:
        super().__init__()
        self._limit = repeats_per_minute
        self._windows: dict[tuple[str, str], _Window] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if self._limit:
            self._end_windows(record.created)
            kind = (record.name, str(record.msg))
            window = self._windows.get(kind)
            if window is None:
                window = self._windows[kind] = _Window(record.created, record.levelno)
            if window.written >= self._limit:
                window.left_out += 1
                return
            window.written += 1
        super().emit(record)

    def close(self) -> None:
        self._end_windows(float("inf"))
        super().close()

    def _end_windows(self, now_s: float) -> None:
        """Ends the windows that are over; all of them when there are too many kinds. They are in the order of their
        begin."""
        while self._windows:
            (name, text), window = next(iter(self._windows.items()))
            if now_s - window.began_s < _WINDOW_S and len(self._windows) < _MAX_KINDS:
                return
            del self._windows[name, text]
            if window.left_out:
                message = "%d more messages like this were left out (log.repeats_per_minute): %s"
                told = logging.LogRecord(name, window.level, "", 0, message, (window.left_out, text), None)
                super().emit(told)


def open_log(settings: Log) -> None:
    """Sends log messages to standard error, unless the program that embeds the broker has configured its own log."""
    handler = LogHandler(settings.repeats_per_minute)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler])
