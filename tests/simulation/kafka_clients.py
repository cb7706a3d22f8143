"""Kafka clients of the simulated broker, on the level of bytes: a producer and a consumer of the real front-end."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from random import Random
from typing import TypeVar

from broker_promises import Creation
from client_connection import ClientConnection
from clients import Client, make_bodies
from simulated_trace import SimulationFailure
from surroundings import Surroundings

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import walk
from trimq.formats.kafka_batch.records import to_records
from trimq.model import Record
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from trimq.protocols.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from trimq.protocols.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from trimq.protocols.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from trimq.protocols.kafka.messages.schema import RequestMessage, ResponseMessage
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.apis import APIS

KAFKA_PORT = 9092
AUTO_CREATED = ("berries", "nuts")
PARTITIONS = 2

R = TypeVar("R", bound=ResponseMessage)

VERSIONS = {0: 13, 1: 15, 2: 7, 3: 12}
_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_EARLIEST = -2
_REFUSALS = (
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.KAFKA_STORAGE_ERROR,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
    Code.REQUEST_TIMED_OUT,
)


def encode(request: RequestMessage, id: int, versions: Mapping[int, int] = VERSIONS) -> bytes:
    version = versions[request.API_KEY]
    is_flexible = version >= APIS[request.API_KEY].flexible_from
    body = _HEADER.pack(request.API_KEY, version, id, -1) + b"\0" * is_flexible + codec.encode(request, version)
    return _LENGTH.pack(len(body)) + body


def decode(kind: type[R], body: bytes, versions: Mapping[int, int] = VERSIONS) -> R:
    version = versions[kind.API_KEY]
    return codec.decode(kind, version, body, int(version >= APIS[kind.API_KEY].flexible_from))


class KafkaClient(Client):
    versions: Mapping[int, int] = VERSIONS

    def __init__(self, name: str, random: Random, surroundings: Surroundings) -> None:
        super().__init__(name, random, surroundings)
        self.port = KAFKA_PORT
        self._topics: list[tuple[str, bytes, int]] = []

    def begin(self, connection: ClientConnection, request: RequestMessage) -> asyncio.Future[bytes]:
        id = connection.next_id()
        return connection.send(id, encode(request, id, self.versions))

    async def ask(self, kind: type[R], request: RequestMessage) -> R:
        connection = await self.connection()
        return decode(kind, await self.answer(self.begin(connection, request), request), self.versions)

    def expect(self, code: int) -> None:
        if code not in _REFUSALS:
            raise SimulationFailure(f"{self.name} was refused: {Code(code).name}")

    async def choose_partition(self) -> tuple[str, bytes, int] | None:
        if not self._topics or self.random.random() < 0.1:
            await self._ask_for_topics()
        if not self._topics:
            return None
        name, id, partitions = self.random.choice(self._topics)
        return name, id, self.random.randrange(partitions)

    async def _ask_for_topics(self) -> None:
        """Requests all topics; a missing one is auto-created."""
        await self.connection()
        name = self.random.choice(AUTO_CREATED)
        self.promises.create_asked(Creation(name, PARTITIONS, ()))
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        await self.ask(MetadataResponse, asked)
        await self.connection()
        gone = self.promises.gone_topics()
        response = await self.ask(MetadataResponse, MetadataRequest(topics=None))
        own = [topic for topic in response.topics if not topic.is_internal]
        self._topics = [(topic.name or "", topic.topic_id, len(topic.partitions)) for topic in own]
        self.promises.listed(self._topics, gone)

    def forget_topics(self) -> None:
        self._topics = []


class KafkaProducer(KafkaClient):
    _number = 0
    record_bytes = 300

    async def act(self) -> bool:
        chosen = await self.choose_partition()
        if chosen is None:
            return False
        _, topic, partition = chosen
        connection = await self.connection()
        asked = []
        for _ in range(self.random.choice((1, 1, 3))):
            self._number += 1
            bodies = make_bodies(self, self._number, self.random.choice((1, 1, 5)), self.record_bytes)
            self.promises.topics[topic].streams[partition].asked(bodies)
            acks = self.random.choice((-1, -1, -1, 0))
            request = self._request(topic, partition, bodies, acks)
            if acks == 0:
                connection.send_only(encode(request, 0))
            else:
                asked.append((bodies, self.begin(connection, request), request))
        return all([await self._settle(topic, partition, *each) for each in asked])

    def _request(self, topic: bytes, partition: int, bodies: list[bytes], acks: int) -> ProduceRequest:
        now_ms = self.surroundings.now_ms()
        records = [Record(body, key=body[:8], timestamp_ms=now_ms) for body in bodies]
        batch = from_records(records, codec=self.random.choice((Codec.NONE, Codec.NONE, Codec.LZ4)))
        data = TopicProduceData(topic_id=topic, partition_data=[PartitionProduceData(partition, bytes(batch))])
        return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])

    async def _settle(
        self, topic: bytes, partition: int, bodies: list[bytes], answer: asyncio.Future[bytes], request: ProduceRequest
    ) -> bool:
        response = decode(ProduceResponse, await self.answer(answer, "a produce request"))
        response_data = response.responses[0].partition_responses[0]
        known = self.promises.topics[topic]
        self.note(
            f"is answered {response_data.error_code} {response_data.base_offset} for {bodies[0][:25]!r} "
            f"to {known.name}/{partition}"
        )
        if response_data.error_code:
            self.expect(response_data.error_code)
            known.streams[partition].refused(bodies)
            self.forget_topics()
            return False
        if not known.is_gone:
            self.promises.acknowledged(topic)
            known.streams[partition].acknowledged(response_data.base_offset, bodies)
        return True


class KafkaConsumer(KafkaClient):
    _place: tuple[str, bytes, int, int] | None = None

    async def act(self) -> bool:
        if self._place is None or self.random.random() < 0.1:
            self._place = await self._begin_somewhere()
            if self._place is None:
                return False
        name, topic, partition, offset = self._place
        self._place = None
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=10_000)
        request = FetchRequest(
            max_wait_ms=self.random.choice((0, 100, 20_000)),
            min_bytes=self.random.choice((1, 1, 2_000)),
            max_bytes=self.random.choice((1, 1_000, 1 << 20)),
            topics=[FetchTopic(topic_id=topic, partitions=[asked])],
        )
        response = await self.ask(FetchResponse, request)
        found = response.responses[0].partitions[0]
        if found.error_code == Code.OFFSET_OUT_OF_RANGE:
            return True
        if found.error_code:
            self.expect(found.error_code)
            self.forget_topics()
            return False
        self._place = name, topic, partition, self._check_read(topic, offset, found)
        return True

    async def _begin_somewhere(self) -> tuple[str, bytes, int, int] | None:
        chosen = await self.choose_partition()
        if chosen is None:
            return None
        name, topic, partition = chosen
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=_EARLIEST)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
        found = (await self.ask(ListOffsetsResponse, request)).topics[0].partitions[0]
        if found.error_code:
            self.expect(found.error_code)
            self.forget_topics()
            return None
        return name, topic, partition, found.offset

    def _check_read(self, topic: bytes, offset: int, found: PartitionData) -> int:
        data = bytes(found.records or b"")
        records = [record for position, _ in walk(data, 0, len(data)) for record in to_records(data, position)]
        known = self.promises.topics[topic]
        if not known.is_gone:
            promises = known.streams[found.partition_index]
            # A batch may begin before the requested offset, and even before the log start: clients skip those records.
            promises.seen([(record.offset, record.body or b"") for record in records if record.offset >= offset])
            promises.end_reported(found.high_watermark)
        if not records:
            return offset
        offsets = [record.offset for record in records]
        if not offsets[0] <= offset <= offsets[-1] < found.high_watermark:
            raise SimulationFailure(f"{self.name} asked for {offset} and got {offsets} of {found.high_watermark}")
        return offsets[-1] + 1
