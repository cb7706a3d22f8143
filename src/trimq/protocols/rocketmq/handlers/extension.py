"""HELLO (210001): requests of TriMQ's own extension, which `docs/client-protocol.md` describes. Apache RocketMQ answers
their codes with REQUEST_CODE_NOT_SUPPORTED (3).

HELLO tells a client that it talks to TriMQ, and which features it may use."""

from __future__ import annotations

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import reply
from trimq.wire.extension import ASSIGN_STICKY, DEDUPLICATE, EXTENSION_VERSION
from trimq.wire.remoting import Command

FEATURES = (DEDUPLICATE, ASSIGN_STICKY)
"""Features that this broker has, sorted."""


def hello(context: Context, command: Command) -> Reply:
    """Answers with the highest version that both sides speak."""
    asked = command.fields.get("version", "")
    if not (asked.isascii() and asked.isdecimal()) or int(asked[:9]) < 1:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"version must be 1 or higher, not {asked[:40]!r}")
    fields = {
        "features": ",".join(FEATURES),
        "rememberedIds": str(context.services.sending.sent_ids.limit),
        "version": str(min(int(asked[:9]), EXTENSION_VERSION)),
    }
    return reply(command, fields=fields)
