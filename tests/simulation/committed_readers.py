"""Readers of committed records in the simulation, which skip aborted ones as Kafka's clients do; and an auditor that
reads everything at the end."""

from __future__ import annotations

from random import Random

from session_clients import ALL_PARTITIONS, Partition, SessionClient
from surroundings import Surroundings
from transaction_clients import CURSOR, group_of
from transaction_promises import TransactionPromises

from trimq.formats.kafka_batch.header import walk
from trimq.formats.kafka_batch.markers import read_control
from trimq.formats.kafka_batch.records import iterate_records, to_records
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from trimq.protocols.kafka.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from trimq.protocols.kafka.names.codes import Code

_READ_COMMITTED = 1


class CommittedReader(SessionClient):
    def __init__(
        self, name: str, random: Random, surroundings: Surroundings, transaction_promises: TransactionPromises
    ) -> None:
        super().__init__(name, random, surroundings)
        self.transaction_promises = transaction_promises
        self._place: tuple[Partition, int] = (ALL_PARTITIONS[0], 0)

    async def act(self) -> bool:
        partition, offset = self._place
        if self.random.random() < 0.3:
            partition = self.random.choice(ALL_PARTITIONS)
            offset = self.random.randint(0, self.transaction_promises.stable_end(partition))
        found = await self.fetch(partition, offset, self.random.choice((0, 100, 20_000)))
        if found is not None:
            self._place = (partition, found[1])
        return found is not None

    async def fetch(
        self, partition: Partition, offset: int, max_wait_ms: int
    ) -> tuple[list[tuple[int, bytes]], int, PartitionData] | None:
        """Returns committed records from `offset` on, the next offset, and the whole response; None if they cannot be
        read at the moment."""
        ids = await self.find_topics()
        if ids is None:
            return None
        name, number = partition
        asked = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=10_000)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self.random.choice((1, 1_000, 1 << 20)),
            isolation_level=_READ_COMMITTED,
            topics=[FetchTopic(topic_id=ids[name], partitions=[asked])],
        )
        least = self.transaction_promises.stable_end(partition)
        found = (await self.ask(FetchResponse, request)).responses[0].partitions[0]
        if found.error_code:
            self.expect(found.error_code)
            return None
        records, end = _committed(found, offset)
        self.transaction_promises.read(partition, offset, end, records, found.last_stable_offset, least)
        return records, end, found


def _committed(found: PartitionData, offset: int) -> tuple[list[tuple[int, bytes]], int]:
    data = bytes(found.records or b"")
    aborted = sorted(((each.first_offset, each.producer_id) for each in found.aborted_transactions or ()), reverse=True)
    hidden: set[int] = set()
    records: list[tuple[int, bytes]] = []
    end = offset
    for position, header in walk(data, 0, len(data)):
        while aborted and aborted[-1][0] <= header.last_offset:
            hidden.add(aborted.pop()[1])
        end = header.last_offset + 1
        if header.is_control:
            if _is_abort(data[position : position + header.size]):
                hidden.discard(header.producer_id)
        elif header.producer_id not in hidden:
            records += [(record.offset, record.body or b"") for record in to_records(data, position)]
    return [(at, body) for at, body in records if at >= offset], end


def _is_abort(batch: bytes) -> bool:
    marker = read_control(next(iter(iterate_records(batch))))
    return marker is not None and not marker.commit


class CursorReader(SessionClient):
    """Fetches stable cursors of the groups of transactions."""

    def __init__(
        self,
        name: str,
        random: Random,
        surroundings: Surroundings,
        transaction_promises: TransactionPromises,
        names: list[str],
    ) -> None:
        super().__init__(name, random, surroundings)
        self._transaction_promises = transaction_promises
        self._names = names

    async def act(self) -> bool:
        return await self.fetch(self.random.choice(self._names)) is not None

    async def fetch(self, name: str) -> int | None:
        """Returns None if the cursor is unstable or could not be fetched."""
        if await self.find_topics() is None:
            return None
        topic, number = CURSOR
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[number])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_of(name), topics=wanted)], require_stable=True
        )
        least = self._transaction_promises.min_cursor(name)
        response = (await self.ask(OffsetFetchResponse, request)).groups[0]
        code = response.error_code or response.topics[0].partitions[0].error_code
        if code:
            self.expect(code, Code.UNSTABLE_OFFSET_COMMIT)
            return None
        offset = max(response.topics[0].partitions[0].committed_offset, 0)
        self.note(f"finds the group of {name} at {offset}")
        self._transaction_promises.check_cursor(name, max(offset, 0), least)
        return offset


class Auditor(CommittedReader):
    """At the end: no transaction is open, and each is visible as a whole or not at all."""

    def __init__(
        self,
        name: str,
        random: Random,
        surroundings: Surroundings,
        transaction_promises: TransactionPromises,
        names: list[str],
    ) -> None:
        super().__init__(name, random, surroundings, transaction_promises)
        self._cursors = CursorReader(name, random, surroundings, transaction_promises, names)
        self._names = names

    async def act(self) -> bool:
        if not self.surroundings.is_finishing:
            await self.surroundings.pause(86_400)
            return False
        if self.transaction_promises.open_producers:
            return False
        shown: set[bytes] = set()
        for partition in ALL_PARTITIONS:
            found = await self._read_all(partition)
            if found is None:
                return False
            shown |= found
        cursors = {name: await self._cursors.fetch(name) for name in self._names}
        if any(offset is None for offset in cursors.values()):
            return False
        self.transaction_promises.check_all(shown, {name: offset or 0 for name, offset in cursors.items()})
        return True

    async def _read_all(self, partition: Partition) -> set[bytes] | None:
        offset = 0
        shown: set[bytes] = set()
        while True:
            found = await self.fetch(partition, offset, 0)
            if found is None:
                return None
            records, offset, response = found
            shown.update(body for _, body in records)
            if response.last_stable_offset < response.high_watermark:
                return None  # a transaction is open, within its time-out
            if offset == response.high_watermark:
                return shown
