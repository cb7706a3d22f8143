"""RocketMQ front-end over remoting: one conversation per connection; dispatches each command to the handler of its
code. Name server and broker share their services."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

from trimq.clock import Clock
from trimq.config import RocketMQ as RocketMQSettings
from trimq.config import Settings
from trimq.core.api.acl_entries import AclEntryApi
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.api.foreign_topics import ForeignTopicApi
from trimq.core.api.users import UserApi
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.metadata.cluster import Cluster
from trimq.core.security.login_delays import source_of
from trimq.core.security.signatures import Signatures
from trimq.errors import OtherHome, ProtocolError, Refusal
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.schedule import parse_levels
from trimq.formats.rocketmq_unit.ttl import EXPIRY_PROPERTIES
from trimq.model import ANONYMOUS, Caller
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import ConnectionDetails, Parts, Reply, SessionControl
from trimq.protocols.rocketmq.clients.group_listing import ClientMemberSource
from trimq.protocols.rocketmq.clients.queue_locks import LockLimits, QueueLocks
from trimq.protocols.rocketmq.clients.registry import ClientRegistry
from trimq.protocols.rocketmq.clients.requests_to_clients import ClientRequests
from trimq.protocols.rocketmq.clients.sticky_assignments import StickyAssignments
from trimq.protocols.rocketmq.config_files import ConfigFiles
from trimq.protocols.rocketmq.handlers.context import (
    ConsumeServices,
    Context,
    Handler,
    NamingServices,
    RocketMQServices,
    SendServices,
)
from trimq.protocols.rocketmq.handlers.send import SPECIAL_PROPERTIES, added_properties
from trimq.protocols.rocketmq.handlers.send_batch import (
    SEND_CODE,
    SEND_HEADER_PREFIXES,
    SendBatcher,
    decode_request,
    decode_signed_request,
)
from trimq.protocols.rocketmq.handlers.tables import BROKER, NAME_SERVER, OF_REGISTRANTS, VIP, WITH_LARGE_BODIES
from trimq.protocols.rocketmq.name_server.broker_registry import BrokerRegistry
from trimq.protocols.rocketmq.name_server.own_routes import OwnRoutes
from trimq.protocols.rocketmq.name_server.registrar import Registrar
from trimq.protocols.rocketmq.schedule.fast_path import DelayedPropertyTemplates
from trimq.protocols.rocketmq.schedule.scheduler import DelayScheduler
from trimq.protocols.rocketmq.state.callers import CommandCallers
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.state.incremental_search import IncrementalSearches
from trimq.protocols.rocketmq.state.offset_resets import OffsetResets
from trimq.protocols.rocketmq.state.put_times import PutTimes
from trimq.protocols.rocketmq.state.sent_ids import SentIds
from trimq.protocols.rocketmq.state.statistics import Traffic
from trimq.protocols.rocketmq.state.system_topics import system_topics
from trimq.protocols.rocketmq.transactions.check_back import check_back_settings
from trimq.protocols.rocketmq.transactions.transactions import Transactions
from trimq.protocols.rocketmq.waiting.flush_timeout import FlushTimeouts
from trimq.protocols.rocketmq.waiting.pop_requests import PollCounts, PopServices
from trimq.protocols.rocketmq.wire.codes import ResponseCode
from trimq.protocols.rocketmq.wire.fast_properties import PropertyTemplates
from trimq.protocols.rocketmq.wire.headers import SignedSendCommand
from trimq.protocols.rocketmq.wire.replies import reply, reply_refused
from trimq.wire.extension import ONCE
from trimq.wire.receive_buffer import ReceiveMemory
from trimq.wire.remoting import ONE_WAY, RESPONSE, BadHeader, Command, RemotingConnection

if TYPE_CHECKING:
    from trimq.protocols.rocketmq.grpc.front_end import GrpcFrontEnd

log = logging.getLogger(__name__)

PROTOCOL = "rocketmq"

_NOWHERE = pack_host("127.0.0.1", 0)


class RocketMQConversation:
    def __init__(self, connection: RemotingConnection, context: Context, handlers: Mapping[int, Handler]) -> None:
        self._connection = connection
        self._context = context
        self._handlers = handlers
        self._callers = CommandCallers(context.services.signatures, context.caller)
        self._access = context.services.signatures.access
        self._sends = SendBatcher(context) if SEND_CODE in handlers else None
        self.get_buffer = connection.get_buffer
        self.buffer_updated = connection.buffer_updated
        self.release_memory = connection.release_memory

    def identify(self, principal: str) -> None:
        """As in RocketMQ, a certificate names no user: each request is signed."""

    def next_event(self) -> Command | SendBatcher | None:
        sends, connection = self._sends, self._connection
        if sends is not None:
            if self._access.is_enforced:
                connection.read_matching(SEND_HEADER_PREFIXES, decode_signed_request, self._take_signed)
            else:
                connection.read_matching(SEND_HEADER_PREFIXES, decode_request, sends.take)
            if sends.asked:
                return sends
        return connection.next_event()

    def _take_signed(self, signed: SignedSendCommand, body: memoryview) -> bool:
        assert self._sends is not None
        return self._sends.take_signed(signed, body, self._callers)

    def handle(self, event: object) -> Reply | None:
        if isinstance(event, SendBatcher):
            return event.send()
        assert isinstance(event, Command)
        flag = event.flag
        if flag & RESPONSE:
            self._context.services.client_requests.response_received(self._context.outlet, event)
            return None
        made = self._answer(event)
        if flag & ONE_WAY and made is not None:
            made.cancel()  # a one-way request gets no response
            return None
        return made

    def _answer(self, command: Command) -> Reply | None:
        handler = self._handlers.get(command.code)
        if handler is None:
            return reply(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {command.code} not supported"
            )
        limit = self._context.services.settings.command_bytes
        if len(command.body) > limit and command.code not in WITH_LARGE_BODIES:
            reason = f"the body has {len(command.body)} bytes, rocketmq.command_bytes allows {limit}"
            return reply(command, ResponseCode.SYSTEM_ERROR, remark=reason)
        try:
            self._callers.identify(self._context, command)
            if command.code not in OF_REGISTRANTS:
                self._context.commit_log.admin.require_known(self._context.caller)
            return handler(self._context, command)
        except Refusal as refusal:
            return reply_refused(command, refusal)
        except BadHeader as error:
            return reply(command, ResponseCode.SYSTEM_ERROR, remark=str(error))

    def on_congestion_end(self) -> None:
        """Nothing to resume: notifications are few and short, and are never held back."""

    def closing_parts(self, error: ProtocolError) -> Parts:
        """Remoting has no closing message; the connection just closes."""
        return []

    def describe(self) -> ConnectionDetails:
        caller = self._context.caller
        return ConnectionDetails(caller.principal, client_id=caller.client_id)

    def closed(self) -> None:
        self._connection.drop()
        self._context.services.clients.connection_closed(self._context.outlet)
        self._context.services.client_requests.connection_closed(self._context.outlet)
        self._context.services.naming.registry.connection_closed(self._context.outlet)


class RocketMQFrontEnd:
    """Listener of the name server, of the broker, or of the broker's VIP channel (port for old clients)."""

    def __init__(self, services: RocketMQServices, handlers: Mapping[int, Handler], held_bytes: ReceiveMemory) -> None:
        self._services = services
        self._handlers = handlers
        self._held_bytes = held_bytes

    def open_conversation(self, address: str, outlet: SessionControl) -> RocketMQConversation:
        caller = Caller(principal=ANONYMOUS, client_id="", address=address, protocol=PROTOCOL)
        settings = self._services.settings
        connection = RemotingConnection(settings.frame_bytes, settings.header_bytes, self._held_bytes)
        connection.memory.attach(source_of(address), lambda reason: outlet.abort(reason))
        return RocketMQConversation(connection, Context(self._services, caller, outlet, _host(address)), self._handlers)


def _host(address: str) -> bytes:
    """Client address in the binary form that messages carry."""
    host, _, port = address.rpartition(":")
    try:
        return pack_host(host.strip("[]"), int(port))
    except ValueError:
        return _NOWHERE


def _prepare_topics(topic_api: CommitLogTopicApi, given: RocketMQSettings, levels: int) -> None:
    for definition in system_topics(given.cluster_name, given.broker_name, given.default_queues, levels):
        try:
            topic_api.prepare(definition)
        except OtherHome as refusal:
            log.warning("RocketMQ system topic not created, features that need it will fail (%s)", refusal)


class RocketMQFrontEnds:
    """Creates the RocketMQ front-ends of one broker, which share their services."""

    def __init__(
        self,
        settings: Settings,
        commit_log: CommitLogApi,
        cluster: Cluster,
        clock: Clock,
        counts: Counts,
        signatures: Signatures,
        users: UserApi,
        acl_entries: AclEntryApi,
        foreign_topics: ForeignTopicApi,
    ) -> None:
        # Seeds the ids and queue choices: they need only differ from those of the previous run.
        rng = random.Random(clock.message.now_ms())
        identity = Identity(settings, cluster)
        clients = ClientRegistry(clock.liveness, count(1).__next__)
        calls = ClientRequests(clock.liveness, clients.next_opaque)
        levels_ms = parse_levels(settings.rocketmq.delay_levels)
        delays = DelayScheduler(commit_log, clock.message, identity, levels_ms, settings.rocketmq.max_delay_ms)
        given = settings.rocketmq
        locks = QueueLocks(clock.liveness, LockLimits(given.group_locks, given.queue_locks))
        added = added_properties(given.cluster_name)
        self._registrar: Registrar | None = None
        self.held_bytes = ReceiveMemory(given.received_bytes)
        """Receive memory shared by all listeners, including gRPC."""
        transactions = Transactions(
            commit_log, clock.message, identity, delays, clients, rng, check_back_settings(given)
        )
        registry = BrokerRegistry(clock.liveness, given.registered_brokers, given.registered_topics)
        traffic, resets, put_times = Traffic(), OffsetResets(), PutTimes()
        sending = SendServices(
            scheduler=delays,
            transactions=transactions,
            sent_ids=SentIds(given.remembered_ids),
            flush_timeouts=FlushTimeouts(
                clock.liveness,
                given.flush_timeout_ms,
                commit_log.messages.on_durable,
                put_times,
                settings.flush == "pooled",
            ),
            put_times=put_times,
            property_templates=PropertyTemplates(added, SPECIAL_PROPERTIES),
            batch_templates=PropertyTemplates("", EXPIRY_PROPERTIES | {ONCE}),
            delayed_templates=DelayedPropertyTemplates(delays, added, SPECIAL_PROPERTIES),
            is_synced=settings.flush == "sync",
            is_pooled=settings.flush == "pooled",
        )
        consuming = ConsumeServices(
            locks=locks,
            offset_resets=resets,
            sticky=StickyAssignments(),
            pop=PopServices(
                commit_log.pop_service, commit_log.messages.warm, clock, counts, traffic, resets, PollCounts()
            ),
            searches=IncrementalSearches(clock.liveness),
        )
        self._services = RocketMQServices(
            commit_log=commit_log,
            clock=clock,
            counts=counts,
            settings=given,
            signatures=signatures,
            users=users,
            acl_entries=acl_entries,
            identity=identity,
            rng=rng,
            traffic=traffic,
            clients=clients,
            client_requests=calls,
            sending=sending,
            consuming=consuming,
            naming=NamingServices(registry, OwnRoutes(commit_log.topics, foreign_topics, identity)),
            foreign_topics=foreign_topics,
            started_ms=clock.message.now_ms(),
        )
        commit_log.group_admin.set_member_source(ClientMemberSource(clients, traffic, resets))
        commit_log.topics.on_delete(self._forget_topic)
        config = ConfigFiles(commit_log.topics, commit_log.groups, commit_log.config, clock, given.config_save_ms)
        config.start()
        _prepare_topics(commit_log.topics, given, len(levels_ms))
        commit_log.pop_service.start(lambda: identity.store_host)
        foreign_topics.start(lambda: identity.store_host)
        # Starts once writes are accepted: a delivery refused before that would be retried behind messages due later.
        commit_log.lifecycle.on_start(delays.start)
        transactions.start()
        commit_log.retention.add(delays)
        commit_log.retention.add(transactions)
        for stop in (delays.stop, transactions.stop, config.stop, self._services.consuming.searches.stop):
            commit_log.lifecycle.on_stop(stop)

    def _forget_topic(self, topic: CommitLogTopic) -> None:
        self._services.traffic.forget_topic(topic.name.name)
        self._services.consuming.offset_resets.forget_topic(topic.id)
        self._services.sending.sent_ids.forget_topic(topic.name.name)

    def name_server(self) -> RocketMQFrontEnd:
        return RocketMQFrontEnd(self._services, NAME_SERVER, self.held_bytes)

    def broker(self) -> RocketMQFrontEnd:
        return RocketMQFrontEnd(self._services, BROKER, self.held_bytes)

    def vip(self) -> RocketMQFrontEnd:
        return RocketMQFrontEnd(self._services, VIP, self.held_bytes)

    def registrar(self) -> Registrar:
        """Registers this broker with other name servers, over connections that the server opens."""
        if self._registrar is None:
            services, limit = self._services, self._services.settings.frame_bytes
            self._registrar = Registrar(
                services.commit_log.topics, services.identity, services.clock, limit, self.held_bytes
            )
        return self._registrar

    def grpc(self, client_limit: int) -> GrpcFrontEnd:
        # Imported only on use, since it imports protobuf.
        from trimq.protocols.rocketmq.grpc.front_end import GrpcFrontEnd

        return GrpcFrontEnd(self._services, client_limit)
