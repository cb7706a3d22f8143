"""Log of the broker process on its standard error: level and format as the settings say."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

from trimq.config import Log

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time` (UTC), `level`, `logger`, `message`, and `traceback` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def open_log(settings: Log) -> None:
    """Sends log messages to standard error, unless the program that embeds the broker has configured its own log."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if settings.format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler])
