"""Clients of the simulated broker over the small protocol, one class per purpose."""

from __future__ import annotations

import asyncio

from broker_promises import Creation, CursorPromises
from client_connection import Lost
from clients import SmallClient, make_bodies
from simulated_trace import SimulationFailure
from small_protocol import (
    Append,
    Commit,
    Create,
    Cut,
    Delete,
    FetchCursor,
    Read,
    ReadAnswer,
    Refused,
)

from trimq.formats.kafka_batch.header import walk
from trimq.formats.kafka_batch.records import to_records

TOPIC_NAMES = ("apples", "pears-1", "plums", "figs")
TOPIC_SETTINGS: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (),
    (("segment_bytes", "1500"),),
    (("cleanup", "delete"),),
)

# A fair broker responds within this time, whatever other clients do: a few of its longest passes.
PULSE_LIMIT_S = 0.3


class Writer(SmallClient):
    """Appends, some requests at a time. Does not repeat requests without a response."""

    _number = 0
    record_bytes = 300

    async def act(self) -> bool:
        chosen = await self.choose_topic()
        if chosen is None:
            return False
        topic, stream = chosen
        connection = await self.connection()
        asked: list[tuple[Append, asyncio.Future[bytes]]] = []
        for _ in range(self.random.choice((1, 1, 1, 4))):
            self._number += 1
            bodies = make_bodies(self, self._number, self.random.choice((1, 1, 3)), self.record_bytes)
            request = Append(topic, stream, self.surroundings.now_ms(), bodies)
            self.promises.topics[topic].streams[stream].asked(bodies)
            asked.append((request, self.begin(connection, request)))
        return all([await self._settle(request, answer) for request, answer in asked])

    async def _settle(self, request: Append, answer: asyncio.Future[bytes]) -> bool:
        promises = self.promises.topics[request.topic]
        try:
            offset = self.decode(request, await self.answer(answer, request))
        except Lost:
            return False
        except Refused as refused:
            self.expect(refused)
            self.forget_topics()
            promises.streams[request.stream].refused(request.bodies)
            return False
        if not promises.is_gone:
            assert isinstance(offset, int)
            self.promises.acknowledged(request.topic)
            promises.streams[request.stream].acknowledged(offset, request.bodies)
        return True


class Reader(SmallClient):
    """Reads a stream for a while, from any offset, with long polls."""

    _place: tuple[bytes, int, int] | None = None

    async def act(self) -> bool:
        if self._place is None or self.random.random() < 0.1:
            chosen = await self.choose_topic()
            if chosen is None:
                return False
            topic, stream = chosen
            self._place = (topic, stream, self.promises.topics[topic].streams[stream].latest_start)
        topic, stream, offset = self._place
        max_bytes = self.random.choice((1, 500, 100_000))
        request = Read(topic, stream, offset, max_bytes, self.random.choice((0, 10, 1_000, 30_000)))
        if self.random.random() < 0.05:
            (await self.connection()).stall_s = self.random.choice((0.1, 30))
        self._place = None
        try:
            found = await self.ask(request)
        except Refused as refused:
            self.expect(refused, "OffsetOutOfRange", *self.surroundings.damage_refusals)
            self.forget_topics()
            return refused.name in ("OffsetOutOfRange", "UnknownTopic")
        assert isinstance(found, ReadAnswer)
        self._place = (topic, stream, self._check_read(request, found))
        return True

    def _check_read(self, request: Read, found: ReadAnswer) -> int:
        topic = self.promises.topics[request.topic]
        records = [
            record
            for position, _ in walk(found.batches, 0, len(found.batches))
            for record in to_records(found.batches, position)
        ]
        if not topic.is_gone:
            promises = topic.streams[request.stream]
            # A batch may begin before the requested offset, and even before the log start: clients skip those records.
            promises.seen(
                [(record.offset, record.body or b"") for record in records if record.offset >= request.offset]
            )
            promises.end_reported(found.readable_end)
        if not records:
            return request.offset
        offsets = [record.offset for record in records]
        if not offsets[0] <= request.offset <= offsets[-1] or offsets != list(range(offsets[0], offsets[-1] + 1)):
            raise SimulationFailure(f"{self.name} asked for {request.offset} and got {offsets}")
        if offsets[-1] >= found.readable_end:
            raise SimulationFailure(f"{self.name} got {offsets[-1]}, beyond the end at {found.readable_end}")
        return offsets[-1] + 1


class Administrator(SmallClient):
    """Creates and deletes topics, and deletes the heads of their streams."""

    deletes = True

    async def act(self) -> bool:
        topics = await self.list_topics()
        free = [name for name in TOPIC_NAMES if name not in [topic[0] for topic in topics]]
        if len(topics) < 2 or (free and self.random.random() < 0.2):
            return await self._create(self.random.choice(free))
        _, id, streams = self.random.choice(topics)
        if self.deletes and self.random.random() < 0.15:
            return await self._delete(id)
        return await self._cut(id, self.random.randrange(streams))

    async def _create(self, name: str) -> bool:
        creation = Creation(name, self.random.randint(1, 3), self.random.choice(TOPIC_SETTINGS))
        await self.connection()
        self.promises.create_asked(creation)
        try:
            id = await self.ask(Create(name, creation.streams, dict(creation.settings)))
        except Refused as refused:
            self.expect(refused, "TopicExists", "Busy")
            self.promises.create_refused(creation)
            return False
        assert isinstance(id, bytes)
        self.promises.created(id, creation)
        return True

    async def _delete(self, id: bytes) -> bool:
        await self.connection()
        self.promises.delete_asked(id)
        try:
            await self.ask(Delete(id))
        except Refused as refused:
            self.expect(refused)
            self.promises.delete_refused(id)
            return False
        self.promises.deleted(id)
        return True

    async def _cut(self, topic: bytes, stream: int) -> bool:
        promises = self.promises.topics[topic].streams[stream]
        ends = Read(topic, stream, promises.latest_start, 1, 0)
        try:
            found = await self.ask(ends)
            assert isinstance(found, ReadAnswer)
            offset = self.random.randint(found.start, found.readable_end)
            await self.connection()
            promises.cut_asked(offset)
            await self.ask(Cut(topic, stream, offset))
        except Refused as refused:
            self.expect(refused, "OffsetOutOfRange", *self.surroundings.damage_refusals)
            return refused.name in ("OffsetOutOfRange", "UnknownTopic")
        promises.cut(offset)
        return True


class CursorKeeper(SmallClient):
    """Commits and fetches the cursor of its group."""

    async def act(self) -> bool:
        chosen = await self.choose_topic()
        if chosen is None:
            return False
        topic, stream = chosen
        promises = self.promises.cursor(self.name, topic, stream)
        offset = self.random.randrange(1000)
        try:
            found = await self.ask(FetchCursor(self.name, topic, stream))
            if not promises.is_legal(found) and not self.promises.topics[topic].is_gone:  # type: ignore[arg-type]
                raise SimulationFailure(f"{self.name} got cursor {found}, which was never committed")
            await self.connection()
            promises.asked(offset)
            await self._commit(promises, Commit(self.name, topic, stream, offset))
        except Refused as refused:
            self.expect(refused)
            self.forget_topics()
            return refused.name == "UnknownTopic"
        return True

    async def _commit(self, promises: CursorPromises, request: Commit) -> None:
        try:
            await self.ask(request)
        except Refused:
            promises.refused(request.offset)
            raise
        promises.acknowledged(request.offset)


class HeavyClient(SmallClient):
    """Sends huge requests, many at a time, and does not read its responses for a while."""

    async def act(self) -> bool:
        connection = await self.connection()
        if self.random.random() < 0.5:
            connection.stall_s = self.random.choice((0.1, 5))
        size = self.random.choice((1_000, 60_000))
        count = self.random.choice((1, 5, 15))
        await asyncio.gather(*(self.list_topics(bytes(size), size // 2) for _ in range(count)))
        return True


class Pulse(SmallClient):
    """Sends small requests on a calm connection, and must get timely responses."""

    is_calm = True

    async def act(self) -> bool:
        await self.connection()
        begun = self.surroundings.loop.time()
        await self.list_topics()
        took_s = self.surroundings.loop.time() - begun
        if took_s > PULSE_LIMIT_S:
            raise SimulationFailure(f"the response to a small request took {took_s:.3f} s")
        return True
