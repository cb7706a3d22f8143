"""SaslHandshake, versions 0 and 1, and SaslAuthenticate, versions 0 to 2: log in with PLAIN.

While no user is defined, login is not required, and both answer as a listener without SASL. Once a user is defined, a
client that does not log in is `anonymous`, which has no rights; a wrong password closes the connection.
Not served: handshake version 0, whose tokens are sent outside of requests; SCRAM; repeated logins.
"""

from __future__ import annotations

import dataclasses

from trimq.protocols.contract import DeferredReply, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.handshakes import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire.connection import Request, encode_response

PLAIN = "PLAIN"
_FIRST_WITH_REQUESTS = 1


def handle_handshake(context: Context, request: Request) -> Reply:
    message = request.decode(SaslHandshakeRequest)
    response = SaslHandshakeResponse(mechanisms=[PLAIN])
    if not context.authenticator.is_login_required:
        response = SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE)
    elif message.mechanism != PLAIN or request.api_version < _FIRST_WITH_REQUESTS:
        response.error_code = Code.UNSUPPORTED_SASL_MECHANISM
    else:
        context.is_logging_in = True
    return Reply.now(encode_response(request, response))


def handle_authenticate(context: Context, request: Request) -> Reply:
    message = request.decode(SaslAuthenticateRequest)
    if not context.is_logging_in:
        reason = "SaslHandshake must come first" if context.authenticator.is_login_required else "login is not required"
        return _refused(request, Code.ILLEGAL_SASL_STATE, reason)
    context.is_logging_in = False
    login = read_plain(message.auth_bytes)
    if login is None:
        context.outlet.close()
        return _refused(request, Code.SASL_AUTHENTICATION_FAILED, "invalid PLAIN token")
    name, password = login
    is_wanted = True

    def abandon() -> None:
        nonlocal is_wanted
        is_wanted = False

    reply = DeferredReply(on_abandon=abandon)

    def checked(is_right: bool) -> None:
        if not is_wanted:
            return
        if is_right and context.has_logged_in and context.caller.principal != name:
            reason = f"Cannot change principals during re-authentication from {context.caller.principal} to {name}"
            reply.resolve(
                encode_response(
                    request, SaslAuthenticateResponse(error_code=Code.SASL_AUTHENTICATION_FAILED, error_message=reason)
                )
            )
            context.outlet.close()
            return
        if is_right:
            context.has_logged_in = True
            context.caller = dataclasses.replace(context.caller, principal=name)
            reply.resolve(encode_response(request, SaslAuthenticateResponse(error_message=None)))
            return
        wrong = SaslAuthenticateResponse(
            error_code=Code.SASL_AUTHENTICATION_FAILED,
            error_message="unknown user or wrong password",
        )
        reply.resolve(encode_response(request, wrong))
        context.outlet.close()

    context.authenticator.check(name, password, context.caller.address, checked, lambda: is_wanted)
    return reply


def _refused(request: Request, code: Code, sentence: str) -> Reply:
    response = SaslAuthenticateResponse(error_code=code, error_message=sentence)
    return Reply.now(encode_response(request, response))


def read_plain(token: bytes) -> tuple[str, str] | None:
    """Returns name and password of a PLAIN token (RFC 4616): authorization id, name and password, separated by NUL.
    Returns None if the token is malformed, or if the authorization id is that of another user."""
    try:
        acts_for, name, password = bytes(token).decode("utf-8").split("\0")
    except ValueError:
        return None
    return (name, password) if name and acts_for in ("", name) else None


HANDLERS = {"SaslHandshake": handle_handshake, "SaslAuthenticate": handle_authenticate}
