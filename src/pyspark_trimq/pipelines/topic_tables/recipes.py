"""Recipes of `aggregate` and `join`, read from a short TOML or SQL file and checked. Error texts name the field."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pyspark_trimq.pipelines.runner.durations import parse_duration
from trimq.errors import StartupError

T = TypeVar("T")

FORMATS = ("json", "text", "bytes")


@dataclasses.dataclass(frozen=True)
class Input:
    """Topic as a table. `columns` are the columns of its JSON messages, as in `CREATE TABLE`. `late` is how long after
    the newest message an older one still counts. `time` is the column with the event time; `timestamp` is that of the
    message."""

    name: str
    topic: str
    columns: str = ""
    format: str = "json"
    time: str = "timestamp"
    late: str = "1 minute"


@dataclasses.dataclass(frozen=True)
class Aggregation:
    source: Input
    to: str
    window: str
    slide: str
    group_by: tuple[str, ...]
    select: tuple[str, ...]
    where: str = ""


@dataclasses.dataclass(frozen=True)
class Joining:
    left: Input
    right: Input
    to: str
    on: str
    within: str
    select: tuple[str, ...]
    kind: str = "inner"


@dataclasses.dataclass(frozen=True)
class Query:
    """SELECT over inputs, from a .sql file."""

    inputs: tuple[Input, ...]
    to: str
    sql: str


def read_aggregation(path: Path) -> Aggregation | Query:
    """Raises StartupError if the file does not exist or is invalid."""
    return _read(path, _aggregation)


def read_joining(path: Path) -> Joining | Query:
    """Raises StartupError if the file does not exist or is invalid."""
    return _read(path, _joining)


def _read(path: Path, parse: Callable[[_Fields], T]) -> T | Query:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StartupError(f"{path}: {error.strerror}") from None
    if path.suffix == ".sql":
        return _query(text, str(path))
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StartupError(f"{path}: {error}") from None
    return parse(_Fields(given, str(path)))


class _Fields:
    """Fields of a TOML table. Each is read once; fields that were never read are unknown and raise StartupError in
    `end`."""

    def __init__(self, given: Mapping[str, Any], place: str) -> None:
        self._given = dict(given)
        self._place = place

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given.pop(name, default)
        if not isinstance(value, str) or (default is None and not value):
            raise StartupError(f"{self._place}: {name} must be a string")
        return value

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._given.pop(name, default)
        if (
            not isinstance(value, list | tuple)
            or not all(isinstance(each, str) for each in value)
            or (default is None and not value)
        ):
            raise StartupError(f"{self._place}: {name} must be a list of strings")
        return tuple(value)

    def span(self, name: str, default: str | None = None) -> str:
        value = self.text(name, default)
        if value:
            parse_duration(value)
        return value

    def inner(self, name: str) -> _Fields:
        value = self._given.pop(name, None)
        if not isinstance(value, dict):
            raise StartupError(f"{self._place}: the table [{name}] is missing")
        return _Fields(value, f"{self._place}: [{name}]")

    def end(self) -> None:
        if self._given:
            raise StartupError(f"{self._place}: the field {next(iter(self._given))} is unknown")


def _input(fields: _Fields, name: str) -> Input:
    found = Input(
        name,
        fields.text("topic"),
        fields.text("columns", ""),
        fields.text("format", "json"),
        fields.text("time", "timestamp"),
        fields.span("late", "1 minute"),
    )
    fields.end()
    return _checked(found, name)


def _checked(found: Input, place: str) -> Input:
    if found.format not in FORMATS:
        raise StartupError(f"{place}: format must be one of {', '.join(FORMATS)}, not {found.format!r}")
    if (found.format == "json") != bool(found.columns):
        raise StartupError(f'{place}: columns are for the format json, and required there, as in "page STRING, ms INT"')
    return found


def _aggregation(fields: _Fields) -> Aggregation:
    found = Aggregation(
        _input(fields.inner("from"), "from"),
        fields.text("to"),
        fields.span("window"),
        fields.span("slide", ""),
        fields.texts("group_by", ()),
        fields.texts("select"),
        fields.text("where", ""),
    )
    fields.end()
    return found


def _joining(fields: _Fields) -> Joining:
    found = Joining(
        _input(fields.inner("left"), "left"),
        _input(fields.inner("right"), "right"),
        fields.text("to"),
        fields.text("on"),
        fields.span("within"),
        fields.texts("select"),
        fields.text("kind", "inner"),
    )
    if found.kind not in ("inner", "left"):
        raise StartupError(f"kind must be inner or left, not {found.kind!r}")
    fields.end()
    return found


# Example:
# -- to: counts
# -- from views: page STRING, ms INT; late 1 minute; topic page-views
_TO = re.compile(r"^\s*--\s*to\s*:\s*(\S+)\s*$", re.MULTILINE)
_FROM = re.compile(r"^\s*--\s*from\s+(\w+)\s*:\s*(.*?)\s*$", re.MULTILINE)


def _query(text: str, place: str) -> Query:
    targets = _TO.findall(text)
    if len(targets) != 1:
        raise StartupError(f"{place}: exactly one line must name the target topic: -- to: TOPIC")
    inputs = []
    for name, declaration in _FROM.findall(text):
        columns, *clauses = [part.strip() for part in declaration.split(";")]
        options = {clause.partition(" ")[0]: clause.partition(" ")[2].strip() for clause in clauses if clause}
        unknown = sorted(set(options) - {"late", "topic", "time", "format"})
        if unknown:
            raise StartupError(f"{place}: unknown option {unknown[0]} in the line of {name}")
        late = options.get("late", "1 minute")
        parse_duration(late)
        format = options.get("format", "json")
        found = Input(name, options.get("topic", name), columns, format, options.get("time", "timestamp"), late)
        inputs.append(_checked(found, f"{place}: {name}"))
    if not inputs:
        raise StartupError(
            f"{place}: a line must declare the topic to read: -- from TABLE: COLUMN TYPE, ...; late 1 minute"
        )
    sql = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip().removesuffix(";")
    if not sql:
        raise StartupError(f"{place}: the file has no SELECT")
    return Query(tuple(inputs), targets[0], sql)
