"""Plan of the listeners: address and front-end of each. The only module that knows all front-ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trimq.clock import Clock
from trimq.config import Address, Advertised, RocketMQ, Settings, advertised_address, parse_address
from trimq.core.api.commit_log_group_admin import CommitLogGroupAdmin
from trimq.core.api.group_lag import GroupLagApi
from trimq.core.api.records import RecordsApi
from trimq.core.assembly.core import Core
from trimq.metrics import Metrics
from trimq.protocols.client_counters import CountsOfAll
from trimq.protocols.contract import FrontEnd
from trimq.protocols.kafka.front_end import KafkaFrontEnd
from trimq.protocols.kafka.logins.mechanisms import Mechanisms
from trimq.server.connection.connections import Connections
from trimq.server.http.commit_log_topics import CommitLogTopicsApi
from trimq.server.http.connections import ConnectionsApi
from trimq.server.http.firehose import FirehoseSwitchApi
from trimq.server.http.front_end import HttpFrontEnd
from trimq.server.http.limits import LimitsApi
from trimq.server.http.tenant_limits import TenantLimitsApi
from trimq.server.http.topic_permissions import TopicPermissionsApi
from trimq.server.optional_packages import require_installed

if TYPE_CHECKING:
    from trimq.protocols.rocketmq.front_end import RocketMQFrontEnds


@dataclass(frozen=True, slots=True)
class FrontEndParts:
    """Dependencies of a front-end."""

    settings: Settings
    core: Core
    clock: Clock
    metrics: Metrics
    counts: CountsOfAll
    rng: random.Random
    is_ready: Callable[[], bool]
    connections: Connections


MakeFrontEnd = Callable[[FrontEndParts], FrontEnd]


class PlannedListener(NamedTuple):
    address: Address
    make: MakeFrontEnd
    below: str = ""
    """Name of another listener with port 0: this one listens two ports below its bound port, if that port is free."""
    is_outgoing: bool = False
    """Not a listener: the broker connects to this address itself, and keeps the connection."""


ListenerPlan = Callable[[Settings], Mapping[str, PlannedListener]]


# HTTP serves `/readyz`, so it must stay available until everything else has stopped.
LAST_TO_STOP = ("http",)


def configured_front_ends(settings: Settings) -> dict[str, PlannedListener]:
    """Returns the planned listeners by their names in the ready file, without those that are off."""
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
    if settings.rocketmq.name_servers and settings.rocketmq.broker_listen is not None:
        for number, text in enumerate(settings.rocketmq.name_servers.split(";"), 1):
            address = parse_address(text)
            planned[f"rocketmq_name_server_{number}"] = PlannedListener(address, rocketmq.registrar, is_outgoing=True)
    return planned


def _kafka(parts: FrontEndParts) -> FrontEnd:
    core = parts.core
    mechanisms = Mechanisms(
        core.authenticator, core.credentials.scram, parts.rng.randbytes, core.login_log, core.bearer_tokens
    )
    return KafkaFrontEnd(core.broker, core.authenticator, parts.clock, parts.counts.of("kafka"), mechanisms)


def _amqp(parts: FrontEndParts) -> FrontEnd:
    # Imported here, so that a start without this listener does not load it.
    from trimq.protocols.amqp.front_end import AmqpFrontEnd

    core = parts.core
    cluster_name = f"trimq@{core.cluster.id}"
    settings, rng = parts.settings.amqp, parts.rng
    return AmqpFrontEnd(core.broker, core.authenticator, parts.clock, settings, rng, cluster_name, core.login_log)


class _RocketMQ:
    """Front-ends of RocketMQ, which share their state."""

    def __init__(self) -> None:
        self._doors: RocketMQFrontEnds | None = None

    def _open(self, parts: FrontEndParts) -> RocketMQFrontEnds:
        from trimq.protocols.rocketmq.front_end import RocketMQFrontEnds  # as above

        if self._doors is None:
            commit_log_service = parts.core.commit_log_service
            assert commit_log_service is not None, "the commit log is open if a RocketMQ listener is on"
            counts = parts.counts.of("rocketmq")
            self._doors = RocketMQFrontEnds(
                parts.settings,
                commit_log_service.commit_log,
                parts.core.cluster,
                parts.clock,
                counts,
                parts.core.signatures,
                parts.core.broker.users,
                parts.core.broker.acl_entries,
            )
        return self._doors

    def name_server(self, parts: FrontEndParts) -> FrontEnd:
        return self._open(parts).name_server()

    def broker(self, parts: FrontEndParts) -> FrontEnd:
        return self._open(parts).broker()

    def vip(self, parts: FrontEndParts) -> FrontEnd:
        return self._open(parts).vip()

    def registrar(self, parts: FrontEndParts) -> FrontEnd:
        return self._open(parts).registrar()

    def grpc(self, parts: FrontEndParts) -> FrontEnd:
        require_installed("rocketmq.grpc_listen")
        from trimq.protocols.grpc.front_end import GrpcTransport, limits_of  # as above

        settings = parts.settings
        doors = self._open(parts)
        front_end = doors.grpc(settings.limits.connections)
        return GrpcTransport(front_end, limits_of(settings), parts.clock.liveness, doors.held_bytes)


def _vip_address(settings: RocketMQ) -> Address | None:
    """Returns the address two ports below the broker's, to which old clients send (VIP channel). Port 0 if the port of
    the broker is not known before it is bound."""
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
        core.login_log,
        parts.metrics,
        parts.is_ready,
        _shared_topics(parts),
        core.gate.write_refusal_reason,
        (
            ConnectionsApi(core.broker, parts.connections),
            LimitsApi(core.broker),
            FirehoseSwitchApi(core.broker),
            TenantLimitsApi(core.broker),
            TopicPermissionsApi(core.broker),
        ),
        parts.clock.liveness,
    )


def _shared_topics(parts: FrontEndParts) -> CommitLogTopicsApi | None:
    if parts.core.commit_log_service is None:
        return None
    from trimq.protocols.rocketmq.state.system_topics import protected_topics

    given = parts.settings.rocketmq
    own = protected_topics(given.cluster_name, given.broker_name)
    commit_log = parts.core.commit_log_service.commit_log
    return CommitLogTopicsApi(commit_log.topics, commit_log.groups, own.__contains__)


def record_reader_of(core: Core) -> RecordsApi:
    return RecordsApi(core.broker, None if core.commit_log_service is None else core.commit_log_service.commit_log)


def group_lag_of(core: Core) -> GroupLagApi:
    return GroupLagApi(core.broker.groups, record_reader_of(core))


def commit_log_groups_of(core: Core) -> CommitLogGroupAdmin | None:
    return None if core.commit_log_service is None else core.commit_log_service.commit_log.group_admin


def advertised_addresses(settings: Settings, bound: Mapping[str, Address]) -> dict[str, Address]:
    """Returns the addresses that the broker announces to clients, by listener."""
    rocketmq = settings.rocketmq.advertise
    advertised = {
        "kafka": settings.kafka.advertise,
        "rocketmq_broker": rocketmq,
        # The configured port is that of the remoting broker; gRPC announces its own bound port.
        "rocketmq_grpc": None if rocketmq is None else Advertised(rocketmq.host),
    }
    return {name: advertised_address(advertised.get(name), address) for name, address in bound.items()}
