"""Replies of remoting handlers: ready at once, or when a write is durable. Each is sent as soon as it is ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from trimq.errors import Refusal
from trimq.model import Buffer
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode, code_of, remark_of
from trimq.protocols.rocketmq.wire.responses import encode_response
from trimq.wire.remoting import NO_FIELDS, Command

UNORDERED = None


class PendingWrite(Protocol):
    """Write that is complete when pass `number` is durable, unless it has a `refusal`."""

    number: int
    refusal: Refusal | None


def reply(
    command: Command,
    code: int = ResponseCode.SUCCESS,
    fields: Mapping[str, str] = NO_FIELDS,
    remark: str | None = None,
    body: Buffer = b"",
) -> Reply:
    return Reply.now(encode_response(command.opaque, code, fields, remark, body), UNORDERED)


def reply_json(command: Command, value: Any) -> Reply:
    return reply(command, body=msgspec.json.encode(value))


def reply_refused(command: Command, refusal: Refusal, fields: Mapping[str, str] = NO_FIELDS) -> Reply:
    return Reply.now(refused_parts(command, refusal, fields), UNORDERED)


def refused_parts(command: Command, refusal: Refusal, fields: Mapping[str, str] = NO_FIELDS) -> list[Buffer]:
    return refused_answer(command.opaque, refusal, fields)


def refused_answer(opaque: int, refusal: Refusal, fields: Mapping[str, str] = NO_FIELDS) -> list[Buffer]:
    fields = refusal.fields if isinstance(refusal, RemotingRefusal) and refusal.fields else fields
    return encode_response(opaque, code_of(refusal), fields, remark_of(refusal))


def reply_when_durable(command: Command, pending: PendingWrite, build: Callable[[], Parts]) -> Reply:
    """Replies with the result of `build` when the write is durable, or with its refusal."""

    def make() -> Parts:
        return build() if pending.refusal is None else refused_parts(command, pending.refusal)

    return Reply.when_durable(pending.number, make, UNORDERED)


def done_when_durable(command: Command, pending: PendingWrite | None) -> Reply:
    """Replies with an empty success when the write is durable, or at once if `pending` is None."""
    if pending is None:
        return reply(command)
    return reply_when_durable(command, pending, lambda: encode_response(command.opaque, ResponseCode.SUCCESS))
