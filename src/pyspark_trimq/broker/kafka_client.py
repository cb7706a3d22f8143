"""The broker through its Kafka port: topics that Kafka's clients see, of this broker or of a genuine Kafka."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from pyspark_trimq.arrow.decoders import decoder_for
from pyspark_trimq.broker import kafka_metadata
from pyspark_trimq.broker import kafka_wire as wire
from pyspark_trimq.broker.client import SMALL_CHUNK_BYTES, TOKEN_TOPIC, Ends, Range, StreamKey, chunk_bytes, lost_range
from pyspark_trimq.broker.encryption import Encryption
from pyspark_trimq.broker.login import Login
from pyspark_trimq.broker.retry import Patience
from pyspark_trimq.mistakes import Lost, Mistake, TopicMistake, Unreachable
from trimq.formats.kafka_batch.header import LENGTH_ENDS_AT, read_header

KAFKAS_HOME = "partition-log"

# Tries until the metadata tells a leader that knows that it is one.
_TRIES = 5

# Answers without messages, each after a second, until it is believed that none will come.
_EMPTY_ANSWERS = 60


class KafkaPort:
    def __init__(
        self,
        bootstrap: str,
        is_committed: bool,
        is_known: bool = False,
        login: Login | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._login = login
        self.encryption = encryption
        self._context = None if encryption is None else encryption.context()
        self._patience = Patience(is_known)
        self._bootstrap = [_address(part) for part in bootstrap.split(",")]
        self._is_committed = is_committed
        self._wires: dict[wire.Address, wire.Wire] = {}
        self._leaders: dict[StreamKey, wire.Address] = {}
        self._metadata_version: tuple[int, int] | None = None

    def close(self) -> None:
        for one in self._wires.values():
            one.close()

    # -- what there is

    def greet(self) -> None:
        """Mistake: whoever answers does not let us in."""
        self._metadata([])

    def topics(self) -> list[str]:
        found = self._metadata(None).topics.items()
        return sorted(name for name, each in found if not (each.error or each.is_internal or name == TOKEN_TOPIC))

    def ends(self, topic: str) -> dict[int, Ends]:
        id = self._look_up(topic)  # anew: it may be another topic of this name, or have more partitions
        starts, lasts = self._offsets(topic, wire.EARLIEST), self._offsets(topic, wire.LATEST, False)
        ends = self._offsets(topic, wire.LATEST) if self._is_committed else lasts
        return {
            number: Ends(start, ends.get(number, start), lasts.get(number, start), id)
            for number, start in starts.items()
        }

    def sizes(self, topic: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for leader, numbers in self._by_leader(topic).items():
            request = kafka_metadata.sizes_request(topic, numbers)
            found |= kafka_metadata.read_sizes(self._wire(leader).ask(kafka_metadata.DESCRIBE_LOG_DIRS, request))
        untold = {number: each for number, each in self.ends(topic).items() if number not in found}
        return found | {number: self._judge_size(StreamKey(topic, number), each) for number, each in untold.items()}

    def _judge_size(self, key: StreamKey, ends: Ends) -> int:
        """By the first messages, for users who may not know how large logs are."""
        stored, after = _whole(self._fetch(key, ends.start, SMALL_CHUNK_BYTES).records)
        messages = 0 if after is None else after - ends.start
        return len(stored) * (ends.last - ends.start) // messages if messages > 0 else 0

    def home(self, topic: str) -> str:
        self._leaders_of(topic)
        return KAFKAS_HOME

    def at_time(self, topic: str, time_ms: int) -> dict[int, int]:
        found, ends = self._offsets(topic, time_ms), self._offsets(topic, wire.LATEST)
        return {number: ends[number] if offset < 0 else offset for number, offset in found.items()}

    def _offsets(self, topic: str, time_ms: int, is_committed: bool | None = None) -> dict[int, int]:
        is_committed = self._is_committed if is_committed is None else is_committed
        for _ in range(_TRIES):
            found: dict[int, tuple[int, int]] = {}
            for leader, numbers in self._by_leader(topic).items():
                request = wire.list_offsets_request(topic, numbers, time_ms, is_committed)
                found |= wire.read_offsets(self._wire(leader).ask(wire.LIST_OFFSETS, request))
            errors = {error for error, _ in found.values() if error}
            if not errors:
                return {number: offset for number, (_, offset) in sorted(found.items())}
            if not errors <= {wire.UNKNOWN_TOPIC, *wire.STALE}:
                raise Unreachable(f"the broker does not tell the offsets of {topic!r}: {wire.Refused(errors.pop())}")
            self._forget(topic)
        raise Unreachable(f"no broker leads all partitions of {topic!r} now: try again")

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
        """Who leads the partitions is known after this. The topic's id."""
        found = self._metadata([topic])
        facts = found.topics.get(topic)
        if facts is not None and facts.error == wire.TOPIC_NOT_ALLOWED:
            raise Mistake(f"the broker at {self._bootstrap[0]} says no: {self._who()} may do nothing with {topic!r}")
        self._forget(topic)
        if facts is None or facts.error or not facts.leaders:
            raise TopicMistake(f"there is no topic {topic!r} at {self._bootstrap[0]}")
        for number, leader in facts.leaders.items():
            if leader not in found.brokers:
                raise Unreachable(f"partition {number} of {topic!r} has no leader now: try again")
            self._leaders[StreamKey(topic, number)] = found.brokers[leader]
        return facts.id

    def _who(self) -> str:
        return "who does not log in" if self._login is None else f"the user {self._login.user!r}"

    def _forget(self, topic: str) -> None:
        self._leaders = {key: leader for key, leader in self._leaders.items() if key.topic != topic}

    def _metadata(self, topics: list[str] | None) -> kafka_metadata.Metadata:
        last = None
        for address in self._bootstrap:
            try:
                asked = self._wire(address)
                version = self._metadata_version
                if version is None:
                    version = kafka_metadata.metadata_version(asked.ask(kafka_metadata.API_VERSIONS, b""))
                    self._metadata_version = version
                answer = asked.ask(version, kafka_metadata.metadata_request(version, topics))
                return kafka_metadata.read_metadata(version, answer)
            except Unreachable as error:
                last = error
        assert last is not None
        raise last

    def _wire(self, address: wire.Address) -> wire.Wire:
        if address not in self._wires:
            self._wires[address] = wire.Wire(address, self._patience, self._login, self._context)
        return self._wires[address]

    # -- messages

    def read(self, wanted: Range, schema: pa.Schema, fails_on_loss: bool) -> Iterator[pa.RecordBatch]:
        key, offset, end = wanted
        decode = decoder_for(KAFKAS_HOME, schema, key)
        size, empty = chunk_bytes(end - offset), 0
        while offset < end:
            try:
                found = self._fetch(key, offset, size)
                span = self._span(key) if found.error == wire.OFFSET_OUT_OF_RANGE else None
            except TopicMistake:
                offset = lost_range(wanted, offset, None, None, fails_on_loss)
                continue
            if span is not None:
                offset = lost_range(wanted, offset, *span, fails_on_loss)
                continue
            stored, next_offset = _whole(found.records)
            if next_offset is None:
                if len(found.records) >= size:  # one batch is larger than that
                    size *= 2
                    continue
                empty += 1
                if found.end < end or empty == _EMPTY_ANSWERS:
                    raise Lost(f"{key.topic} {key.number} gives nothing from {offset} on, up to {end} was to be read")
                continue  # the broker still reads from its disk
            empty = 0
            yield from decode(stored, offset, end, found.aborted)
            offset = max(next_offset, offset)

    def _span(self, key: StreamKey) -> tuple[int, int]:
        return self._offsets(key.topic, wire.EARLIEST)[key.number], self._offsets(key.topic, wire.LATEST)[key.number]

    def _fetch(self, key: StreamKey, offset: int, size: int) -> wire.Fetched:
        for _ in range(_TRIES):
            leader = self._leaders_of(key.topic).get(key.number)
            if leader is None:
                raise TopicMistake(f"the topic {key.topic!r} has no partition {key.number}")
            request = wire.fetch_request(key.topic, key.number, offset, size, self._is_committed)
            found = wire.read_fetched(self._wire(leader).ask(wire.FETCH, request))
            if found.error not in (wire.UNKNOWN_TOPIC, *wire.STALE):
                break
            self._forget(key.topic)
        if found.error not in (0, wire.OFFSET_OUT_OF_RANGE):
            raise Unreachable(f"{key.topic} {key.number} cannot be read: {wire.Refused(found.error)}")
        return found

    # -- groups

    def _coordinator(self, group: str) -> wire.Wire:
        answer = self._wire(self._bootstrap[0]).ask(wire.FIND_COORDINATOR, wire.text(group))
        if (error := answer.int16()) != 0:
            raise wire.Refused(error)
        answer.int32()
        return self._wire(wire.Address(answer.text(), answer.int32()))

    def commit(self, group: str, offsets: Mapping[StreamKey, int], note: str) -> None:
        by_topic: dict[str, dict[int, int]] = {}
        for key, offset in offsets.items():
            by_topic.setdefault(key.topic, {})[key.number] = offset
        request = wire.commit_request(group, by_topic, note)
        wire.read_commit(self._coordinator(group).ask(wire.OFFSET_COMMIT, request))

    def find_group(self, prefix: str, note: str) -> str | None:
        answer = self._wire(self._bootstrap[0]).ask(wire.LIST_GROUPS, b"")
        if (error := answer.int16()) != 0:
            raise wire.Refused(error)
        for group, _ in answer.array(lambda: (answer.text(), answer.text())):
            if group.startswith(prefix):
                request = wire.text(group) + struct.pack(">i", -1)
                if note in wire.read_notes(self._coordinator(group).ask(wire.OFFSET_FETCH, request)):
                    return group
        return None

    def forget_request(self, group: str) -> tuple[str, int, list[bytes]]:
        host, port = self._coordinator(group).address
        before = () if self._login is None else wire.login_frames(self._login)
        return host, port, [*before, wire.frame(wire.DELETE_GROUPS, wire.array([wire.text(group)]))]


_let_in: set[tuple[str, Login | None, Encryption | None]] = set()


def check_login(bootstrap: str, login: Login | None, encryption: Encryption | None) -> None:
    """Once per process: workers are used again. A broker that restarts is waited for. Mistake: it does not let this
    user in, or is not to be trusted, which the Kafka client would try again and again."""
    if (bootstrap, login, encryption) not in _let_in:
        with closing(KafkaPort(bootstrap, True, is_known=True, login=login, encryption=encryption)) as port:
            port.greet()
        _let_in.add((bootstrap, login, encryption))


def _address(part: str) -> wire.Address:
    host, separator, port = part.strip().rpartition(":")
    if not separator or not host or not port.isdigit():
        raise Mistake(f"bootstrap is {part.strip()!r}: give host:9092 or http://host:8180")
    return wire.Address(host.strip("[]"), int(port))


def _whole(records: memoryview) -> tuple[memoryview, int | None]:
    """Without a last batch that was cut short, and the offset after the others. None: there is no whole one."""
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
