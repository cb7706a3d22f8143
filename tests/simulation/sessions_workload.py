"""Sessions of Kafka clients with the real broker in the simulation: transactions and groups, under all faults of the
simulation."""

from __future__ import annotations

from random import Random

from assigned_group_clients import AssignedMember
from broker_lives import BrokerLives
from broker_promises import BrokerPromises
from classic_group_clients import ClassicMember
from clients import Client
from committed_readers import Auditor, CommittedReader, CursorReader
from group_promises import AssignedPromises, ClassicPromises, GroupPromises
from kafka_clients import KAFKA_PORT
from no_rocketmq import NO_ROCKETMQ
from session_clients import PARTITIONS
from surroundings import Surroundings
from transaction_clients import TransactionalProducer
from transaction_promises import TransactionPromises

from trimq.config import Address, Amqp, Http, Kafka, Settings, Storage
from trimq.server.front_ends import configured_front_ends
from trimq.server.node import Node


def choose_settings(random: Random) -> Settings:
    """Returns settings with small sizes, without retention and with synchronous flush: all acknowledged records must
    exist at the end."""
    choose = random.choice
    return Settings(
        kafka=Kafka(
            listen=Address("127.0.0.1", KAFKA_PORT),
            num_partitions=PARTITIONS,
            group_initial_rebalance_delay_ms=choose((0, 0, 3_000)),
        ),
        amqp=Amqp(listen=None),
        rocketmq=NO_ROCKETMQ,
        http=Http(listen=None),
        storage=Storage(
            segment_bytes=choose((1_024, 3_000, 20_000)),
            segment_ms=choose((2_000, 600_000)),
            index_interval_bytes=choose((0, 300)),
            retention_ms=-1,
            disk_pressure_percent=100,
            checkpoint_bytes=choose((1, 700, 10_000, 1 << 26)),
            syncfs_threshold=choose((1, 4, 64)),
        ),
    )


class SessionsWorkload(BrokerLives):
    def __init__(self, random: Random) -> None:
        settings = choose_settings(random)
        snapshot_bytes = random.choice((500, 5_000, 1 << 16))
        super().__init__(random, settings, configured_front_ends, snapshot_bytes, Surroundings(BrokerPromises()))
        self._transaction_promises = TransactionPromises()
        self._groups: list[GroupPromises] = []

    def _source(self, name: str) -> Random:
        return Random(f"{name} {self._random.random()}")

    def _make_clients(self) -> list[Client]:
        """A world has transactions, groups of either kind, or both."""
        rng = self._random.random()
        clients: list[Client] = self._make_producers() if rng < 0.55 else []
        if rng >= 0.45:
            clients += self._make_members()
        return clients

    def _make_members(self) -> list[Client]:
        clients: list[Client] = []
        kinds = self._random.choice((("classic",), ("assigned",), ("classic", "assigned")))
        for kind in kinds:
            for number in range(self._random.choice((1, 2, 3, 4))):
                clients.append(self._make_member(kind, f"{kind}{number}"))
        return clients

    def _make_member(self, kind: str, name: str) -> Client:
        group = next((group for group in self._groups if group.name == kind), None)
        if group is None:
            group = ClassicPromises(kind) if kind == "classic" else AssignedPromises(kind)
            self._groups.append(group)
        if isinstance(group, ClassicPromises):
            return ClassicMember(name, self._source(name), self._surroundings, group)
        assert isinstance(group, AssignedPromises)
        return AssignedMember(name, self._source(name), self._surroundings, group)

    def _make_producers(self) -> list[Client]:
        shared, transaction_promises, randint = self._surroundings, self._transaction_promises, self._random.randint
        names = [f"deal{number}" for number in range(randint(1, 2))]
        clients: list[Client] = []
        for number in range(randint(1, 3)):
            name = self._random.choice(names)
            clients.append(
                TransactionalProducer(f"producer{number}", self._source("producer"), shared, transaction_promises, name)
            )
        clients.append(CommittedReader("reader", self._source("reader"), shared, transaction_promises))
        clients.append(CursorReader("cursors", self._source("cursors"), shared, transaction_promises, names))
        clients.append(Auditor("auditor", self._source("auditor"), shared, transaction_promises, names))
        return clients

    def _check_recovered(self, node: Node) -> None:
        names = {topic.id: topic.name.name for topic in node.core.topics}
        for group in self._groups:
            cursors = node.core.cursors.all(group.name)
            group.check_recovered({(names[id.topic], id.number): cursor.offset for id, cursor in cursors.items()})
