"""The log of the broker process in both formats."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimq.config import Log
from trimq.errors import StartupError
from trimq.server.log_output import JsonFormatter, LogHandler, TextFormatter, open_log


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


def audit_record() -> logging.LogRecord:
    made = record("%s", '{"event":"login"}')
    made.name, made.audit = "trimq.audit", {"event": "login", "principal": "a\nb"}
    return made


def test_an_audit_record_is_part_of_the_json_log() -> None:
    assert json.loads(JsonFormatter().format(audit_record())) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "trimq.audit",
        "event": "login",
        "principal": "a\nb",
    }


def test_audit_records_are_not_left_out_as_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogHandler(1)
    for _ in range(3):
        handler.emit(audit_record())
    handler.close()
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.fixture
def audit_logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The logger of audit records; closes handlers that the test adds."""
    logger = logging.getLogger("trimq.audit")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    yield logger
    for handler in logger.handlers:
        handler.close()
    logger.manager._clear_cache()  # type: ignore[attr-defined]


def test_audit_records_go_to_their_own_file_which_may_be_moved_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, audit_logger: logging.Logger
) -> None:
    path = tmp_path / "audit.jsonl"
    open_alone(Log(level="error", audit_file=str(path)), monkeypatch)
    audit_logger.info("%s", "first", extra={"audit": {"name": "\udcff"}})
    path.rename(tmp_path / "audit.1")
    audit_logger.info("%s", "second", extra={"audit": {"name": "b"}})
    assert json.loads((tmp_path / "audit.1").read_text())["name"] == "\udcff"
    assert json.loads(path.read_text())["name"] == "b"
    assert capsys.readouterr().err == ""


def test_an_audit_file_that_cannot_be_written_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, audit_logger: logging.Logger
) -> None:
    with pytest.raises(StartupError, match=r"log\.audit_file: .*/none/audit cannot be written \(No such file"):
        open_alone(Log(audit_file=str(tmp_path / "none" / "audit")), monkeypatch)


@pytest.mark.parametrize("formatter", [TextFormatter, JsonFormatter])
def test_no_control_character_reaches_a_line(formatter: type[logging.Formatter]) -> None:
    line = formatter().format(record("a\x7fb\x85c\u202ed\ne\udcff"))
    assert line.replace("\udcff", "").isprintable()


def test_text_is_the_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    open_alone(Log(), monkeypatch)
    logging.getLogger("trimq.somewhere").debug("not shown")
    logging.getLogger("trimq.somewhere").info("shown")
    assert capsys.readouterr().err.endswith(" INFO trimq.somewhere: shown\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x\n2026-11-17 23:59:59,999 CRITICAL trimq: forged", "x\\n2026-11-17 23:59:59,999 CRITICAL trimq: forged"),
        ("\x1b[31mred\r\x00\x7f\x9b\u2028", "\\x1b[31mred\\r\\x00\\x7f\\x9b\\u2028"),
        ("übung 任务", "übung 任务"),
    ],
)
def test_text_of_a_client_cannot_forge_a_line(text: str, shown: str) -> None:
    line = TextFormatter().format(record("topic %s", text))
    assert line.endswith(f" WARNING trimq.somewhere: topic {shown}")
    assert line.isprintable()


def test_lines_of_a_traceback_are_indented() -> None:
    try:
        raise LookupError("gone\n2026-11-17 23:59:59,999 CRITICAL trimq: forged\x1b")
    except LookupError:
        first, *others = TextFormatter().format(record("failed", error=True)).split("\n")
    assert first.endswith("failed")
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_repeated_messages_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogHandler(3)
    for number in range(4000):
        made = record("message %d is tried again", number)
        made.created += number / 1000
        handler.emit(made)
    handler.emit(record("something else"))
    assert len(capsys.readouterr().err.splitlines()) == 4
    later = record("something else")
    later.created += 61
    handler.emit(later)
    assert capsys.readouterr().err.splitlines() == [
        "3997 more messages like this were left out (log.repeats_per_minute): message %d is tried again",
        "something else",
    ]


def test_messages_left_out_are_told_at_the_end_too(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogHandler(1)
    for _ in range(3):
        handler.emit(record("again"))
    handler.close()
    assert capsys.readouterr().err.splitlines()[1:] == [
        "2 more messages like this were left out (log.repeats_per_minute): again"
    ]


def test_the_number_of_kinds_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogHandler(1)
    for number in range(5000):
        handler.emit(record(f"kind {number}"))
    assert len(handler._windows) <= 1000
    assert len(capsys.readouterr().err.splitlines()) == 5000


def test_without_a_limit_every_message_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogHandler(0)
    for _ in range(100):
        handler.emit(record("again"))
    assert len(capsys.readouterr().err.splitlines()) == 100
