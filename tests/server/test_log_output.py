"""The log of the broker process in both formats."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from trimq.config import Log
from trimq.server.log_output import JsonFormatter, open_log


def open_alone(settings: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens the log as in a process without handlers."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    open_log(settings)


def record(message: str, *arguments: object, error: bool = False) -> logging.LogRecord:
    exc_info = sys.exc_info() if error else None
    made = logging.LogRecord("trimq.somewhere", logging.WARNING, "file", 1, message, arguments, exc_info)
    made.created = 1_700_000_000.25
    return made


def test_a_message_is_one_line_of_json() -> None:
    line = JsonFormatter().format(record("orders: %s\nsecond line", "flüchtig"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "trimq.somewhere",
        "message": "orders: flüchtig\nsecond line",
    }


def test_a_traceback_is_part_of_its_message() -> None:
    try:
        raise LookupError("gone")
    except LookupError:
        told = json.loads(JsonFormatter().format(record("failed", error=True)))
    assert told["traceback"].endswith("LookupError: gone")


def test_level_and_format_are_those_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_alone(Log(level="warning", format="json"), monkeypatch)
    logging.getLogger("trimq.somewhere").info("not shown")
    logging.getLogger("trimq.somewhere").warning("shown")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "shown"


def test_text_is_the_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    open_alone(Log(), monkeypatch)
    logging.getLogger("trimq.somewhere").debug("not shown")
    logging.getLogger("trimq.somewhere").info("shown")
    assert capsys.readouterr().err.endswith(" INFO trimq.somewhere: shown\n")
