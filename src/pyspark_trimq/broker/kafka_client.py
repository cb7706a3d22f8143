"""Client of a Kafka port, of this broker or of Apache Kafka. Serves topics that Kafka clients see."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from pyspark_trimq.arrow.decoders import decoder_for
from pyspark_trimq.broker import kafka_metadata
from pyspark_trimq.broker import kafka_wire as wire
from pyspark_trimq.broker.client import (
    SMALL_CHUNK_BYTES,
    TOKEN_TOPIC,
    OffsetRange,
    StreamBounds,
    StreamKey,
    chunk_bytes,
    offset_after_loss,
)
from pyspark_trimq.broker.encryption import Encryption
from pyspark_trimq.broker.login import Login
from pyspark_trimq.broker.retry import RetryPolicy
from pyspark_trimq.mistakes import Lost, Mistake, TopicMistake, Unreachable
from trimq.formats.kafka_batch.header import LENGTH_ENDS_AT, read_header

PARTITION_LOG = "partition-log"

# Attempts until the metadata names a leader that accepts requests.
_TRIES = 5

# Empty fetch responses, each after one second, before the read fails.
_MAX_EMPTY_FETCHES = 60


class KafkaBrokerClient:
    def __init__(
        self,
        bootstrap: str,
        is_committed: bool,
        waits_for_broker: bool = False,
        login: Login | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._login = login
        self.encryption = encryption
        self._context = None if encryption is None else encryption.context()
        self._retry_policy = RetryPolicy(waits_for_broker)
        self._bootstrap = [_address(part) for part in bootstrap.split(",")]
        self._is_committed = is_committed
        self._connections: dict[wire.Address, wire.BrokerConnection] = {}
        self._leaders: dict[StreamKey, wire.Address] = {}
        self._metadata_version: tuple[int, int] | None = None

    def close(self) -> None:
        for one in self._connections.values():
            one.close()

    # -- topics and offsets

    def check_access(self) -> None:
        """Raises Mistake if the broker refuses the login or its certificate is not trusted."""
        self._metadata([])

    def topics(self) -> list[str]:
        found = self._metadata(None).topics.items()
        return sorted(name for name, each in found if not (each.error or each.is_internal or name == TOKEN_TOPIC))

    def ends(self, topic: str) -> dict[int, StreamBounds]:
        id = self._look_up(topic)  # fresh: the topic may have been recreated, or have new partitions
        starts, lasts = self._offsets(topic, wire.EARLIEST), self._offsets(topic, wire.LATEST, False)
        ends = self._offsets(topic, wire.LATEST) if self._is_committed else lasts
        return {
            number: StreamBounds(start, ends.get(number, start), lasts.get(number, start), id)
            for number, start in starts.items()
        }

    def sizes(self, topic: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for leader, numbers in self._by_leader(topic).items():
            request = kafka_metadata.sizes_request(topic, numbers)
            found |= kafka_metadata.read_sizes(self._connection(leader).call(kafka_metadata.DESCRIBE_LOG_DIRS, request))
        missing = {number: each for number, each in self.ends(topic).items() if number not in found}
        return found | {number: self._estimate_size(StreamKey(topic, number), each) for number, each in missing.items()}

    def _estimate_size(self, key: StreamKey, ends: StreamBounds) -> int:
        """Extrapolates from the first messages, for users who may not describe log directories."""
        stored, after = _complete_batches(self._fetch(key, ends.start, SMALL_CHUNK_BYTES).records)
        messages = 0 if after is None else after - ends.start
        return len(stored) * (ends.last - ends.start) // messages if messages > 0 else 0

    def home(self, topic: str) -> str:
        self._leaders_of(topic)
        return PARTITION_LOG

    def at_time(self, topic: str, time_ms: int) -> dict[int, int]:
        found, ends = self._offsets(topic, time_ms), self._offsets(topic, wire.LATEST)
        return {number: ends[number] if offset < 0 else offset for number, offset in found.items()}

    def _offsets(self, topic: str, time_ms: int, is_committed: bool | None = None) -> dict[int, int]:
        is_committed = self._is_committed if is_committed is None else is_committed
        for _ in range(_TRIES):
            found: dict[int, tuple[int, int]] = {}
            for leader, numbers in self._by_leader(topic).items():
                request = wire.list_offsets_request(topic, numbers, time_ms, is_committed)
                found |= wire.read_offsets(self._connection(leader).call(wire.LIST_OFFSETS, request))
            errors = {error for error, _ in found.values() if error}
            if not errors:
                return {number: offset for number, (_, offset) in sorted(found.items())}
            if not errors <= {wire.UNKNOWN_TOPIC, *wire.STALE_METADATA}:
                raise Unreachable(f"the offsets of {topic!r} cannot be read: {wire.KafkaRefused(errors.pop())}")
            self._forget(topic)
        raise Unreachable(f"some partitions of {topic!r} have no leader now: try again")

    def _by_leader(self, topic: str) -> dict[wire.Address, list[int]]:
        found: dict[wire.Address, list[int]] = {}
        for number, leader in self._leaders_of(topic).items():
            found.setdefault(leader, []).append(number)
        return found

    def _leaders_of(self, topic: str) -> dict[int, wire.Address]:
        known = {key.number: leader for key, leader in self._leaders.items() if key.topic == topic}
        if not known:
            self._look_up(topic)
            known = {key.number: leader for key, leader in self._leaders.items() if key.topic == topic}
        return known

    def _look_up(self, topic: str) -> str:
        """Updates the known leaders of the topic's partitions and returns the topic id."""
        found = self._metadata([topic])
        topic_metadata = found.topics.get(topic)
        if topic_metadata is not None and topic_metadata.error == wire.TOPIC_NOT_ALLOWED:
            raise Mistake(
                f"the broker at {self._bootstrap[0]} refused access: {self._user_text()} may not use {topic!r}"
            )
        self._forget(topic)
        if topic_metadata is None or topic_metadata.error or not topic_metadata.leaders:
            raise TopicMistake(f"there is no topic {topic!r} at {self._bootstrap[0]}")
        for number, leader in topic_metadata.leaders.items():
            if leader not in found.brokers:
                raise Unreachable(f"partition {number} of {topic!r} has no leader now: try again")
            self._leaders[StreamKey(topic, number)] = found.brokers[leader]
        return topic_metadata.id

    def _user_text(self) -> str:
        return "a client without a login" if self._login is None else f"the user {self._login.user!r}"

    def _forget(self, topic: str) -> None:
        self._leaders = {key: leader for key, leader in self._leaders.items() if key.topic != topic}

    def _metadata(self, topics: list[str] | None) -> kafka_metadata.Metadata:
        last = None
        for address in self._bootstrap:
            try:
                asked = self._connection(address)
                version = self._metadata_version
                if version is None:
                    version = kafka_metadata.metadata_version(asked.call(kafka_metadata.API_VERSIONS, b""))
                    self._metadata_version = version
                response = asked.call(version, kafka_metadata.metadata_request(version, topics))
                return kafka_metadata.read_metadata(version, response)
            except Unreachable as error:
                last = error
        assert last is not None
        raise last

    def _connection(self, address: wire.Address) -> wire.BrokerConnection:
        if address not in self._connections:
            self._connections[address] = wire.BrokerConnection(address, self._retry_policy, self._login, self._context)
        return self._connections[address]

    # -- messages

    def read(self, wanted: OffsetRange, schema: pa.Schema, fails_on_loss: bool) -> Iterator[pa.RecordBatch]:
        key, offset, end = wanted
        decode = decoder_for(PARTITION_LOG, schema, *key)
        size, empty = chunk_bytes(end - offset), 0
        while offset < end:
            try:
                found = self._fetch(key, offset, size)
                span = self._span(key) if found.error == wire.OFFSET_OUT_OF_RANGE else None
            except TopicMistake:
                offset = offset_after_loss(wanted, offset, None, None, fails_on_loss)
                continue
            if span is not None:
                offset = offset_after_loss(wanted, offset, *span, fails_on_loss)
                continue
            stored, next_offset = _complete_batches(found.records)
            if next_offset is None:
                if len(found.records) >= size:  # the first batch is larger than the fetch size
                    size *= 2
                    continue
                empty += 1
                if found.end < end or empty == _MAX_EMPTY_FETCHES:
                    raise Lost(
                        f"{key.topic} {key.number} has no messages from {offset} to {end}, which were to be read"
                    )
                continue  # the broker is still reading from disk
            empty = 0
            yield from decode(stored, offset, end, found.aborted)
            offset = max(next_offset, offset)

    def _span(self, key: StreamKey) -> tuple[int, int]:
        return self._offsets(key.topic, wire.EARLIEST)[key.number], self._offsets(key.topic, wire.LATEST)[key.number]

    def _fetch(self, key: StreamKey, offset: int, size: int) -> wire.FetchedPartition:
        for _ in range(_TRIES):
            leader = self._leaders_of(key.topic).get(key.number)
            if leader is None:
                raise TopicMistake(f"the topic {key.topic!r} has no partition {key.number}")
            request = wire.fetch_request(key.topic, key.number, offset, size, self._is_committed)
            found = wire.read_fetched(self._connection(leader).call(wire.FETCH, request))
            if found.error not in (wire.UNKNOWN_TOPIC, *wire.STALE_METADATA):
                break
            self._forget(key.topic)
        if found.error not in (0, wire.OFFSET_OUT_OF_RANGE):
            raise Unreachable(f"{key.topic} {key.number} cannot be read: {wire.KafkaRefused(found.error)}")
        return found

    # -- groups

    def _coordinator(self, group: str) -> wire.BrokerConnection:
        response = self._connection(self._bootstrap[0]).call(wire.FIND_COORDINATOR, wire.text(group))
        if (error := response.int16()) != 0:
            raise wire.KafkaRefused(error)
        response.int32()
        return self._connection(wire.Address(response.text(), response.int32()))

    def commit(self, group: str, offsets: Mapping[StreamKey, int], metadata: str) -> None:
        request = _commit_request(group, offsets, metadata)
        wire.read_commit(self._coordinator(group).call(wire.OFFSET_COMMIT, request))

    def find_group(self, prefix: str, metadata: str) -> str | None:
        response = self._connection(self._bootstrap[0]).call(wire.LIST_GROUPS, b"")
        if (error := response.int16()) != 0:
            raise wire.KafkaRefused(error)
        for group, _ in response.array(lambda: (response.text(), response.text())):
            if group.startswith(prefix):
                request = wire.text(group) + struct.pack(">i", -1)
                if metadata in wire.read_offset_metadata(self._coordinator(group).call(wire.OFFSET_FETCH, request)):
                    return group
        return None

    def delete_group_request(self, group: str) -> tuple[str, int, list[bytes]]:
        host, port = self._coordinator(group).address
        return host, port, [*self._login_frames(), wire.frame(wire.DELETE_GROUPS, wire.array([wire.text(group)]))]

    def commit_requests(self, group: str, offsets: Mapping[StreamKey, int], metadata: str) -> list[bytes]:
        request = _commit_request(group, offsets, metadata)
        return [*self._login_frames(), wire.frame(wire.OFFSET_COMMIT, request)]

    def _login_frames(self) -> list[bytes]:
        return [] if self._login is None else list(wire.sasl_frames(self._login))


def _commit_request(group: str, offsets: Mapping[StreamKey, int], metadata: str) -> bytes:
    by_topic: dict[str, dict[int, int]] = {}
    for key, offset in offsets.items():
        by_topic.setdefault(key.topic, {})[key.number] = offset
    return wire.commit_request(group, by_topic, metadata)


_checked_logins: set[tuple[str, Login | None, Encryption | None]] = set()


def check_login(bootstrap: str, login: Login | None, encryption: Encryption | None) -> None:
    """Checks the login once per process, as Spark reuses workers, and retries while the broker restarts. Raises Mistake
    if the broker refuses the login or its certificate is not trusted. The Kafka client would retry both without end."""
    if (bootstrap, login, encryption) not in _checked_logins:
        with closing(
            KafkaBrokerClient(bootstrap, True, waits_for_broker=True, login=login, encryption=encryption)
        ) as port:
            port.check_access()
        _checked_logins.add((bootstrap, login, encryption))


def _address(part: str) -> wire.Address:
    host, separator, port = part.strip().rpartition(":")
    if not separator or not host or not port.isdigit():
        raise Mistake(f"bootstrap is {part.strip()!r}: give host:9092 or http://host:8180")
    return wire.Address(host.strip("[]"), int(port))


def _complete_batches(records: memoryview) -> tuple[memoryview, int | None]:
    """Returns the records without a truncated last batch, and the offset after them; None if no batch is complete."""
    size, next_offset = 0, None
    while len(records) - size >= LENGTH_ENDS_AT:
        length = int.from_bytes(records[size + 8 : size + LENGTH_ENDS_AT], "big")
        if size + LENGTH_ENDS_AT + length > len(records):
            break
        next_offset = size
        size += LENGTH_ENDS_AT + length
    if next_offset is None:
        return records[:0], None
    header = read_header(records, next_offset)
    return records[:size], header.base_offset + header.last_offset_delta + 1
