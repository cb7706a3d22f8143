"""INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), GET_CONSUMER_RUNNING_INFO (307), CONSUME_MESSAGE_DIRECTLY (309).

Sends the request to the consumers (223 as GET_CONSUMER_STATUS_FROM_CLIENT, 221) and relays their responses. If a client
does not respond within 10 s, 223 leaves it out; the others respond with CONSUME_MSG_TIMEOUT (207).
Not served: consumers connected over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.hosts import BadMessageId, read_message_id
from trimq.model import Buffer
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.rocketmq.clients.notifications import REMOTING
from trimq.protocols.rocketmq.clients.registry import Client
from trimq.protocols.rocketmq.clients.requests_to_clients import OneShotCallback
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.query import encoded_unit
from trimq.protocols.rocketmq.handlers.reset_offset import known_topic
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, RequestCode, ResponseCode
from trimq.protocols.rocketmq.wire.lenient_json import BadJson, read_json
from trimq.protocols.rocketmq.wire.replies import UNORDERED
from trimq.protocols.rocketmq.wire.responses import encode_response
from trimq.wire.remoting import Command

CLIENT_TIMEOUT_MS = 10_000


class _Member(msgspec.Struct):
    consumerGroup: str
    clientId: str = ""
    msgId: str = ""
    jstackEnable: bool = False


def running_info(context: Context, command: Command) -> Reply:
    header = command.read(_Member)
    client = _find_member(context, header)
    fields = {
        "consumerGroup": header.consumerGroup,
        "clientId": client.id,
        "jstackEnable": "true" if header.jstackEnable else "false",
    }
    return _relay(context, command, client, RequestCode.GET_CONSUMER_RUNNING_INFO, fields, b"")


def consume_directly(context: Context, command: Command) -> Reply:
    header = command.read(_Member)
    client = _find_member(context, header)
    try:
        unit = context.commit_log.lookup.unit_at(context.caller, read_message_id(header.msgId).position)
    except (BadMessageId, OffsetOutOfRange) as error:
        raise RemotingRefusal(
            ResponseCode.SYSTEM_ERROR, f"no message has the id {header.msgId[:100]}: {error}"
        ) from None
    fields = {
        "consumerGroup": header.consumerGroup,
        "clientId": client.id,
        "msgId": header.msgId,
        "brokerName": context.services.identity.broker_name,
        "groupSysFlag": "0",
    }
    return _relay(context, command, client, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, encoded_unit(unit))


def _find_member(context: Context, header: _Member) -> Client:
    """Returns the named member, or any member if the request names none. The caller must be able to be a member
    itself."""
    context.commit_log.groups.require_read(context.caller, header.consumerGroup)
    group = context.services.clients.group(header.consumerGroup)
    for client in () if group is None else group.members.values():
        if client.dialect is REMOTING and header.clientId in ("", client.id):
            return client
    reason = f"The Consumer <{header.consumerGroup[:200]}> <{header.clientId[:200]}> not online"
    raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, reason)


def _relay(
    context: Context, command: Command, client: Client, code: RequestCode, fields: Mapping[str, str], body: Buffer
) -> Reply:
    def build(found: Command | None) -> Parts:
        if found is None:
            reason = f"consumer <{client.id[:200]}> does not answer"
            return encode_response(command.opaque, ResponseCode.CONSUME_MSG_TIMEOUT, remark=reason)
        return encode_response(command.opaque, found.code, found.fields, found.remark, found.body)

    waiting: OneShotCallback[Command | None] = OneShotCallback(lambda found: reply.resolve(build(found)))
    reply = DeferredReply(UNORDERED, on_abandon=waiting.end, on_resolve_now=lambda: waiting.invoke(None))
    context.services.client_requests.send_request(client.outlet, code, fields, body, CLIENT_TIMEOUT_MS, waiting.invoke)
    return reply


# -- pull offsets of members


class _Status(msgspec.Struct):
    topic: str
    group: str
    clientAddr: str = ""


def consumer_status(context: Context, command: Command) -> Reply:
    """Collects the pull offsets of the named member, or of all members, by client id."""
    header = command.read(_Status)
    known_topic(context, header.topic)
    context.commit_log.groups.require_read(context.caller, header.group)
    group = context.services.clients.group(header.group)
    members = [] if group is None else [each for each in group.members.values() if each.dialect is REMOTING]
    if not members:
        raise RemotingRefusal(
            ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group[:200]}]"
        )
    chosen = [each for each in members if header.clientAddr in ("", each.id)]
    found = _ClientResponses(len(chosen), lambda bodies: reply.resolve(_status(command, bodies)))
    reply = DeferredReply(UNORDERED, on_abandon=found.end, on_resolve_now=found.finish)
    fields = {"topic": header.topic, "group": header.group}
    for member in chosen:
        context.services.client_requests.send_request(
            member.outlet,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            fields,
            b"",
            CLIENT_TIMEOUT_MS,
            found.taker(member.id),
        )
    found.finish_if_complete()
    return reply


class _ClientResponses:
    """Responses of several clients, without the clients that do not respond."""

    def __init__(self, count: int, done: Callable[[dict[str, bytes]], object]) -> None:
        self._missing = count
        self._waiting: OneShotCallback[dict[str, bytes]] = OneShotCallback(done)
        self._bodies: dict[str, bytes] = {}

    def taker(self, id: str) -> Callable[[Command | None], None]:
        def take(found: Command | None) -> None:
            self._missing -= 1
            if found is not None and found.code == ResponseCode.SUCCESS:
                self._bodies[id] = found.body
            self.finish_if_complete()

        return take

    def finish_if_complete(self) -> None:
        if self._missing == 0:
            self.finish()

    def finish(self) -> None:
        self._waiting.invoke(self._bodies)

    def end(self) -> None:
        self._waiting.end()


def _status(command: Command, bodies: Mapping[str, bytes]) -> Parts:
    tables = b",".join(msgspec.json.encode(id) + b":" + _table_in(body) for id, body in bodies.items())
    body = b'{"consumerTable":{%b},"messageQueueTable":{}}' % tables
    return encode_response(command.opaque, ResponseCode.SUCCESS, body=body)


def _table_in(body: bytes) -> bytes:
    """Returns the table of queues in a client's response. Its keys are JSON objects and stay as they are."""
    try:
        table = read_json(body)["messageQueueTable"]
        rows = [(key, int(offset)) for key, offset in table.items()]
    except (BadJson, KeyError, TypeError, ValueError, AttributeError):
        return b"{}"
    return b"{" + b",".join(b"%b:%d" % (key.encode(), offset) for key, offset in rows if key.startswith("{")) + b"}"
