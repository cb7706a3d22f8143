"""Codes 223 (how far members have pulled), 307 (what a member is doing) and 309 (a member consumes one message now):
each is asked of the client itself, and its answer given on. A client that does not answer in time is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.hosts import BadMessageId, read_message_id
from trimq.model import Buffer
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.clients.notifications import REMOTING
from trimq.protocols.rocketmq.clients.registry import Client
from trimq.protocols.rocketmq.clients.requests_to_clients import Waiting
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.query import encoded_unit
from trimq.protocols.rocketmq.handlers.reset_offset import known_topic
from trimq.protocols.rocketmq.wire.codes import Code, Failure, Request
from trimq.protocols.rocketmq.wire.lenient_json import BadJson, read_json
from trimq.protocols.rocketmq.wire.remoting import Command
from trimq.protocols.rocketmq.wire.replies import UNORDERED
from trimq.protocols.rocketmq.wire.responses import answer

PATIENCE_MS = 10_000


class _Member(msgspec.Struct):
    consumerGroup: str
    clientId: str = ""
    msgId: str = ""
    jstackEnable: bool = False


def running_info(context: Context, command: Command) -> Reply:
    header = command.read(_Member)
    client = _member(context, header)
    fields = {
        "consumerGroup": header.consumerGroup,
        "clientId": client.id,
        "jstackEnable": "true" if header.jstackEnable else "false",
    }
    return _relayed(context, command, client, Request.GET_CONSUMER_RUNNING_INFO, fields, b"")


def consume_directly(context: Context, command: Command) -> Reply:
    header = command.read(_Member)
    client = _member(context, header)
    try:
        unit = context.sharing.unit_at(context.caller, read_message_id(header.msgId).position)
    except (BadMessageId, OffsetOutOfRange) as error:
        raise Failure(Code.SYSTEM_ERROR, f"no message has the id {header.msgId[:100]}: {error}") from None
    fields = {
        "consumerGroup": header.consumerGroup,
        "clientId": client.id,
        "msgId": header.msgId,
        "brokerName": context.shared.identity.broker_name,
        "groupSysFlag": "0",
    }
    return _relayed(context, command, client, Request.CONSUME_MESSAGE_DIRECTLY, fields, encoded_unit(unit))


def _member(context: Context, header: _Member) -> Client:
    """The one that was named; any, if none was."""
    group = context.shared.clients.group(header.consumerGroup)
    for client in () if group is None else group.members.values():
        if client.dialect is REMOTING and header.clientId in ("", client.id):
            return client
    reason = f"The Consumer <{header.consumerGroup[:200]}> <{header.clientId[:200]}> not online"
    raise Failure(Code.SYSTEM_ERROR, reason)


def _relayed(
    context: Context, command: Command, client: Client, code: Request, fields: Mapping[str, str], body: Buffer
) -> Reply:
    def build(found: Command | None) -> Parts:
        if found is None:
            reason = f"consumer <{client.id[:200]}> does not answer"
            return answer(command.opaque, Code.CONSUME_MSG_TIMEOUT, remark=reason)
        return answer(command.opaque, found.code, found.fields, found.remark, found.body)

    waiting: Waiting[Command | None] = Waiting(lambda found: reply.resolve(build(found)))
    reply = Reply.later(UNORDERED, abandon=waiting.end, hurry=lambda: waiting.settle(None))
    context.shared.calls.ask(client.outlet, code, fields, body, PATIENCE_MS, waiting.settle)
    return reply


# -- how far members have pulled


class _Status(msgspec.Struct):
    topic: str
    group: str
    clientAddr: str = ""


def consumer_status(context: Context, command: Command) -> Reply:
    """Of the named member, or of all: what each says, by its name."""
    header = command.read(_Status)
    known_topic(context, header.topic)
    group = context.shared.clients.group(header.group)
    members = [] if group is None else [each for each in group.members.values() if each.dialect is REMOTING]
    if not members:
        raise Failure(Code.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group[:200]}]")
    chosen = [each for each in members if header.clientAddr in ("", each.id)]
    found = _Gathered(len(chosen), lambda bodies: reply.resolve(_status(command, bodies)))
    reply = Reply.later(UNORDERED, abandon=found.end, hurry=found.finish)
    fields = {"topic": header.topic, "group": header.group}
    for member in chosen:
        context.shared.calls.ask(
            member.outlet, Request.GET_CONSUMER_STATUS_FROM_CLIENT, fields, b"", PATIENCE_MS, found.taker(member.id)
        )
    found.finish_if_complete()
    return reply


class _Gathered:
    """The answers of several clients; those that do not answer are left out."""

    def __init__(self, count: int, done: Callable[[dict[str, bytes]], object]) -> None:
        self._missing = count
        self._waiting: Waiting[dict[str, bytes]] = Waiting(done)
        self._bodies: dict[str, bytes] = {}

    def taker(self, id: str) -> Callable[[Command | None], None]:
        def take(found: Command | None) -> None:
            self._missing -= 1
            if found is not None and found.code == Code.SUCCESS:
                self._bodies[id] = found.body
            self.finish_if_complete()

        return take

    def finish_if_complete(self) -> None:
        if self._missing == 0:
            self.finish()

    def finish(self) -> None:
        self._waiting.settle(self._bodies)

    def end(self) -> None:
        self._waiting.end()


def _status(command: Command, bodies: Mapping[str, bytes]) -> Parts:
    tables = b",".join(msgspec.json.encode(id) + b":" + _table_in(body) for id, body in bodies.items())
    body = b'{"consumerTable":{%b},"messageQueueTable":{}}' % tables
    return answer(command.opaque, Code.SUCCESS, body=body)


def _table_in(body: bytes) -> bytes:
    """A client's table of queues, keyed by objects as it came."""
    try:
        table = read_json(body)["messageQueueTable"]
        rows = [(key, int(offset)) for key, offset in table.items()]
    except (BadJson, KeyError, TypeError, ValueError, AttributeError):
        return b"{}"
    return b"{" + b",".join(b"%b:%d" % (key.encode(), offset) for key, offset in rows if key.startswith("{")) + b"}"
