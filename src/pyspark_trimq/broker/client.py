"""Interface of the source to a broker, through its HTTP port or its Kafka port: streams, their offsets, their messages,
committed offsets. Chooses the port by the form of the address. Knows neither protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from pyspark_trimq.broker.encryption import Encryption
from pyspark_trimq.broker.login import Login
from pyspark_trimq.mistakes import Lost, Mistake


class StreamKey(NamedTuple):
    topic: str
    number: int


@dataclass(frozen=True)
class StreamBounds:
    """Offsets of one stream. `end` is the end for the chosen isolation level, `last` the end for `read_uncommitted`.
    `id` is the topic id, which changes if the topic is deleted and created again; empty if the broker has no topic ids.
    `deletes_on_ack` is True for queues: an ack deletes the message, which is not a data loss."""

    start: int
    end: int
    last: int
    id: str = ""
    deletes_on_ack: bool = False


class OffsetRange(NamedTuple):
    """Offsets that one task reads, from `start` to `end` (exclusive)."""

    key: StreamKey
    start: int
    end: int


class BrokerClient(Protocol):
    def topics(self) -> list[str]:
        """Returns all topics except internal ones and the sinks' token topic, which are readable by name only."""

    def ends(self, topic: str) -> dict[int, StreamBounds]:
        """Returns the offsets of each stream. Raises TopicMistake if the topic does not exist."""

    def sizes(self, topic: str) -> dict[int, int]:
        """Returns the approximate size of each stream in bytes. Raises TopicMistake if the topic does not exist."""

    def home(self, topic: str) -> str:
        """Returns the name of the topic's layout on disk. Raises TopicMistake if the topic does not exist."""

    def at_time(self, topic: str, time_ms: int) -> dict[int, int]:
        """Returns the first offset of each stream whose message is not older than `time_ms`; the end if there is
        none."""

    def read(self, wanted: OffsetRange, schema: pa.Schema, fails_on_loss: bool) -> Iterator[pa.RecordBatch]:
        """Yields the messages of the range. If some were deleted, raises Lost or, without `fails_on_loss`, skips
        them."""

    def commit(self, group: str, offsets: Mapping[StreamKey, int], metadata: str) -> None:
        """Commits offsets of a group, with `metadata` stored beside them."""

    def find_group(self, prefix: str, metadata: str) -> str | None:
        """Returns the group with this prefix that has an offset committed with `metadata`, or None."""

    @property
    def encryption(self) -> Encryption | None:
        """Returns None if connections are not encrypted."""

    def delete_group_request(self, group: str) -> tuple[str, int, list[bytes]]:
        """Returns host, port, and the requests that delete the group, to be sent one after the other."""

    def commit_requests(self, group: str, offsets: Mapping[StreamKey, int], metadata: str) -> list[bytes]:
        """Returns the requests that do what `commit` does, for the address that `delete_group_request` returns."""

    def close(self) -> None: ...


def open_broker_client(
    bootstrap: str,
    namespace: str,
    is_committed: bool,
    waits_for_broker: bool = False,
    login: Login | None = None,
    encryption: Encryption | None = None,
) -> BrokerClient:
    """Returns a client of the HTTP or Kafka port. `waits_for_broker`: retry while the broker restarts, from the first
    request on. Raises Mistake if the address is invalid."""
    if bootstrap.startswith(("http://", "https://")):
        from pyspark_trimq.broker.http_client import HttpBrokerClient

        return HttpBrokerClient(bootstrap, namespace, is_committed, waits_for_broker, login, encryption)
    from pyspark_trimq.broker.kafka_client import KafkaBrokerClient

    if namespace:
        raise Mistake("the option namespace works with the HTTP port only: set bootstrap to http://host:8180")
    return KafkaBrokerClient(bootstrap, is_committed, waits_for_broker, login, encryption)


# A sink token is a committed offset on this topic, which has no messages, so that the group shows no lag.
TOKEN_TOPIC = "trimq-spark-tokens"

_CHUNK_BYTES = 4 << 20
SMALL_CHUNK_BYTES = 64 << 10
_BYTES_PER_MESSAGE = 4096


def chunk_bytes(messages: int) -> int:
    """Returns the number of bytes to fetch per request: 4 MB, less if only a few messages are wanted."""
    return max(SMALL_CHUNK_BYTES, min(messages * _BYTES_PER_MESSAGE, _CHUNK_BYTES))


def offset_after_loss(wanted: OffsetRange, offset: int, start: int | None, end: int | None, fails_on_loss: bool) -> int:
    """Returns the offset to continue from if the broker has no message at `offset` any more. `start` and `end` are the
    current bounds, None if the stream was deleted. Raises Lost if `fails_on_loss`."""
    key = wanted.key
    if fails_on_loss:
        gone = "the topic was deleted" if start is None else f"it has messages from {start} to {end}"
        raise Lost(
            f"messages {offset} to {wanted.end} of {key.topic} {key.number} are lost, {gone}; "
            "with failOnDataLoss=false the query continues without them"
        )
    return wanted.end if start is None or not offset < start < wanted.end else start


def find_kafka_address(
    bootstrap: str, login: Login | None = None, waits_for_broker: bool = False, encryption: Encryption | None = None
) -> str:
    """Returns the Kafka address of the broker; asks its HTTP port if `bootstrap` is an HTTP address.
    `waits_for_broker`: retry while the broker restarts."""
    if not bootstrap.startswith(("http://", "https://")):
        return bootstrap
    from pyspark_trimq.broker.http_client import HttpBrokerClient

    with closing(HttpBrokerClient(bootstrap, "", True, waits_for_broker, login, encryption)) as port:
        return port.kafka_address()
