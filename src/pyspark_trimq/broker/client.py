"""What the source needs to know of a broker, through either of its ports: which streams there are, where they begin and
end, and their messages. Chooses the port by its address."""

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
    """`end` is where a reader of the chosen isolation has to stop for now, `last` where others do. `id` is that of the
    topic, another one when it was deleted and made anew; empty where topics have none. `deletes_on_ack`: of a queue,
    whose messages go when consumers acknowledge them, which is no loss."""

    start: int
    end: int
    last: int
    id: str = ""
    deletes_on_ack: bool = False


class OffsetRange(NamedTuple):
    """What one task reads: from `start` to, exclusively, `end`."""

    key: StreamKey
    start: int
    end: int


class BrokerClient(Protocol):
    def topics(self) -> list[str]:
        """Those that are somebody's: what brokers and sinks have for themselves is reached by its name only."""

    def ends(self, topic: str) -> dict[int, StreamBounds]:
        """By stream. Mistake: there is no such topic."""

    def sizes(self, topic: str) -> dict[int, int]:
        """About how many bytes are kept of each stream. Mistake: there is no such topic."""

    def home(self, topic: str) -> str:
        """How the broker keeps it. Mistake: there is no such topic."""

    def at_time(self, topic: str, time_ms: int) -> dict[int, int]:
        """The first offset of each stream that is not older; its end if there is none."""

    def read(self, wanted: OffsetRange, schema: pa.Schema, fails_on_loss: bool) -> Iterator[pa.RecordBatch]:
        """Lost: messages are gone, unless that is not to fail."""

    def commit(self, group: str, offsets: Mapping[StreamKey, int], metadata: str) -> None:
        """Tell how far a group has read."""

    def find_group(self, prefix: str, metadata: str) -> str | None:
        """The group of which something was told with this note."""

    @property
    def encryption(self) -> Encryption | None:
        """None: its connections are plain."""

    def delete_group_request(self, group: str) -> tuple[str, int, list[bytes]]:
        """A host, a port, and what to send there, one after the other, when the group is to be forgotten."""

    def close(self) -> None: ...


def open_broker_client(
    bootstrap: str,
    namespace: str,
    is_committed: bool,
    waits_for_broker: bool = False,
    login: Login | None = None,
    encryption: Encryption | None = None,
) -> BrokerClient:
    """`waits_for_broker`: the broker was there before, and is waited for. Mistake: the address is none."""
    if bootstrap.startswith(("http://", "https://")):
        from pyspark_trimq.broker.http_client import HttpBrokerClient

        return HttpBrokerClient(bootstrap, namespace, is_committed, waits_for_broker, login, encryption)
    from pyspark_trimq.broker.kafka_client import KafkaBrokerClient

    if namespace:
        raise Mistake("the option namespace needs the HTTP port: set bootstrap to http://host:8180")
    return KafkaBrokerClient(bootstrap, is_committed, waits_for_broker, login, encryption)


# Tokens of sinks are cursors on a topic without messages, one per partition of it: a group with a lag of nothing.
TOKEN_TOPIC = "trimq-spark-tokens"

_CHUNK_BYTES = 4 << 20
SMALL_CHUNK_BYTES = 64 << 10
_BYTES_PER_MESSAGE = 4096


def chunk_bytes(messages: int) -> int:
    """How much to ask for at once: some megabytes, unless few messages are wanted, which would not fill them."""
    return max(SMALL_CHUNK_BYTES, min(messages * _BYTES_PER_MESSAGE, _CHUNK_BYTES))


def offset_after_loss(wanted: OffsetRange, offset: int, start: int | None, end: int | None, fails_on_loss: bool) -> int:
    """Where to go on, now that there is nothing at `offset`; no `start` and `end`: the stream is gone. Lost: not at
    all."""
    key = wanted.key
    if fails_on_loss:
        gone = "the topic is gone" if start is None else f"it has messages from {start} to {end}"
        raise Lost(
            f"messages {offset} to {wanted.end} of {key.topic} {key.number} are lost, {gone}; "
            "with failOnDataLoss=false the query goes on without them"
        )
    return wanted.end if start is None or not offset < start < wanted.end else start


def find_kafka_address(
    bootstrap: str, login: Login | None = None, waits_for_broker: bool = False, encryption: Encryption | None = None
) -> str:
    """The Kafka port of the broker that either address names. `waits_for_broker`: it was there before, and is waited
    for."""
    if not bootstrap.startswith(("http://", "https://")):
        return bootstrap
    from pyspark_trimq.broker.http_client import HttpBrokerClient

    with closing(HttpBrokerClient(bootstrap, "", True, waits_for_broker, login, encryption)) as port:
        return port.kafka_address()
