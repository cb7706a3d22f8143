"""Each row of docs/fidelity.md is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trimq.formats.amqp_content.content import Content
from trimq.formats.amqp_content.field_tables import FieldTable
from trimq.formats.amqp_content.property_list import read_properties, write_properties
from trimq.formats.crossing import amqp, kafka, rocketmq
from trimq.formats.crossing.neutral import ACTING, Neutral
from trimq.formats.crossing.rocketmq import UnitFields
from trimq.model import Record

DOCUMENT = Path(__file__).parents[3] / "docs" / "fidelity.md"
QUEUE = "orders"
TIME_MS = 1_700_000_000_000


class Cell(NamedTuple):
    """One cell of a table: a field of a protocol, its name, if it has one, and its value; None if it is absent."""

    field: str
    name: str
    value: str | None


def read_cell(text: str) -> Cell:
    match = re.fullmatch(r"(value|key|body|routing key) (?:`([^`]*)`|(null|empty))", text)
    if match:
        return Cell(match[1], "", match[2])
    match = re.fullmatch(r"(header|property) `([^`]+)`(?:=(.*)| absent)", text)
    if match:
        return Cell(match[1], match[2], match[3])
    match = re.fullmatch(r"(timestamp|born time) (\d+)", text)
    assert match, f"not a cell of these tables: {text}"
    return Cell(match[1], "", match[2])


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Yields of each row the protocol of the message, that of the view, and both cells."""
    head: list[str] = []
    for line in DOCUMENT.read_text().splitlines():
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = cells
        elif not cells[0].startswith("-"):
            for column in (1, 2):
                yield head[0], head[column], cells[0], cells[column]


def message_of(protocol: str, cell: Cell) -> Neutral:
    number = int(cell.value) if cell.value is not None and cell.value.isdigit() else TIME_MS
    if protocol == "Kafka":
        value = None if cell.field == "value" and cell.value is None else b"body"
        key = cell.value.encode() if cell.field == "key" and cell.value else None
        headers = ((cell.name, (cell.value or "").encode()),) if cell.field == "header" else ()
        time_ms = number if cell.field == "timestamp" else TIME_MS
        return kafka.to_neutral(Record(value, key, headers, time_ms), is_stored=False)
    if protocol == "RocketMQ":
        properties = {cell.name: cell.value} if cell.field == "property" and cell.value is not None else {}
        return rocketmq.sent_to_neutral(
            UnitFields(b"body", properties, number if cell.field == "born time" else TIME_MS)
        )
    table: FieldTable = {cell.name: cell.value} if cell.field == "header" else {}
    given: dict[str, Any] = {"headers": table} if table else {}
    if cell.field == "property":
        given[cell.name] = number if cell.name in ("priority", "timestamp") else cell.value
    key = (cell.value or "").encode() if cell.field == "routing key" else QUEUE.encode()
    return amqp.to_neutral(Content(b"", key, write_properties(**given), b"body", TIME_MS), QUEUE, is_stored=False)


def shown(protocol: str, message: Neutral, cell: Cell) -> str | None:
    """What a client of this protocol sees in the place of the cell."""
    if protocol == "Kafka":
        record = kafka.from_neutral(message)
        found = {"value": record.body, "key": record.key, "header": dict(record.headers).get(cell.name)}
        if cell.field == "timestamp":
            return str(record.timestamp_ms)
        raw = found[cell.field]
        return None if raw is None else raw.decode()
    if protocol == "RocketMQ":
        unit = rocketmq.from_neutral(message)
        if cell.field == "property":
            return unit.properties.get(cell.name)
        return str(unit.born_ms) if cell.field == "born time" else bytes(unit.body).decode() or None
    content = amqp.from_neutral(message, QUEUE)
    properties = read_properties(content.header)
    headers: Any = properties.get("headers", {})
    if cell.field in ("header", "property"):
        value = (headers if cell.field == "header" else properties).get(cell.name)
        return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return (content.key if cell.field == "routing key" else content.body).decode()


@pytest.mark.parametrize(("protocol", "face", "given", "seen"), list(rows()))
def test_a_row_of_the_table_is_true(protocol: str, face: str, given: str, seen: str) -> None:
    cell = read_cell(seen)
    assert shown(face, message_of(protocol, read_cell(given)), cell) == cell.value


def test_the_tables_cover_every_pair_of_protocols() -> None:
    assert {(protocol, face) for protocol, face, _, _ in rows()} == {
        (protocol, face)
        for protocol in ("Kafka", "RocketMQ", "AMQP")
        for face in ("Kafka", "RocketMQ", "AMQP")
        if protocol != face
    }


def test_the_headers_that_act_are_listed() -> None:
    listed = DOCUMENT.read_text().partition("## Headers that act")[2].partition("Headers with other")[0]
    assert set(re.findall(r"`([a-z]+\.[A-Za-z_-]+)`", listed)) == ACTING["kafka"]
