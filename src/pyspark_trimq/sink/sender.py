"""Sends record batches to topics through the Kafka port: in one transaction with a token that says what was sent, or
plainly. Knows the Kafka client, nothing of Spark."""

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
SINK_PREFIX = "spark-sink-"  # of the names of such groups, which read nothing

_TIMEOUT_S = 60
_DELETE_TIMEOUT_S = 10

# As long as Kafka's brokers let a transaction be open, unless they are told otherwise: rows are sent as they come.
_TRANSACTION_MS = 900_000
_TRANSACTION_SETTING = "transaction.timeout.ms"

# The client would refuse by itself what is larger than a megabyte before it is compressed: the broker knows better.
# Batches stay as small as they were, for a topic takes no more than a megabyte at once unless it is told to.
_LARGE_RECORDS: dict[str, object] = {
    "message.max.bytes": 1_000_000_000,
    "batch.size": 1_000_000,
}

# librdkafka would write to the terminal; what matters comes as an exception.
_QUIET_LOGGER = logging.getLogger("pyspark_trimq.librdkafka")
_QUIET_LOGGER.addHandler(logging.NullHandler())
_QUIET_LOGGER.propagate = False


class Token(NamedTuple):
    """What is written once: a batch of a query, or a whole write, by the task that writes a part of it."""

    writer: str
    part: int
    batch: int

    @property
    def transactional_id(self) -> str:
        return f"spark-{self.writer}-{self.part}"

    @property
    def group(self) -> str:
        """One for most writers: a task whose number has no partition of its own there goes to another."""
        more = self.part // _TOKEN_PARTITIONS
        return f"{SINK_PREFIX}{self.writer}-{more}" if more else f"{SINK_PREFIX}{self.writer}"

    @property
    def offset_to_commit(self) -> TopicPartition:
        """Where it stands once it is committed: it says which batch comes next."""
        return TopicPartition(TOKEN_TOPIC, self.part % _TOKEN_PARTITIONS, self.batch + 1)


class SendResult(NamedTuple):
    rows: int
    was_sent_before: bool


class Target(NamedTuple):
    """Where to. `topic`: of rows that name none."""

    address: str
    topic: str | None
    compression: str
    client: Mapping[str, str]

    def settings(self, more: Mapping[str, object]) -> dict[str, Any]:
        return {"bootstrap.servers": self.address, **more, **self.client, "logger": _QUIET_LOGGER}

    def transaction_ms(self) -> int:
        """How long a task's transaction may be open."""
        given = self.client.get(_TRANSACTION_SETTING, str(_TRANSACTION_MS))
        if not given.isdigit():
            raise Mistake(f"the option kafka.{_TRANSACTION_SETTING} is {given!r}: it must be a number of milliseconds")
        return int(given)


def send_exactly_once(target: Target, token: Token, batches: Iterable[pa.RecordBatch]) -> SendResult:
    """Send the rows and commit the token, both or neither. If the token is there already nothing is sent."""
    with _kafka_errors_as_unreachable(target):
        _make_token_topic(target)
        sender = _Sender(target, _transaction_settings(target, token))
        producer = sender.producer
        consumer_settings = {"group.id": token.group, "isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = Consumer(target.settings(consumer_settings))
        try:
            # Ends what an earlier try left open: after this its token is there for good, or never will be.
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
                told = sender.failures[:1]  # before the end, which makes more of them
                with suppress(KafkaException):  # the first failure is the one to tell of
                    producer.abort_transaction(_TIMEOUT_S)
                if isinstance(error, KafkaException):
                    _check_transaction_time(target, monotonic_seconds() - began)
                    if told:  # a commit only says that something failed before
                        raise KafkaException(told[0]) from error
                raise
            return SendResult(rows, False)
        finally:
            consumer.close()


def _transaction_settings(target: Target, token: Token) -> dict[str, object]:
    most_ms = target.transaction_ms()
    return {
        "transactional.id": token.transactional_id,
        _TRANSACTION_SETTING: most_ms,
        "message.timeout.ms": min(most_ms, _TIMEOUT_S * 1000),
    }


def _check_transaction_time(target: Target, open_s: float) -> None:
    """Unreachable: the transaction was open for so long that the broker has ended it."""
    if open_s * 1000 >= (most_ms := target.transaction_ms()):
        raise Unreachable(
            f"the broker at {target.address} has ended a task's transaction, which was open for {open_s:.0f} s and may "
            f"be for {most_ms / 1000:g} s: give each task fewer rows, or set the option kafka.{_TRANSACTION_SETTING}"
        )


def send_at_least_once(target: Target, batches: Iterable[pa.RecordBatch]) -> SendResult:
    """Each row once, unless a task or its worker fails: then its rows may be sent again."""
    with _kafka_errors_as_unreachable(target):
        sender = _Sender(target, {})
        rows = sender.send(batches)
        left = sender.producer.flush(_TIMEOUT_S)
        sender.check()
        if left:
            raise Unreachable(f"the broker at {target.address} did not take {left} rows within {_TIMEOUT_S} s")
        return SendResult(rows, False)


@contextmanager
def _kafka_errors_as_unreachable(target: Target) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        told = error.args[0]
        text = told.str() if isinstance(told, KafkaError) else str(error)
        if isinstance(told, KafkaError) and told.code() == KafkaError._STATE:
            raise  # a mistake of ours
        if isinstance(told, KafkaError) and told.code() in _FENCED:
            text = f"another try of the same task has taken over, or its transaction was open for too long ({text})"
        if isinstance(told, KafkaError) and told.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            text = f"it lets no transaction be open for so long, set the option kafka.{_TRANSACTION_SETTING} ({text})"
        raise Unreachable(f"the broker at {target.address} did not take the rows: {text}") from error


_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class _Sender:
    def __init__(self, target: Target, more: Mapping[str, object]) -> None:
        self._topic = target.topic
        self.failures: list[KafkaError] = []
        settings = {
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # as the Java client: a key has one partition, whoever sends it
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
            except BufferError:  # as much waits as may: the broker sets the pace
                if not len(self.producer):
                    size = len(arguments.get("value") or b"")
                    raise Mistake(
                        f"a record of {size} bytes is more than may wait to be sent: "
                        "give the option kafka.queue.buffering.max.kbytes"
                    ) from None
                self.producer.poll(0.1)
                self.check()


def _messages(batch: pa.RecordBatch, topic: str | None) -> Iterator[dict[str, Any]]:
    """The arguments of `produce` for each row; a null is as good as no column."""
    names = batch.schema.names
    columns = {name: _values(name, batch.column(name)) for name in names}
    topics = columns.pop("topic", None)
    for index, row in enumerate(zip(*columns.values(), strict=True)):
        arguments = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        found = topic if topics is None or topics[index] is None else topics[index]
        if found is None:
            raise Mistake("a row has no topic: its column is null, and the option topic is not given")
        yield {"topic": found, **arguments}


def _values(name: str, column: pa.Array) -> list[Any]:
    if name == "timestamp":
        column = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    if name == "partition" and any(number is not None and number < 0 for number in values):
        raise Mistake("a row's partition is negative: give one that the topic has, or null for any")
    return [_pairs(headers) for headers in values] if name == "headers" else values


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    if headers and any(header is None or header["key"] is None for header in headers):
        raise Mistake("a row has a header without a key, which no message can have: leave it out")
    return [(header["key"], header["value"]) for header in headers] if headers else None


# -- tokens


def _is_committed(consumer: Consumer, token: Token) -> bool:
    (found,) = consumer.committed([TopicPartition(TOKEN_TOPIC, token.offset_to_commit.partition)], _TIMEOUT_S)
    if found.error is not None:
        raise KafkaException(found.error)
    return bool(found.offset >= token.offset_to_commit.offset)


_has_token_topic: set[str] = set()


def _make_token_topic(target: Target) -> None:
    """Once per process: workers are used again."""
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
    """Tokens that nobody will ask for again. What cannot be forgotten now expires."""
    with _kafka_errors_as_unreachable(target):
        admin = AdminClient(target.settings({}))  # has to live until it has answered
        for group, done in admin.delete_consumer_groups(list(groups), request_timeout=_DELETE_TIMEOUT_S).items():
            try:
                done.result(_DELETE_TIMEOUT_S)
            except (KafkaException, TimeoutError) as error:
                _QUIET_LOGGER.info("the tokens of %s stay for now: %s", group, error)
