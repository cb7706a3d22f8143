"""Table of messages that wait to be sent. Knows no broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from trimq.client.databases import Cursor, Database, check_id, check_name
from trimq.client.errors import BadMessage
from trimq.client.messages import Message
from trimq.clock import Timeline, system_clock

_WAITING, _GIVEN_UP = 0, 1
_LONGEST_REASON = 255


class _Labels(msgspec.Struct):
    """Parts of a message that no query asks for."""

    tag: str | None = None
    keys: list[str] = []
    headers: dict[str, str] = {}


_read_labels = msgspec.json.Decoder(_Labels).decode


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """Message in the outbox. `tries`: sends that failed."""

    number: int
    id: str
    topic: str
    message: Message
    tries: int


Compensate = Callable[[Cursor, OutboxRow], object]


class Outbox:
    """`outbox.add(cursor, "orders", Message(...))` stores a message in the transaction of `cursor`; a `Relay` sends it
    after the commit. Messages of one topic and key are sent in the order in which they were added."""

    def __init__(self, database: Database, table: str = "outbox", timeline: Timeline | None = None) -> None:
        self.database = database
        self._table = check_name(table)
        self._timeline = timeline or system_clock().message

    def prepare(self) -> None:
        """Creates the table if it does not exist."""
        dialect = self.database.dialect
        self.database.create_table(
            self._table,
            f"number {dialect.serial_type}, "
            f"id {dialect.id_type} not null, topic {dialect.id_type} not null, msg_key {dialect.id_type}, "
            f"body {dialect.bytes_type} not null, labels {dialect.bytes_type} not null, "
            f"state {dialect.number_type} not null, tries {dialect.number_type} not null, "
            f"due_ms {dialect.number_type} not null, claimed_by {dialect.id_type}, reason {dialect.id_type}",
        )

    def add(self, cursor: Cursor | Any, topic: str, message: Message) -> str:
        """Stores a message, and returns its id. `cursor` is one of `Database.transaction`, or of the application's own
        connection."""
        if not isinstance(cursor, Cursor):
            cursor = Cursor(cursor, self.database.dialect)
        if not isinstance(message.body, bytes) or not message.body:
            raise BadMessage("the body must be bytes, and not empty: the relay does not serialise")
        if message.delay is not None or message.deliver_at is not None or message.level is not None or message.ttl:
            raise BadMessage("an outbox sends when it can: delay, deliver_at, level and ttl cannot be kept")
        id = message.id or uuid.uuid4().hex.upper()
        labels = _Labels(message.tag, list(message.keys), dict(message.headers))
        cursor.execute(
            f"insert into {self._table} (id, topic, msg_key, body, labels, state, tries, due_ms) "
            "values (?, ?, ?, ?, ?, ?, ?, ?)",
            id, check_id(topic), None if message.key is None else check_id(message.key), message.body,
            msgspec.json.encode(labels), _WAITING, 0, 0,
        )  # fmt: skip
        return id

    def claim(self, owner: str, limit: int, claim_ms: int) -> list[OutboxRow]:
        """Takes rows that are due for `claim_ms`: of each topic and key the oldest one."""
        now_ms, table = self._timeline.now_ms(), self._table
        with self.database.transaction() as cursor:
            found = cursor.rows(
                f"select number, id, topic, msg_key, body, labels, tries from {table} o "
                f"where state = ? and due_ms <= ? and (msg_key is null or not exists (select 1 from {table} p "
                "where p.topic = o.topic and p.msg_key = o.msg_key and p.number < o.number and p.state = ?)) "
                f"order by number limit {limit:d} {cursor.dialect.skip_locked}",
                _WAITING, now_ms, _WAITING,
            )  # fmt: skip
            rows = [_read_row(values) for values in found]
            for row in rows:
                cursor.execute(
                    f"update {table} set claimed_by = ?, due_ms = ? where number = ?",
                    owner, now_ms + claim_ms, row.number,
                )  # fmt: skip
        return rows

    def sent(self, owner: str, row: OutboxRow) -> None:
        """Removes a row that was sent, unless another relay has taken it meanwhile."""
        with self.database.transaction() as cursor:
            cursor.execute(f"delete from {self._table} where number = ? and claimed_by = ?", row.number, owner)

    def not_sent(self, owner: str, row: OutboxRow, reason: str, after_ms: int) -> None:
        """Makes a row due again after a while."""
        with self.database.transaction() as cursor:
            cursor.execute(
                f"update {self._table} set tries = tries + 1, due_ms = ?, claimed_by = null, reason = ? "
                "where number = ? and claimed_by = ?",
                self._timeline.now_ms() + after_ms, reason[:_LONGEST_REASON], row.number, owner,
            )  # fmt: skip

    def give_up(self, owner: str, row: OutboxRow, reason: str, compensate: Compensate | None) -> bool:
        """Sends a row no more, and lets `compensate` undo its cause in the same transaction. Returns False if another
        relay has taken the row meanwhile."""
        with self.database.transaction() as cursor:
            changed = cursor.execute(
                f"update {self._table} set state = ?, tries = tries + 1, claimed_by = null, reason = ? "
                "where number = ? and claimed_by = ?",
                _GIVEN_UP, reason[:_LONGEST_REASON], row.number, owner,
            )  # fmt: skip
            if not changed:
                return False
            if compensate is not None:
                compensate(cursor, row)
        return True

    def counts(self) -> Mapping[str, int]:
        """Returns how many rows wait, and how many were given up."""
        with self.database.transaction() as cursor:
            found = dict(cursor.rows(f"select state, count(*) from {self._table} group by state"))
        return {"waiting": found.get(_WAITING, 0), "given up": found.get(_GIVEN_UP, 0)}


def _read_row(values: tuple[Any, ...]) -> OutboxRow:
    number, id, topic, key, body, labels, tries = values
    read = _read_labels(bytes(labels))
    message = Message(bytes(body), None if key is None else _text(key), read.tag, read.keys, read.headers, id=_text(id))
    return OutboxRow(number, _text(id), _text(topic), message, tries)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
