"""Telemetry, Heartbeat, NotifyClientTermination.

Registers clients by the settings that they send, and responds with the settings that they must use. Heartbeats keep a
client registered.
Not served: PrintThreadStackTrace and VerifyMessage; the broker never sends them, and ignores their results."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from trimq.core.commit_log.groups import CommitLogGroup
from trimq.errors import AccessDenied, LoginFailed, Refusal
from trimq.protocols.contract import Parts, Reply, Sink
from trimq.protocols.rocketmq.clients.registry import Client, ConsumerGroup
from trimq.protocols.rocketmq.clients.subscriptions import Subscription
from trimq.protocols.rocketmq.grpc.clients.call import Call, reply, status
from trimq.protocols.rocketmq.grpc.clients.clients import GrpcClient, TelemetryOutlet
from trimq.protocols.rocketmq.grpc.clients.dialect import GRPC
from trimq.protocols.rocketmq.grpc.clients.name_rules import check_group, check_topic
from trimq.protocols.rocketmq.grpc.clients.settings import consumer_settings, producer_settings
from trimq.protocols.rocketmq.grpc.clients.text_rules import is_blank
from trimq.protocols.rocketmq.grpc.handlers.receive import check_expression
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal, GrpcStatusError
from trimq.protocols.rocketmq.grpc.wire.enums import ClientType, Code, FilterType
from trimq.wire.remoting import VERSION

_CONSUMERS = {
    ClientType.PUSH_CONSUMER: "CONSUME_PASSIVELY",
    ClientType.SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
}


class Telemetry:
    """One telemetry stream of a client."""

    def __init__(self, call: Call, sink: Sink) -> None:
        self._call = call
        self._sink = sink
        self._known: GrpcClient | None = None

    def receive(self, raw: bytes) -> Parts:
        """Returns the response to a command. Raises GrpcStatusError to end the stream."""
        try:
            command = wire.TelemetryCommand.FromString(raw)
        except DecodeError as error:
            raise GrpcStatusError("INVALID_ARGUMENT", f"invalid command: {error}") from None
        if command.WhichOneof("command") != "settings":
            return []
        if is_blank(self._call.client_id):
            missing = status(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
            return [wire.TelemetryCommand(status=missing).SerializeToString()]
        try:
            settings = self._negotiate(command.settings)
        except LoginFailed as refusal:
            raise GrpcStatusError("UNAUTHENTICATED", str(refusal)) from None
        except AccessDenied as refusal:
            raise GrpcStatusError("PERMISSION_DENIED", str(refusal)) from None
        except Refusal as refusal:
            raise GrpcStatusError("INVALID_ARGUMENT", str(refusal)) from None
        return [wire.TelemetryCommand(status=status(), settings=settings).SerializeToString()]

    def _negotiate(self, asked: Any) -> Any:
        call = self._call
        call.require_login()
        which = asked.WhichOneof("pub_sub")
        if which is None:
            raise GrpcStatusError("INVALID_ARGUMENT", "there is no publishing or subscription data in settings")
        if which == "publishing":
            for topic in asked.publishing.topics:
                check_topic(call, topic.name)
                call.commit_log.messages.require_write(call.caller, topic.name)
            settings = producer_settings(asked, call.services.settings.message_bytes)
        else:
            group = _known_group(call, asked)
            settings = consumer_settings(asked, group, call.services.sending.scheduler.levels_ms)
        self._known = known = _register(call, settings, self._sink)
        _join_groups(call, known)
        return settings

    def closed(self) -> None:
        """Closes the outlet. The client stays registered until it is forgotten, and may open another stream."""
        if self._known is not None and self._known.outlet.sink is self._sink:
            self._known.outlet.close()


def _known_group(call: Call, asked: Any) -> CommitLogGroup:
    """Refuses an unknown group, as the proxy of Apache RocketMQ does."""
    name = asked.subscription.group.name
    check_group(name)
    for entry in asked.subscription.subscriptions:
        check_expression(entry.expression)
    if asked.client_type not in _CONSUMERS:
        raise GrpcStatusError("INTERNAL", f"clients of type {asked.client_type} are not served as consumers")
    call.commit_log.groups.require_read(call.caller, name)
    found = call.commit_log.groups.find(call.caller, name)
    if found is None:
        raise GrpcRefusal(Code.CONSUMER_GROUP_NOT_FOUND, f"group not found: {name}")
    return found


def _register(call: Call, settings: Any, sink: Sink) -> GrpcClient:
    known = _find_own(call)
    outlet = TelemetryOutlet() if known is None else known.outlet
    client = Client(
        call.client_id,
        call.caller.address,
        call.language,
        VERSION,
        outlet,
        call.caller,
        dialect=GRPC,
        release=call.version,
    )
    known = call.known.register(client, outlet, settings)
    outlet.sink = sink
    return known


def _join_groups(call: Call, known: GrpcClient, named: str = "") -> None:
    """Registers the client as producer of its topics, or as member of the named group, by default that of its settings,
    where remoting's admin tools see it, too."""
    settings, clients = known.settings, call.services.clients
    if settings.WhichOneof("pub_sub") == "publishing":
        for topic in settings.publishing.topics:
            clients.add_producer(known.client, topic.name)
        return
    name = named or settings.subscription.group.name
    group = ConsumerGroup(name, _CONSUMERS.get(settings.client_type), is_told_of_members=False)
    wanted = [
        Subscription(
            entry.topic.name,
            entry.expression.expression or "*",
            call.services.clock.message.now_ms(),
            "SQL92" if entry.expression.type == FilterType.SQL else "TAG",
        )
        for entry in settings.subscription.subscriptions
    ]
    call.commit_log.groups.require_alone(group.name)
    clients.add_consumer(known.client, group, wanted)


def heartbeat(call: Call, request: Any) -> Reply:
    known = _require_known(call)
    name = request.group.name
    _check_kind(known, name)
    if known.settings.client_type in _CONSUMERS:
        call.commit_log.groups.require_read(call.caller, name)
        if call.commit_log.groups.find(call.caller, name) is None:
            raise GrpcRefusal(Code.ILLEGAL_CONSUMER_GROUP, f"group not found: {name}")
    call.known.touch(known)
    _join_groups(call, known, name)
    return reply(wire.HeartbeatResponse(status=status()))


def terminate(call: Call, request: Any) -> Reply:
    known = _require_known(call)
    call.known.forget(call.client_id)
    _check_kind(known, request.group.name)
    return reply(wire.NotifyClientTerminationResponse(status=status()))


def _check_kind(known: GrpcClient, group: str) -> None:
    """Refuses clients whose settings name another type than a producer or consumer. A consumer names a legal group."""
    kind = known.settings.client_type
    if kind in _CONSUMERS:
        check_group(group)
    elif kind != ClientType.PRODUCER:
        raise GrpcRefusal(Code.UNRECOGNIZED_CLIENT_TYPE, f"clients of type {kind} are neither producer nor consumer")


def _find_own(call: Call) -> GrpcClient | None:
    """Returns the client with the id of this call. Refuses the id if another user has registered it."""
    known = call.known.find(call.client_id)
    if known is not None and known.client.caller.principal != call.caller.principal:
        raise GrpcRefusal(Code.FORBIDDEN, "another user has registered this client id")
    return known


def _require_known(call: Call) -> GrpcClient:
    known = _find_own(call)
    if known is None:
        raise GrpcRefusal(Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
    return known
