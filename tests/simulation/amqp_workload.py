"""AMQP sessions with the real broker in the simulation: queues of every kind, confirms, acknowledgements and dead
letters, under all faults of the simulation."""

from __future__ import annotations

from random import Random

from amqp_clients import AMQP_PORT, AmqpClient, Auditor, Consumer, Publisher
from amqp_promises import DEAD, AmqpPromises, Kind
from broker_lives import BrokerLives
from broker_promises import BrokerPromises
from no_rocketmq import NO_ROCKETMQ
from simulated_trace import SimulationFailure
from simulation import Death
from surroundings import Surroundings

from trimq.config import Address, Amqp, Http, Kafka, Settings, Storage
from trimq.server.front_ends import configured_front_ends
from trimq.server.node import Node

KINDS = (
    Kind("work", buries=True),
    Kind("plain"),
    Kind("quorum", is_quorum=True),
    Kind("tried", is_quorum=True, buries=True, may_expire=True),
    Kind("brief", buries=True, may_expire=True),
    Kind("passing", is_durable=False),
)


def choose_settings(random: Random) -> Settings:
    """Returns settings with small sizes and synchronous flush."""
    choose = random.choice
    return Settings(
        kafka=Kafka(listen=None),
        amqp=Amqp(listen=Address("127.0.0.1", AMQP_PORT), consumer_timeout_ms=0),
        http=Http(listen=None),
        rocketmq=NO_ROCKETMQ,
        storage=Storage(
            queue_segment_bytes=choose((1_024, 4_000, 30_000)),
            queue_memory_bytes=choose((0, 3_000, 1 << 20)),
            disk_pressure_percent=100,
            checkpoint_bytes=choose((1, 700, 10_000, 1 << 26)),
            syncfs_threshold=choose((1, 4, 64)),
        ),
    )


class AmqpWorkload(BrokerLives):
    def __init__(self, random: Random) -> None:
        settings = choose_settings(random)
        snapshot_bytes = random.choice((500, 5_000, 1 << 16))
        super().__init__(random, settings, configured_front_ends, snapshot_bytes, Surroundings(BrokerPromises()))
        self._promises = AmqpPromises()
        self._last_death: Death | None = None
        self._stopped_whole = False

    def _source(self, name: str) -> Random:
        return Random(f"{name} {self._random.random()}")

    def _make_clients(self) -> list[AmqpClient]:
        kinds = [*self._random.sample(KINDS, self._random.randint(1, 3)), Kind(DEAD)]
        parts = self._surroundings, self._promises

        def made(kind: type[AmqpClient], name: str) -> AmqpClient:
            return kind(name, self._source(name), *parts, kinds)

        clients = [made(Publisher, f"publisher{number}") for number in range(self._random.randint(1, 2))]
        clients += [made(Consumer, f"consumer{number}") for number in range(self._random.randint(1, 3))]
        auditor = made(Auditor, "auditor")
        assert isinstance(auditor, Auditor)
        auditor.is_busy = lambda: self.still_waiting() != [auditor.name]  # type: ignore[method-assign]
        return [*clients, auditor]

    async def stop_broker(self, broker: Node) -> None:
        await super().stop_broker(broker)
        # Acks whose write failed cause redeliveries after a clean stop, too.
        logs = broker.core.queues.parts.queues.logs()
        self._stopped_whole = not any(part.unwritten for log in logs for part in log.segments)

    def died(self, way: Death) -> None:
        # After a stop of a broker that did not start, the state is still that of the crash before.
        if self._node is not None or way is not Death.STOP:
            self._last_death = way
        super().died(way)

    def _check_recovered(self, node: Node) -> None:
        found: dict[str, list[bytes]] = {}
        for queue in node.core.queues.parts.queues:
            found[queue.name] = []
            for log in queue.logs:
                if log.live != len(bodies := list(_bodies(log))):
                    raise SimulationFailure(f"{queue.name}: {len(bodies)} are readable, {log.live} are counted")
                found[queue.name] += bodies
        self._promises.recovered(found, self._last_death is Death.STOP and self._stopped_whole)


def _bodies(log):  # type: ignore[no-untyped-def]
    offset = log.next_live(0)
    while offset is not None:
        yield log.peek(offset).content.body
        offset = log.next_live(offset + 1)
