"""AUTH_CREATE_USER (3001), AUTH_UPDATE_USER (3002), AUTH_DELETE_USER (3003), AUTH_GET_USER (3004), AUTH_LIST_USER
(3005).

The password of a RocketMQ user is the secret of its signatures; here it becomes the user's password for the other
protocols too. `Super` is an administrator. Answers never contain a password.
Not served: `userStatus` disable: delete the user, or take its secret away."""

from __future__ import annotations

from typing import Any

from trimq.core.security.access import User
from trimq.errors import InvalidSetting, Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_object
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import UNORDERED, PendingWrite, done_when_durable, refused_parts, reply_json
from trimq.protocols.rocketmq.wire.responses import encode_response
from trimq.wire.remoting import Command

_SUPER, _NORMAL, _ENABLED = "Super", "Normal", "enable"


def create(context: Context, command: Command) -> Reply:
    name, known = _named(context, command)
    if known is not None:
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, "The user is existed")
    return _define(context, command, name, _is_super(read_object(command)) or False)


def update(context: Context, command: Command) -> Reply:
    name, known = _named(context, command)
    if known is None:
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, "The user is not exist")
    return _define(context, command, name, _is_super(read_object(command)))


def _define(context: Context, command: Command, name: str, is_super: bool | None) -> Reply:
    asked = read_object(command)
    password, status = asked.get("password"), asked.get("userStatus")
    if password is not None and not isinstance(password, str):
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, "the password is not a text")
    if status is not None and str(status).lower() != _ENABLED:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"userStatus {status} is not supported: delete the user")
    waiting = DeferredReply(UNORDERED, resolves_soon=True)

    def defined(outcome: PendingWrite | Refusal) -> None:
        if isinstance(outcome, Refusal):
            waiting.resolve(refused_parts(command, outcome))
            return

        def answer() -> Parts:
            if outcome.refusal is not None:
                return refused_parts(command, outcome.refusal)
            return encode_response(command.opaque, ResponseCode.SUCCESS)

        waiting.resolve_when_durable(outcome.number, answer)

    given = password or None
    try:
        context.services.users.define(context.caller, name, given, is_super, defined, secret=given)
    except InvalidSetting as refusal:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, str(refusal)) from None
    return waiting


def delete(context: Context, command: Command) -> Reply:
    name, known = _named(context, command)
    if known is None:
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, "The user is not exist")
    return done_when_durable(command, context.services.users.remove(context.caller, name))


def get(context: Context, command: Command) -> Reply:
    _, known = _named(context, command)
    return reply_json(command, None if known is None else _info(known))


def list_users(context: Context, command: Command) -> Reply:
    found, wanted = context.services.users.all(context.caller), command.fields.get("filter", "")
    return reply_json(command, [_info(user) for user in found if wanted in user.name])


def _named(context: Context, command: Command) -> tuple[str, User | None]:
    users = {user.name: user for user in context.services.users.all(context.caller)}  # asks for the right
    name = command.fields.get("username", "")
    if not name.strip():
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name, users.get(name)


def _is_super(asked: dict[str, Any]) -> bool | None:
    """Returns None if the body does not say."""
    kind = asked.get("userType")
    if kind is None:
        return None
    if kind not in (_SUPER, _NORMAL):
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"userType {kind} is neither {_SUPER} nor {_NORMAL}")
    return bool(kind == _SUPER)


def _info(user: User) -> dict[str, str]:
    kind = _SUPER if user.is_administrator else _NORMAL
    return {"username": user.name, "userType": kind, "userStatus": _ENABLED}
