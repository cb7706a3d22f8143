"""RocketMQ's gRPC front-end: decodes a call, passes it to its handler, and opens telemetry streams. Must not know the
transport (HTTP/2).
Not served: PullMessage, the calls about offsets and lite topics (UNIMPLEMENTED), and message priorities."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.model import ANONYMOUS, Caller
from trimq.protocols.contract import CallBatch, CallInfo, Parts, Reply, Sink
from trimq.protocols.rocketmq.grpc.clients.auto_renew import AutoRenewals
from trimq.protocols.rocketmq.grpc.clients.call import Call, Handler, refusal_status, reply
from trimq.protocols.rocketmq.grpc.clients.clients import GrpcClients, TelemetryOutlet
from trimq.protocols.rocketmq.grpc.clients.signers import CallSigners, refusal_of
from trimq.protocols.rocketmq.grpc.clients.text_rules import is_blank
from trimq.protocols.rocketmq.grpc.handlers import ack, recall, receive, route, send, telemetry, transactions
from trimq.protocols.rocketmq.grpc.handlers.ack_batch import AckBatcher
from trimq.protocols.rocketmq.grpc.handlers.send_batch import GrpcSendBatcher
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal, GrpcStatusError
from trimq.protocols.rocketmq.grpc.wire.declaration import PACKAGE, SERVICE
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.handlers.context import RocketMQServices
from trimq.protocols.rocketmq.wire.signatures import AUTHORIZATION, DATE_TIME

PROTOCOL = "rocketmq-grpc"

_CLIENT_ID, _LANGUAGE, _VERSION = "x-mq-client-id", "x-mq-language", "x-mq-client-version"

_NOWHERE = pack_host("127.0.0.1", 0)
_NO_OUTLET = TelemetryOutlet()


class Method(NamedTuple):
    request: Any
    response: Any
    handle: Handler


METHODS: Mapping[str, Method] = {
    "QueryRoute": Method(wire.QueryRouteRequest, wire.QueryRouteResponse, route.query_route),
    "QueryAssignment": Method(wire.QueryAssignmentRequest, wire.QueryAssignmentResponse, route.query_assignment),
    "Heartbeat": Method(wire.HeartbeatRequest, wire.HeartbeatResponse, telemetry.heartbeat),
    "NotifyClientTermination": Method(
        wire.NotifyClientTerminationRequest, wire.NotifyClientTerminationResponse, telemetry.terminate
    ),
    "SendMessage": Method(wire.SendMessageRequest, wire.SendMessageResponse, send.send),
    "ReceiveMessage": Method(wire.ReceiveMessageRequest, wire.ReceiveMessageResponse, receive.receive),
    "AckMessage": Method(wire.AckMessageRequest, wire.AckMessageResponse, ack.ack),
    "ChangeInvisibleDuration": Method(
        wire.ChangeInvisibleDurationRequest, wire.ChangeInvisibleDurationResponse, ack.change_invisible
    ),
    "ForwardMessageToDeadLetterQueue": Method(
        wire.ForwardMessageToDeadLetterQueueRequest, wire.ForwardMessageToDeadLetterQueueResponse, ack.forward
    ),
    "EndTransaction": Method(wire.EndTransactionRequest, wire.EndTransactionResponse, transactions.end_transaction),
    "RecallMessage": Method(wire.RecallMessageRequest, wire.RecallMessageResponse, recall.recall),
}


class GrpcFrontEnd:
    service = f"{PACKAGE}.{SERVICE}"
    calls: tuple[str, ...] = tuple(METHODS)
    server_streaming_calls: tuple[str, ...] = ("ReceiveMessage",)
    streams: tuple[str, ...] = ("Telemetry",)
    used_metadata = frozenset((_CLIENT_ID, _LANGUAGE, _VERSION, AUTHORIZATION, DATE_TIME))

    def __init__(self, services: RocketMQServices, client_limit: int) -> None:
        self._services = services
        self._known = GrpcClients(services.clock.liveness, services.clients, client_limit)
        self._signers = CallSigners(
            services.signatures, services.settings.signature_window_ms, services.clock.message.now_ms
        )
        self._renewals = AutoRenewals(services.commit_log.pop_service, services.clock.message)
        self._known.on_forgotten(self._renewals.forget)
        services.commit_log.lifecycle.on_stop(self._renewals.stop)

    def call(self, method: str, call_info: CallInfo, raw: bytes) -> Reply:
        """Handles the call now. Raises GrpcStatusError if the bytes are not a request."""
        found = METHODS[method]
        try:
            request = found.request.FromString(raw)
        except DecodeError as error:
            raise GrpcStatusError("INVALID_ARGUMENT", f"invalid request: {error}") from None
        call = self._call(call_info)
        try:
            if is_blank(call.client_id):
                raise GrpcRefusal(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
            call.require_login()
            return found.handle(call, request)
        except Refusal as refusal:
            return reply(found.response(status=refusal_status(refusal)))

    def call_batches(self) -> Mapping[str, CallBatch]:
        return {
            "SendMessage": GrpcSendBatcher(self._call, self._services.sending.is_synced),
            "AckMessage": AckBatcher(self._call),
        }

    def open(self, stream: str, call_info: CallInfo, sink: Sink) -> telemetry.Telemetry:
        call = self._call(call_info)
        if call.login_refusal is None:
            self._signers.opened(call.caller)
        return telemetry.Telemetry(call, sink)

    def failed(self, method: str) -> Parts:
        """Returns the response to a call that failed with an unexpected error."""
        refusal = GrpcRefusal(Code.INTERNAL_SERVER_ERROR, "internal error")
        return [METHODS[method].response(status=refusal_status(refusal)).SerializeToString()]

    def _call(self, call_info: CallInfo) -> Call:
        known: Call | None = call_info.parsed
        if known is not None and known.identified_at == self._signers.revision and not self._signers.window_ms:
            return known
        metadata = call_info.metadata
        client_id = metadata.get(_CLIENT_ID, "")
        unsigned = Caller(ANONYMOUS, client_id, call_info.address, PROTOCOL)
        caller, refusal = refusal_of(lambda: self._signers.signer(unsigned, metadata), unsigned)
        call = call_info.parsed = Call(
            self._services,
            caller,
            _NO_OUTLET,
            _host(call_info.address),
            self._known,
            self._renewals,
            client_id,
            metadata.get(_LANGUAGE, ""),
            metadata.get(_VERSION, ""),
            call_info.remaining_ms,
            refusal,
            self._signers.revision,
        )
        return call


@lru_cache(maxsize=1024)
def _host(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    try:
        return pack_host(host.strip("[]"), int(port))
    except ValueError:
        return _NOWHERE
