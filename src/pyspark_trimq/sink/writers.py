"""Stream and batch writers, `df.writeStream` and `df.write` with `format("trimq")`: each task sends its rows in one
transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_trimq.broker.client import find_kafka_address
from pyspark_trimq.broker.encryption import client_settings
from pyspark_trimq.broker.kafka_client import check_login
from pyspark_trimq.mistakes import Mistake, Unreachable
from pyspark_trimq.sink.options import SinkOptions, check_columns, read_sink_options

if TYPE_CHECKING:
    from pyspark_trimq.sink.sender import Target

# Local properties that Spark sets for tasks of a streaming query; unchanged after a restart.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"

# Kafka client settings for login mechanisms that `check_login` does not know.
_OWN_SECURITY_SETTINGS = {"security.protocol", "sasl.mechanism", "sasl.mechanisms"}


@dataclass
class TaskCommit(WriterCommitMessage):
    """Result of a task. `was_sent_before`: an earlier attempt sent the rows, but ended before it could report. `group`
    holds its token."""

    rows: int
    was_sent_before: bool
    group: str


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, given: Mapping[str, str]) -> None:
        self._options = read_sink_options(given)
        if self._options.write_id is not None:
            raise Mistake("the option writeId is for df.write only: a streaming query has its own id")
        check_columns(schema, self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        query, batch = _local_property(_QUERY), _local_property(_BATCH)
        return _write(self._options, query, int(batch), iterator)


class BatchWriter(DataSourceArrowWriter):
    """A repeated task sends nothing twice. With a `writeId` a repeated write, with the same rows in the same
    partitions, sends nothing twice either."""

    def __init__(self, schema: StructType, given: Mapping[str, str], overwrite: bool) -> None:
        self._options = read_sink_options(given)
        if overwrite:
            raise Mistake("messages cannot be overwritten: use mode('append')")
        check_columns(schema, self._options)
        self._id = self._options.write_id or uuid.uuid4().hex
        _address(self._options, waits_for_broker=False)  # fails early if the address is wrong

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        return _write(self._options, self._writer, 0, iterator)

    @property
    def _writer(self) -> str:
        return f"write-{self._id}"

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._delete_tokens(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._delete_tokens(messages)

    def _delete_tokens(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Deletes the tokens of a write without an id, which cannot be repeated. Ignores errors: the write is over, and
        tokens expire."""
        from pyspark_trimq.sink.sender import delete_tokens

        groups = {each.group for each in messages if isinstance(each, TaskCommit) and each.group}
        if groups and self._options.write_id is None:
            with suppress(Mistake, Unreachable):
                delete_tokens(_target(self._options), sorted(groups))


def delete_write_tokens(given: Mapping[str, str]) -> None:
    """Deletes the tokens of a one-task write with an id that will not be repeated."""
    from pyspark_trimq.sink.sender import Token, delete_tokens

    options = read_sink_options(given)
    delete_tokens(_target(options), [Token(f"write-{options.write_id}", 0, 0).group])


def _write(options: SinkOptions, writer: str, batch: int, rows: Iterator[pa.RecordBatch]) -> TaskCommit:
    from pyspark_trimq.sink.sender import Token, send_at_least_once, send_exactly_once

    target = _target(options)
    if (options.login or options.encryption) and not _OWN_SECURITY_SETTINGS & set(options.client):
        check_login(target.address, options.login, options.encryption)
    if not options.is_exactly_once:
        return TaskCommit(*send_at_least_once(target, rows), "")
    token = Token(writer, _context().partitionId(), batch)
    return TaskCommit(*send_exactly_once(target, token, rows), token.group)


def _target(options: SinkOptions) -> Target:
    """Retries while the broker restarts."""
    from pyspark_trimq.sink.sender import Target

    settings = client_settings(options.login, options.encryption, options.client)
    return Target(_address(options, waits_for_broker=True), options.topic, options.compression, settings)


def _address(options: SinkOptions, waits_for_broker: bool) -> str:
    return find_kafka_address(options.bootstrap, options.login, waits_for_broker, options.encryption)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "called by a task"
    return context


def _local_property(name: str) -> str:
    found = _context().getLocalProperty(name)
    if found is None:
        raise Mistake(f"Spark does not set {name}: exactly-once delivery needs Spark 4.3")
    return found
