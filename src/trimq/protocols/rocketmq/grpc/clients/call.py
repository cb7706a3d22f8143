"""One call of a gRPC client: caller and services for its handler, and builders of replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trimq.errors import LoginFailed, Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.grpc.clients.auto_renew import AutoRenewals
from trimq.protocols.rocketmq.grpc.clients.clients import GrpcClients
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import code_of
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import remark_of
from trimq.protocols.rocketmq.wire.replies import UNORDERED, PendingWrite


@dataclass(slots=True)
class Call(Context):
    """Context of one call. `remaining_ms` is the time until its deadline, None without a deadline."""

    known: GrpcClients
    renewals: AutoRenewals
    client_id: str
    language: str
    version: str
    remaining_ms: int | None
    login_refusal: LoginFailed | None = None
    """Why every request of this call is refused: its signature is wrong."""
    identified_at: int = 0
    """Revision of the signers when the caller was found."""

    def require_login(self) -> None:
        if self.login_refusal is not None:
            raise self.login_refusal
        self.commit_log.admin.require_known(self.caller)


Handler = Callable[[Call, Any], Reply]


def status(code: Code = Code.OK, message: str = "OK") -> Any:
    return wire.Status(code=code, message=message)


def refusal_status(refusal: Refusal) -> Any:
    return status(code_of(refusal), remark_of(refusal))


def reply(answer: Any) -> Reply:
    return Reply.now([answer.SerializeToString()], UNORDERED)


def reply_when_durable(pending: Iterable[PendingWrite], build: Callable[[Refusal | None], Any]) -> Reply:
    """Replies when all writes are durable. `build` gets the first refusal, or None if there is none."""
    found = list(pending)

    def parts() -> Parts:
        for each in found:
            if (refusal := each.refusal) is not None:
                return [build(refusal).SerializeToString()]
        return [build(None).SerializeToString()]

    return Reply.when_durable(max([each.number for each in found]), parts, UNORDERED)
