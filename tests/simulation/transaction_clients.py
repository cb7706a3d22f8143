"""Transactional producers in the simulation, of both generations of the protocol: they repeat requests without a
response, fence each other, and disappear in the middle."""

from __future__ import annotations

from random import Random

from session_clients import ALL_PARTITIONS, NEWEST, TOPICS, Partition, SessionClient
from surroundings import Surroundings
from transaction_promises import Outcome, TransactionAttempt, TransactionPromises

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
    """Another producer has taken over the transactional id, or the transaction timed out."""


class TransactionalProducer(SessionClient):
    def __init__(
        self,
        name: str,
        random: Random,
        surroundings: Surroundings,
        transaction_promises: TransactionPromises,
        transaction: str,
    ) -> None:
        super().__init__(name, random, surroundings)
        self._transaction_promises = transaction_promises
        self._transaction = transaction
        self._is_older = random.random() < 0.4
        self.versions = OLDER if self._is_older else NEWEST
        self._timeout_ms = random.choice((500, 5_000, 60_000))
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Partition, int] = {}
        self._attempt: TransactionAttempt | None = None
        self._unsent: list[tuple[Partition, list[bytes]]] = []
        self._added: set[Partition] = set()
        self._is_group_added = False
        self._moves_cursor = False
        self._is_commit: bool | None = None
        self._number = 0
        transaction_promises.open_producers.add(name)

    async def act(self) -> bool:
        """Does one step. After a final refusal the producer starts over."""
        if await self.find_topics() is None:
            return False
        try:
            is_done = await self._step()
        except Fenced:
            self._forget()
            return False
        if is_done and self.surroundings.is_finishing and self._attempt is None:
            self._transaction_promises.open_producers.discard(self.name)
            return True
        if self.surroundings.is_finishing:
            return False  # until the transaction has ended
        if self.random.random() < 0.05:
            self._forget()  # a new process, or one that takes over the transactional id
        return is_done

    async def _step(self) -> bool:
        if self._producer is None:
            return await self._init_producer()
        if self._attempt is None:
            self._begin(self._transaction_promises.begin(self._transaction))
            return True
        if self._unsent:
            return await self._send(*self._unsent[0])
        if self._moves_cursor:
            return await self._move_cursor(self._attempt)
        return await self._end(self._attempt)

    def _forget(self) -> None:
        self._producer = self._attempt = None
        self._sequences = {}

    async def _init_producer(self) -> bool:
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

    def _begin(self, attempt: TransactionAttempt) -> None:
        count = self.random.choice((1, 2, 4))
        self._attempt = attempt
        self._is_commit = None
        self._added = set()
        self._is_group_added = False
        self._moves_cursor = attempt.moves_cursor = self.random.random() < 0.4
        self._unsent = [(self.random.choice(ALL_PARTITIONS), self._bodies(attempt)) for _ in range(count)]

    def _bodies(self, attempt: TransactionAttempt) -> list[bytes]:
        self._number += 1
        padding = bytes(self.random.choice((0, 10, 400)))
        count = self.random.choice((1, 1, 3))
        bodies = [f"{self.name} {attempt.serial}.{self._number}.{part} ".encode() + padding for part in range(count)]
        self._transaction_promises.asked(attempt, bodies)
        return bodies

    def _check(self, code: int) -> bool:
        """Returns whether the request succeeded. If not, it is repeated, unless another producer has the transactional
        id."""
        if code in _FENCED:
            self.note(f"gets {Code(code).name} in {self._attempt}")
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
        response_data = response.responses[0].partition_responses[0]
        self.note(
            f"is answered {response_data.error_code} {response_data.base_offset} for {bodies[0][:25]!r} to {partition}"
        )
        if not self._check(response_data.error_code):
            return False
        self._sequences[partition] = sequence + len(bodies)
        self._transaction_promises.acknowledged(partition, response_data.base_offset, bodies)
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

    async def _move_cursor(self, attempt: TransactionAttempt) -> bool:
        """The number of the transaction is the offset: each is higher than those before it."""
        group = group_of(self._transaction)
        if self._is_older and not self._is_group_added:
            added = AddOffsetsToTxnRequest(self._transaction, *self._identity(), group)
            if not self._check((await self.ask(AddOffsetsToTxnResponse, added)).error_code):
                return False
            self._is_group_added = True
        name, number = CURSOR
        topic = TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(number, attempt.serial, -1, "")])
        request = TxnOffsetCommitRequest(self._transaction, group, *self._identity(), topics=[topic])
        response = await self.ask(TxnOffsetCommitResponse, request)
        if not self._check(response.topics[0].partitions[0].error_code):
            return False
        self._moves_cursor = False
        return True

    async def _end(self, attempt: TransactionAttempt) -> bool:
        if self._is_commit is None:
            self._is_commit = self.random.random() < 0.7
        if self._is_commit:
            attempt.outcome = Outcome.UNKNOWN
        request = EndTxnRequest(self._transaction, *self._identity(), self._is_commit)
        response = await self.ask(EndTxnResponse, request)
        self.note(f"is answered {response.error_code} to the end of {attempt}, commit: {self._is_commit}")
        if response.error_code == Code.INVALID_TXN_STATE:
            raise Fenced  # timed out and aborted
        if not self._check(response.error_code):
            return False
        if self._is_commit:
            attempt.outcome = Outcome.COMMITTED
        if not self._is_older:
            self._become(response.producer_id, response.producer_epoch)
        self._attempt = None
        return True
