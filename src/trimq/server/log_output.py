"""Log of the broker process on its standard error, and audit records in their own file: level and format as the
settings say. Text of clients can neither forge lines nor flood the log."""

from __future__ import annotations

import logging
import logging.handlers
from dataclasses import dataclass
from datetime import UTC, datetime

from trimq.config import Log
from trimq.core.log_text import escape, json_line
from trimq.core.security.audit_log import AUDIT_LOGGER
from trimq.errors import StartupError

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_WINDOW_S = 60.0
_MAX_KINDS = 1000


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
    """One JSON object per line: `time` (UTC), `level`, `logger`, `message`, and `traceback` if there is one. An audit
    record has its own fields in place of `message`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"time": _time_of(record), "level": record.levelname, "logger": record.name}
        line |= getattr(record, "audit", None) or {"message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json_line(line)


class AuditFormatter(logging.Formatter):
    """One JSON object per line: `time` (UTC), and the fields of the audit record."""

    def format(self, record: logging.LogRecord) -> str:
        return json_line({"time": _time_of(record), **record.audit})  # type: ignore[attr-defined]


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class _Window:
    """Messages of one kind in the current minute."""

    began_s: float
    level: int
    written: int = 0
    left_out: int = 0


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes a bounded number of messages per minute of each kind: logger and text before its values are filled in.
    The number of those left out is written with the first message after the minute. Audit records, which have a limit
    of their own, are all written."""

    def __init__(self, repeats_per_minute: int) -> None:
        super().__init__()
        self._limit = repeats_per_minute
        self._windows: dict[tuple[str, str], _Window] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if self._limit and record.name != AUDIT_LOGGER:
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
    if settings.audit_file is not None:
        _open_audit(settings.audit_file)


def _open_audit(path: str) -> None:
    """Appends audit records to a file, which is opened anew when it was moved away."""
    try:
        handler = logging.handlers.WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise StartupError(f"log.audit_file: {path} cannot be written ({error.strerror})") from None
    handler.setFormatter(AuditFormatter())
    audit = logging.getLogger(AUDIT_LOGGER)
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    audit.propagate = False
