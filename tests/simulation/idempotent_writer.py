"""A client of the simulated broker that numbers its batches, and repeats them until it has a response: each must be
appended once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from client_connection import Lost
from clients import SmallClient, make_bodies
from simulated_trace import SimulationFailure
from small_protocol import AppendBatch, Refused
from stream_promises import StreamPromises
from surroundings import Surroundings

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record


@dataclass
class Batch:
    """A numbered batch that may have been sent."""

    request: AppendBatch
    bodies: list[bytes]
    sequence: int
    life: int
    """The broker run in which it was first sent; 0 if it was not sent yet."""


class IdempotentWriter(SmallClient):
    record_bytes = 300

    def __init__(self, name: str, random: Random, surroundings: Surroundings, producer_id: int) -> None:
        super().__init__(name, random, surroundings)
        self._producer_id = producer_id
        self._epoch = 0
        self._next_sequence: dict[tuple[bytes, int], int] = {}
        self._pending: list[Batch] = []
        self._number = 0
        self._width = random.choice((1, 1, 3))

    async def act(self) -> bool:
        if not self._pending:
            chosen = await self.choose_topic()
            if chosen is None:
                return False
            self._pending = [self._make(*chosen) for _ in range(self.random.randint(1, self._width))]
        connection = await self.connection()
        sent = []
        for batch in list(self._pending):
            batch.life = batch.life or self.surroundings.life
            self._stream(batch).asked(batch.bodies)
            sent.append((batch, self.begin(connection, batch.request)))
        is_first, is_done = True, True
        for batch, answer in sent:
            is_done = await self._settle(batch, answer, is_first) and is_done
            is_first = is_first and is_done
        return is_done

    def _make(self, topic: bytes, stream: int) -> Batch:
        self._number += 1
        bodies = make_bodies(self, self._number, self.random.choice((1, 1, 3)), self.record_bytes)
        sequence = self._next_sequence.get((topic, stream), 0)
        self._next_sequence[topic, stream] = sequence + len(bodies)
        now_ms = self.surroundings.now_ms()
        sealed = from_records(
            [Record(body, timestamp_ms=now_ms) for body in bodies],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        return Batch(AppendBatch(topic, stream, bytes(sealed)), bodies, sequence, 0)

    def _stream(self, batch: Batch) -> StreamPromises:
        return self.promises.topics[batch.request.topic].streams[batch.request.stream]

    async def _settle(self, batch: Batch, answer: asyncio.Future[bytes], is_first: bool) -> bool:
        try:
            offset = self.decode(batch.request, await self.answer(answer, batch.request))
        except Lost:
            return False  # stays pending, and is sent again
        except Refused as refused:
            self._was_refused(batch, refused, is_first)
            return False
        if batch in self._pending:
            self._pending.remove(batch)
        topic = self.promises.topics[batch.request.topic]
        if not topic.is_gone:
            assert isinstance(offset, int)
            self.promises.acknowledged(batch.request.topic)
            self._stream(batch).acknowledged(offset, batch.bodies)
        return True

    def _was_refused(self, batch: Batch, refused: Refused, is_first: bool) -> None:
        self._stream(batch).refused(batch.bodies)
        if refused.name == "OutOfOrderSequence":
            # A batch after a refused one must be refused. A restarted broker knows a producer's last batch only. And
            # where a producer's first batch is refused but not its second, the second begins the sequence, as in Kafka.
            is_alone = self._width == 1 or (batch.sequence > 0 and batch.life == self.surroundings.life)
            is_expected = not is_first or not is_alone
            if not is_expected and not self.surroundings.may_forget:
                raise SimulationFailure(f"{self.name} got an out-of-order sequence error")
            if is_first:
                self._start_over()
        elif refused.name == "UnknownTopic":
            self.forget_topics()
            self._start_over()
        else:
            self.expect(refused)

    def _start_over(self) -> None:
        self._pending = []
        self._epoch += 1
        self._next_sequence = {}
