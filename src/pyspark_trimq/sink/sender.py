"""Sends record batches to topics through the Kafka port: in one transaction together with a token that identifies the
batch (exactly once), or without a transaction (at least once). Knows the Kafka client, nothing of Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pyspark_trimq.broker.client import TOKEN_TOPIC
from pyspark_trimq.mistakes import Mistake, Unreachable
from trimq.clock import monotonic_seconds

_TOKEN_PARTITIONS = 32
SINK_PREFIX = "spark-sink-"  # of the groups that hold tokens; they read no messages

_TIMEOUT_S = 60
_DELETE_TIMEOUT_S = 10

# Default of Kafka's broker setting transaction.max.timeout.ms. Long, because rows are sent while Spark computes them.
_TRANSACTION_MS = 900_000
_TRANSACTION_SETTING = "transaction.timeout.ms"

# The client's own limit is 1 MB before compression; lift it, as the broker checks the size. Batches stay at 1 MB, the
# default limit of a topic.
_LARGE_RECORDS: dict[str, object] = {
    "message.max.bytes": 1_000_000_000,
    "batch.size": 1_000_000,
}

# Without a logger librdkafka writes to stderr. Errors that matter are raised as exceptions.
_QUIET_LOGGER = logging.getLogger("pyspark_trimq.librdkafka")
_QUIET_LOGGER.addHandler(logging.NullHandler())
_QUIET_LOGGER.propagate = False


class Token(NamedTuple):
    """Identifies a unit that is written once: the part of one task in a batch of a query, or in a `df.write`."""

    writer: str
    part: int
    batch: int

    @property
    def transactional_id(self) -> str:
        return f"spark-{self.writer}-{self.part}"

    @property
    def group(self) -> str:
        """Name of the group that holds the token. The token topic has 32 partitions, so every 32 tasks share a
        group."""
        more = self.part // _TOKEN_PARTITIONS
        return f"{SINK_PREFIX}{self.writer}-{more}" if more else f"{SINK_PREFIX}{self.writer}"

    @property
    def offset_to_commit(self) -> TopicPartition:
        """The token as a committed offset: the partition is the task, the offset is the next batch."""
        return TopicPartition(TOKEN_TOPIC, self.part % _TOKEN_PARTITIONS, self.batch + 1)


class SendResult(NamedTuple):
    rows: int
    was_sent_before: bool


class Target(NamedTuple):
    """Broker and default topic. `topic` is for rows without a topic of their own."""

    address: str
    topic: str | None
    compression: str
    client: Mapping[str, str]

    def settings(self, more: Mapping[str, object]) -> dict[str, Any]:
        return {"bootstrap.servers": self.address, **more, **self.client, "logger": _QUIET_LOGGER}

    def transaction_ms(self) -> int:
        """Returns the transaction timeout in ms. Raises Mistake if the option is not a number."""
        given = self.client.get(_TRANSACTION_SETTING, str(_TRANSACTION_MS))
        if not given.isdigit():
            raise Mistake(f"the option kafka.{_TRANSACTION_SETTING} is {given!r}: it must be a number of milliseconds")
        return int(given)


def send_exactly_once(target: Target, token: Token, batches: Iterable[pa.RecordBatch]) -> SendResult:
    """Sends the rows and commits the token, both or neither. Sends nothing if the token was committed before."""
    with _kafka_errors_as_unreachable(target):
        _make_token_topic(target)
        sender = _Sender(target, _transaction_settings(target, token))
        producer = sender.producer
        consumer_settings = {"group.id": token.group, "isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = Consumer(target.settings(consumer_settings))
        try:
            # Ends the transaction of an earlier attempt: afterwards its token is either committed or never will be.
            producer.init_transactions(_TIMEOUT_S)
            if _is_committed(consumer, token):
                return SendResult(0, True)
            producer.begin_transaction()
            began = monotonic_seconds()
            try:
                rows = sender.send(batches)
                producer.send_offsets_to_transaction(
                    [token.offset_to_commit], consumer.consumer_group_metadata(), _TIMEOUT_S
                )
                producer.commit_transaction(_TIMEOUT_S)
            except BaseException as error:
                failures = sender.failures[:1]  # copied before the abort, which adds more
                with suppress(KafkaException):  # raise the first failure, not that of the abort
                    producer.abort_transaction(_TIMEOUT_S)
                if isinstance(error, KafkaException):
                    _check_transaction_time(target, monotonic_seconds() - began)
                    if failures:  # the error of the commit does not name the cause
                        raise KafkaException(failures[0]) from error
                raise
            return SendResult(rows, False)
        finally:
            consumer.close()


def _transaction_settings(target: Target, token: Token) -> dict[str, object]:
    max_ms = target.transaction_ms()
    return {
        "transactional.id": token.transactional_id,
        _TRANSACTION_SETTING: max_ms,
        "message.timeout.ms": min(max_ms, _TIMEOUT_S * 1000),
    }


def _check_transaction_time(target: Target, open_s: float) -> None:
    """Raises Unreachable if the transaction was open longer than its timeout, so that the broker aborted it."""
    if open_s * 1000 >= (max_ms := target.transaction_ms()):
        raise Unreachable(
            f"the broker at {target.address} aborted a task's transaction after {open_s:.0f} s, its timeout is "
            f"{max_ms / 1000:g} s: give each task fewer rows, or set the option kafka.{_TRANSACTION_SETTING}"
        )


def send_at_least_once(target: Target, batches: Iterable[pa.RecordBatch]) -> SendResult:
    """Sends each row once. If the task or its worker fails, Spark repeats the task and rows may be duplicated."""
    with _kafka_errors_as_unreachable(target):
        sender = _Sender(target, {})
        rows = sender.send(batches)
        left = sender.producer.flush(_TIMEOUT_S)
        sender.check()
        if left:
            raise Unreachable(f"the broker at {target.address} did not accept {left} rows within {_TIMEOUT_S} s")
        return SendResult(rows, False)


@contextmanager
def _kafka_errors_as_unreachable(target: Target) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        text = cause.str() if isinstance(cause, KafkaError) else str(error)
        if isinstance(cause, KafkaError) and cause.code() == KafkaError._STATE:
            raise  # a bug in this module
        if isinstance(cause, KafkaError) and cause.code() in _FENCED:
            text = f"another attempt of the same task took over, or its transaction was open for too long ({text})"
        if isinstance(cause, KafkaError) and cause.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            text = f"the transaction timeout exceeds its limit, set kafka.{_TRANSACTION_SETTING} ({text})"
        raise Unreachable(f"the broker at {target.address} did not accept the rows: {text}") from error


_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class _Sender:
    def __init__(self, target: Target, more: Mapping[str, object]) -> None:
        self._topic = target.topic
        self.failures: list[KafkaError] = []
        settings = {
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # equals the Java client: a key always has the same partition
            "linger.ms": 20,
            **_LARGE_RECORDS,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 128 << 10,
            "delivery.report.only.error": True,
            "compression.type": target.compression,
            "on_delivery": self._delivered,
        }
        self.producer = Producer(target.settings({**settings, **more}))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)

    def check(self) -> None:
        if self.failures:
            raise KafkaException(self.failures[0])

    def send(self, batches: Iterable[pa.RecordBatch]) -> int:
        rows = 0
        for batch in batches:
            for arguments in _messages(batch, self._topic):
                self._put(arguments)
            rows += batch.num_rows
            self.producer.poll(0)
            self.check()
        return rows

    def _put(self, arguments: dict[str, Any]) -> None:
        while True:
            try:
                self.producer.produce(**arguments)
                return
            except BufferError:  # the send buffer is full: wait for the broker
                if not len(self.producer):
                    size = len(arguments.get("value") or b"")
                    raise Mistake(
                        f"a record of {size} bytes does not fit into the send buffer: "
                        "increase the option kafka.queue.buffering.max.kbytes"
                    ) from None
                self.producer.poll(0.1)
                self.check()


def _messages(batch: pa.RecordBatch, topic: str | None) -> Iterator[dict[str, Any]]:
    """Yields the arguments of `produce` for each row. A null counts as a missing column."""
    names = batch.schema.names
    columns = {name: _values(name, batch.column(name)) for name in names}
    topics = columns.pop("topic", None)
    for index, row in enumerate(zip(*columns.values(), strict=True)):
        arguments = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        found = topic if topics is None or topics[index] is None else topics[index]
        if found is None:
            raise Mistake("a row has no topic: its column 'topic' is null, and the option topic is not given")
        yield {"topic": found, **arguments}


def _values(name: str, column: pa.Array) -> list[Any]:
    if name == "timestamp":
        column = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    if name == "partition" and any(number is not None and number < 0 for number in values):
        raise Mistake("a row has a negative partition: give a partition of the topic, or null for any")
    return [_pairs(headers) for headers in values] if name == "headers" else values


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    if headers and any(header is None or header["key"] is None for header in headers):
        raise Mistake("a row has a header without a key, which Kafka does not allow: leave it out")
    return [(header["key"], header["value"]) for header in headers] if headers else None


# -- tokens


def _is_committed(consumer: Consumer, token: Token) -> bool:
    (found,) = consumer.committed([TopicPartition(TOKEN_TOPIC, token.offset_to_commit.partition)], _TIMEOUT_S)
    if found.error is not None:
        raise KafkaException(found.error)
    return bool(found.offset >= token.offset_to_commit.offset)


_has_token_topic: set[str] = set()


def _make_token_topic(target: Target) -> None:
    """Creates the token topic if needed; checks once per process, as Spark reuses workers."""
    if target.address in _has_token_topic:
        return
    admin = AdminClient(target.settings({}))
    if TOKEN_TOPIC not in admin.list_topics(timeout=_TIMEOUT_S).topics:
        made = admin.create_topics([NewTopic(TOKEN_TOPIC, _TOKEN_PARTITIONS)])[TOKEN_TOPIC]
        try:
            made.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    _has_token_topic.add(target.address)


def delete_tokens(target: Target, groups: Iterable[str]) -> None:
    """Deletes tokens that are no longer needed. A token that cannot be deleted now expires later."""
    with _kafka_errors_as_unreachable(target):
        admin = AdminClient(target.settings({}))  # must stay alive until the last response
        for group, done in admin.delete_consumer_groups(list(groups), request_timeout=_DELETE_TIMEOUT_S).items():
            try:
                done.result(_DELETE_TIMEOUT_S)
            except (KafkaException, TimeoutError) as error:
                _QUIET_LOGGER.info("group %s: tokens not deleted, they will expire (%s)", group, error)
