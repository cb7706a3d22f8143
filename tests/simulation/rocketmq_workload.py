"""RocketMQ clients with the real broker in the simulation: plain, delayed, half and retried messages, under all faults
of the simulation."""

from __future__ import annotations

from random import Random

from broker_lives import BrokerLives
from broker_promises import BrokerPromises
from clients import Client
from rocketmq_clients import BROKER_PORT, Auditor, Decider, Delayer, Puller, Retrier, RocketMQClient, Sender
from rocketmq_promises import RETRY_PREFIX, RocketMQPromises
from simulated_trace import SimulationFailure
from surroundings import Surroundings

from trimq.config import Address, Amqp, Http, Kafka, RocketMQ, Settings, Storage
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.state.system_topics import system_topics
from trimq.server.front_ends import configured_front_ends
from trimq.server.node import Node

NAME_SERVER_PORT = 9876


def choose_settings(random: Random, grpc_listen: Address | None) -> Settings:
    """Returns settings with small sizes, without retention and with synchronous flush: all acknowledged messages must
    exist at the end."""
    choose = random.choice
    return Settings(
        kafka=Kafka(listen=None),
        amqp=Amqp(listen=None),
        http=Http(listen=None),
        rocketmq=RocketMQ(
            listen=Address("127.0.0.1", NAME_SERVER_PORT),
            broker_listen=Address("127.0.0.1", BROKER_PORT),
            grpc_listen=grpc_listen,
            old_clients=False,
            commit_file_bytes=choose((4_096, 20_000)),
            queue_file_entries=choose((4, 50)),
            index_keys=choose((16, 100)),
            delay_levels="1s 5s 10s",
            transaction_timeout_ms=choose((500, 3_000)),
            transaction_check_interval_ms=choose((500, 3_000)),
            transaction_check_max=1_000_000,
            retention_ms=1 << 60,
            commit_preallocate=True,
            commit_warm=True,
            commit_lock_memory=True,
            config_save_ms=choose((1_000, 60_000)),
        ),
        storage=Storage(
            disk_pressure_percent=100,
            checkpoint_bytes=choose((1, 700, 10_000, 1 << 26)),
            syncfs_threshold=choose((1, 4, 64)),
        ),
    )


class RocketMQWorkload(BrokerLives):
    grpc_listen: Address | None = None

    def __init__(self, random: Random) -> None:
        settings = choose_settings(random, self.grpc_listen)
        snapshot_bytes = random.choice((500, 5_000, 1 << 16))
        super().__init__(random, settings, configured_front_ends, snapshot_bytes, Surroundings(BrokerPromises()))
        self.message_promises = RocketMQPromises()
        given = settings.rocketmq
        own = system_topics(given.cluster_name, given.broker_name, given.default_queues, 3)
        self._own = frozenset(definition.name for definition in own)

    def _source(self, name: str) -> Random:
        return Random(f"{name} {self._random.random()}")

    def _make_clients(self) -> list[Client]:
        """There is always a sender and a reader; the other clients differ from world to world."""
        kinds: list[type[RocketMQClient]] = [Sender]
        kinds += [kind for kind in (Sender, Delayer, Decider, Decider, Puller, Retrier) if self._random.random() < 0.5]
        clients: list[Client] = []
        retriers = []
        for number, kind in enumerate(kinds):
            name = f"{kind.__name__.lower()}{number}"
            clients.append(kind(name, self._source(name), self._surroundings, self.message_promises))
            if kind is Retrier:
                retriers.append(f"{RETRY_PREFIX}{name}")
        clients.append(Auditor("auditor", self._source("auditor"), self._surroundings, self.message_promises, retriers))
        return clients

    def _check_recovered(self, node: Node) -> None:
        commit_log_service = node.core.commit_log_service
        assert commit_log_service is not None
        commit_log, store = commit_log_service.commit_log, commit_log_service._store
        found = {}
        for name, number in sorted(store.queues()):
            topic = commit_log.topics.find(SYSTEM, name)
            if topic is None:
                raise SimulationFailure(f"recovery found messages of {name}, but no such topic")
            stream = topic.stream(number)
            entries = stream.entries(0, stream.readable_end)
            found[name, number] = [bytes(stream.view(entry)) for entry in entries]
        self.message_promises.check_recovered(found, self._own, self._surroundings.now_ms())
        names = {topic.id: topic.name.name for topic in commit_log.topics.all(SYSTEM)}
        self.message_promises.check_cursors(
            {
                (group, names[id.topic], id.number): cursor.offset
                for group in commit_log.groups.cursor_groups(SYSTEM)
                for id, cursor in commit_log.groups.cursors(SYSTEM, group).items()
            }
        )
