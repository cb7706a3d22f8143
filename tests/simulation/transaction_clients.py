"""Producers with transactions in the simulation, of both generations of the protocol: they send again what they have no
answer to, fence each other, and vanish in the middle."""

from __future__ import annotations

from random import Random

from session_clients import ALL_PARTITIONS, NEWEST, TOPICS, Partition, SessionClient
from surroundings import Surroundings
from transaction_promises import Deal, Outcome, TransactionPromises

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.model import Record
from trimq.protocols.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from trimq.protocols.kafka.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from trimq.protocols.kafka.names.codes import Code

OLDER = {**NEWEST, 0: 11, 26: 4, 28: 4}
CURSOR: Partition = (TOPICS[0], 0)

_FENCED = (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING)


def group_of(name: str) -> str:
    return f"sink-{name}"


class Fenced(Exception):
    """Another producer has the transaction's name now, or it took too long."""


class TransactionalProducer(SessionClient):
    def __init__(
        self, name: str, random: Random, surroundings: Surroundings, deals: TransactionPromises, transaction: str
    ) -> None:
        super().__init__(name, random, surroundings)
        self._deals = deals
        self._transaction = transaction
        self._is_older = random.random() < 0.4
        self.versions = OLDER if self._is_older else NEWEST
        self._timeout_ms = random.choice((500, 5_000, 60_000))
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Partition, int] = {}
        self._deal: Deal | None = None
        self._unsent: list[tuple[Partition, list[bytes]]] = []
        self._added: set[Partition] = set()
        self._is_group_added = False
        self._moves_cursor = False
        self._is_commit: bool | None = None
        self._number = 0
        deals.open_producers.add(name)

    async def act(self) -> bool:
        """One step. What it does not survive is a step that was refused for good: then the producer begins anew."""
        if await self.find_topics() is None:
            return False
        try:
            is_done = await self._step()
        except Fenced:
            self._forget()
            return False
        if is_done and self.surroundings.is_finishing and self._deal is None:
            self._deals.open_producers.discard(self.name)
            return True
        if self.surroundings.is_finishing:
            return False  # until the transaction is at its end
        if self.random.random() < 0.05:
            self._forget()  # a new process, or one that takes the name over
        return is_done

    async def _step(self) -> bool:
        if self._producer is None:
            return await self._take_name()
        if self._deal is None:
            self._begin(self._deals.begin(self._transaction))
            return True
        if self._unsent:
            return await self._send(*self._unsent[0])
        if self._moves_cursor:
            return await self._move_cursor(self._deal)
        return await self._end(self._deal)

    def _forget(self) -> None:
        self._producer = self._deal = None
        self._sequences = {}

    async def _take_name(self) -> bool:
        request = InitProducerIdRequest(self._transaction, self._timeout_ms)
        response = await self.ask(InitProducerIdResponse, request)
        if response.error_code:
            self.expect(response.error_code)
            return False
        self._become(response.producer_id, response.producer_epoch)
        return True

    def _become(self, id: int, epoch: int) -> None:
        if self._producer != (id, epoch):
            self._sequences = {}
        self._producer = (id, epoch)

    def _begin(self, deal: Deal) -> None:
        count = self.random.choice((1, 2, 4))
        self._deal = deal
        self._is_commit = None
        self._added = set()
        self._is_group_added = False
        self._moves_cursor = deal.moves_cursor = self.random.random() < 0.4
        self._unsent = [(self.random.choice(ALL_PARTITIONS), self._bodies(deal)) for _ in range(count)]

    def _bodies(self, deal: Deal) -> list[bytes]:
        self._number += 1
        padding = bytes(self.random.choice((0, 10, 400)))
        count = self.random.choice((1, 1, 3))
        bodies = [f"{self.name} {deal.serial}.{self._number}.{part} ".encode() + padding for part in range(count)]
        self._deals.asked(deal, bodies)
        return bodies

    def _check(self, code: int) -> bool:
        """Whether it was done. If not, it is asked for again, unless somebody else has the name."""
        if code in _FENCED:
            self.note(f"is told {Code(code).name} in {self._deal}")
            raise Fenced
        if code:
            self.expect(code)
        return not code

    # -- the steps of a transaction

    async def _send(self, partition: Partition, bodies: list[bytes]) -> bool:
        if self._is_older and partition not in self._added and not await self._add(partition):
            return False
        producer_id, epoch = self._identity()
        sequence = self._sequences.get(partition, 0)
        records = [Record(body, timestamp_ms=self.surroundings.now_ms()) for body in bodies]
        batch = from_records(
            records,
            codec=self.random.choice((Codec.NONE, Codec.LZ4)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        assert self._ids is not None
        name, number = partition
        data = TopicProduceData(name, self._ids[name], [PartitionProduceData(number, bytes(batch))])
        response = await self.ask(ProduceResponse, ProduceRequest(self._transaction, -1, 30_000, [data]))
        told = response.responses[0].partition_responses[0]
        self.note(f"is answered {told.error_code} {told.base_offset} for {bodies[0][:25]!r} to {partition}")
        if not self._check(told.error_code):
            return False
        self._sequences[partition] = sequence + len(bodies)
        self._deals.acknowledged(partition, told.base_offset, bodies)
        del self._unsent[0]
        return True

    def _identity(self) -> tuple[int, int]:
        assert self._producer is not None
        return self._producer

    async def _add(self, partition: Partition) -> bool:
        name, number = partition
        topics = [AddPartitionsToTxnTopic(name, [number])]
        request = AddPartitionsToTxnRequest([], self._transaction, *self._identity(), topics)
        response = await self.ask(AddPartitionsToTxnResponse, request)
        if not self._check(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code):
            return False
        self._added.add(partition)
        return True

    async def _move_cursor(self, deal: Deal) -> bool:
        """The number of the transaction stands for an offset: each is one further than those before it."""
        group = group_of(self._transaction)
        if self._is_older and not self._is_group_added:
            added = AddOffsetsToTxnRequest(self._transaction, *self._identity(), group)
            if not self._check((await self.ask(AddOffsetsToTxnResponse, added)).error_code):
                return False
            self._is_group_added = True
        name, number = CURSOR
        topic = TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(number, deal.serial, -1, "")])
        request = TxnOffsetCommitRequest(self._transaction, group, *self._identity(), topics=[topic])
        response = await self.ask(TxnOffsetCommitResponse, request)
        if not self._check(response.topics[0].partitions[0].error_code):
            return False
        self._moves_cursor = False
        return True

    async def _end(self, deal: Deal) -> bool:
        if self._is_commit is None:
            self._is_commit = self.random.random() < 0.7
        if self._is_commit:
            deal.outcome = Outcome.UNKNOWN
        request = EndTxnRequest(self._transaction, *self._identity(), self._is_commit)
        response = await self.ask(EndTxnResponse, request)
        self.note(f"is answered {response.error_code} to the end of {deal}, commit: {self._is_commit}")
        if response.error_code == Code.INVALID_TXN_STATE:
            raise Fenced  # it took too long, and was aborted
        if not self._check(response.error_code):
            return False
        if self._is_commit:
            deal.outcome = Outcome.COMMITTED
        if not self._is_older:
            self._become(response.producer_id, response.producer_epoch)
        self._deal = None
        return True
