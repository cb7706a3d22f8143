"""Which front-end listens where. The one place that names them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trimq.clock import Clock
from trimq.config import Address, Advertised, RocketMQ, Settings, advertised_address
from trimq.core.api.commit_log_groups import CommitLogGroupAdmin
from trimq.core.api.records import RecordsApi
from trimq.core.assembly.core import Core
from trimq.metrics import Metrics
from trimq.protocols.client_counters import CountsOfAll
from trimq.protocols.contract import FrontEnd
from trimq.protocols.kafka.front_end import KafkaFrontEnd
from trimq.server.http.commit_log_topics import CommitLogTopicsApi
from trimq.server.http.front_end import HttpFrontEnd
from trimq.server.optional_packages import require_installed

if TYPE_CHECKING:
    from trimq.protocols.rocketmq.front_end import RocketMQFrontEnds


@dataclass(frozen=True, slots=True)
class FrontEndParts:
    """What a front-end is built from."""

    settings: Settings
    core: Core
    clock: Clock
    metrics: Metrics
    counts: CountsOfAll
    rng: random.Random
    is_ready: Callable[[], bool]


MakeFrontEnd = Callable[[FrontEndParts], FrontEnd]


class PlannedListener(NamedTuple):
    address: Address
    make: MakeFrontEnd
    below: str = ""
    """The listener whose port is known only when it is bound: the second below that is taken, where it is free."""


ListenerPlan = Callable[[Settings], Mapping[str, PlannedListener]]


# Those that tell whether the broker is ready do so until everything else has stopped.
LAST_TO_STOP = ("http",)


def configured_front_ends(settings: Settings) -> dict[str, PlannedListener]:
    """By the names that the ready file uses; those that are off are left out."""
    rocketmq = _RocketMQ()
    wanted: dict[str, tuple[Address | None, MakeFrontEnd]] = {
        "kafka": (settings.kafka.listen, _kafka),
        "amqp": (settings.amqp.listen, _amqp),
        "rocketmq": (settings.rocketmq.listen, rocketmq.name_server),
        "rocketmq_broker": (settings.rocketmq.broker_listen, rocketmq.broker),
        "rocketmq_vip": (_vip_address(settings.rocketmq), rocketmq.vip),
        "rocketmq_grpc": (settings.rocketmq.grpc_listen, rocketmq.grpc),
        "http": (settings.http.listen, _http),
    }
    planned = {name: PlannedListener(address, make) for name, (address, make) in wanted.items() if address is not None}
    vip = planned.get("rocketmq_vip")
    if vip is not None and vip.address.port == 0:
        planned["rocketmq_vip"] = vip._replace(below="rocketmq_broker")
    return planned


def _kafka(parts: FrontEndParts) -> FrontEnd:
    return KafkaFrontEnd(parts.core.broker, parts.core.authenticator, parts.clock, parts.counts.of("kafka"))


def _amqp(parts: FrontEndParts) -> FrontEnd:
    # Loaded where it is wanted: a start without it need not wait for it.
    from trimq.protocols.amqp.front_end import AmqpFrontEnd

    core = parts.core
    cluster_name = f"trimq@{core.cluster.id}"
    return AmqpFrontEnd(core.broker, core.authenticator, parts.clock, parts.settings.amqp, parts.rng, cluster_name)


class _RocketMQ:
    """The front-ends of RocketMQ, which share what they know."""

    def __init__(self) -> None:
        self._doors: RocketMQFrontEnds | None = None

    def _open(self, parts: FrontEndParts) -> RocketMQFrontEnds:
        from trimq.protocols.rocketmq.front_end import RocketMQFrontEnds  # as above

        if self._doors is None:
            commit_log_service = parts.core.commit_log_service
            assert commit_log_service is not None, "it is opened where one of these listens"
            counts = parts.counts.of("rocketmq")
            self._doors = RocketMQFrontEnds(
                parts.settings, commit_log_service.commit_log_api, parts.core.cluster, parts.clock, counts
            )
        return self._doors

    def name_server(self, parts: FrontEndParts) -> FrontEnd:
        return self._open(parts).name_server()

    def broker(self, parts: FrontEndParts) -> FrontEnd:
        return self._open(parts).broker()

    def vip(self, parts: FrontEndParts) -> FrontEnd:
        return self._open(parts).vip()

    def grpc(self, parts: FrontEndParts) -> FrontEnd:
        require_installed("rocketmq.grpc_listen")
        from trimq.protocols.grpc.front_end import GrpcTransport, limits_of  # as above

        settings = parts.settings
        doors = self._open(parts)
        front_end = doors.grpc(settings.limits.connections)
        return GrpcTransport(front_end, limits_of(settings), parts.clock.liveness, doors.held_bytes)


def _vip_address(settings: RocketMQ) -> Address | None:
    """Old clients send to the second port below the broker's. 0: which that is turns out when it is bound."""
    broker = settings.broker_listen if settings.old_clients else None
    if broker is None or broker.port in (1, 2):
        return None
    return Address(broker.host, max(broker.port - 2, 0))


def _http(parts: FrontEndParts) -> FrontEnd:
    core = parts.core
    return HttpFrontEnd(
        core.broker,
        record_reader_of(core),
        commit_log_groups_of(core),
        core.authenticator,
        parts.metrics,
        parts.is_ready,
        _shared_topics(parts),
        core.gate.write_refusal_reason,
    )


def _shared_topics(parts: FrontEndParts) -> CommitLogTopicsApi | None:
    if parts.core.commit_log_service is None:
        return None
    from trimq.protocols.rocketmq.state.system_topics import protected_topics

    given = parts.settings.rocketmq
    own = protected_topics(given.cluster_name, given.broker_name)
    return CommitLogTopicsApi(parts.core.commit_log_service.commit_log_api, own.__contains__)


def record_reader_of(core: Core) -> RecordsApi:
    return RecordsApi(core.broker, None if core.commit_log_service is None else core.commit_log_service.commit_log_api)


def commit_log_groups_of(core: Core) -> CommitLogGroupAdmin | None:
    return None if core.commit_log_service is None else core.commit_log_service.commit_log_api.group_admin


def advertised_addresses(settings: Settings, bound: Mapping[str, Address]) -> dict[str, Address]:
    """What clients of each protocol are told to connect to."""
    rocketmq = settings.rocketmq.advertise
    advertised = {
        "kafka": settings.kafka.advertise,
        "rocketmq_broker": rocketmq,
        # Its port is that of the broker: here it is the one that was bound.
        "rocketmq_grpc": None if rocketmq is None else Advertised(rocketmq.host),
    }
    return {name: advertised_address(advertised.get(name), address) for name, address in bound.items()}
