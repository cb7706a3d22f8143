"""SaslHandshake, versions 0 and 1, and SaslAuthenticate, versions 0 to 2: log in with PLAIN or SCRAM, and log in
again to extend the session (KIP-368).

While no login is required, both answer as a listener without SASL. A failed login closes the connection.
Not served: handshake version 0, whose tokens are sent outside of requests; delegation tokens.
"""

from __future__ import annotations

import dataclasses

from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.logins.mechanisms import Continued, LoggedIn, Outcome, Rejected
from trimq.protocols.kafka.messages.handshakes import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire.connection import Request, encode_response

_FIRST_WITH_REQUESTS = 1


def handle_handshake(context: Context, request: Request) -> Reply:
    message = request.decode(SaslHandshakeRequest)
    if not context.authenticator.is_login_required:
        refused = SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE)
        return Reply.now(encode_response(request, refused))
    if context.login.exchange is not None:  # a login is under way
        context.login.end()
        context.outlet.close()
        refused = SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE)
        return Reply.now(encode_response(request, refused))
    response = SaslHandshakeResponse(mechanisms=context.mechanisms.names)
    if message.mechanism not in context.mechanisms.names or request.api_version < _FIRST_WITH_REQUESTS:
        response.error_code = Code.UNSUPPORTED_SASL_MECHANISM
        context.outlet.close()
    else:
        exchange = context.mechanisms.begin(message.mechanism, context.caller.address)
        context.login.begin(message.mechanism, exchange)
    return Reply.now(encode_response(request, response))


def handle_authenticate(context: Context, request: Request) -> Reply:
    message = request.decode(SaslAuthenticateRequest)
    exchange, context.login.exchange = context.login.exchange, None
    if exchange is None:
        reason = _why_not_now(context)
        response = SaslAuthenticateResponse(error_code=Code.ILLEGAL_SASL_STATE, error_message=reason)
        return Reply.now(encode_response(request, response))
    is_wanted = True

    def abandon() -> None:
        nonlocal is_wanted
        is_wanted = False

    reply = DeferredReply(on_abandon=abandon)

    def answered(outcome: Outcome) -> None:
        if not is_wanted:
            return
        if isinstance(outcome, Continued):
            context.login.exchange = exchange
        elif isinstance(outcome, LoggedIn):
            outcome = _same_principal(context, outcome)
        reply.resolve(_answer(context, request, outcome))
        if not isinstance(outcome, Continued):
            context.login.end()
        if isinstance(outcome, Rejected):
            context.outlet.close()  # after the answer, which is still sent

    exchange.respond(message.auth_bytes, answered, lambda: is_wanted)
    return reply


def _why_not_now(context: Context) -> str:
    if not context.authenticator.is_login_required:
        return "login is not required"
    if context.login.has_logged_in:
        return "SaslAuthenticate request received after successful authentication"
    return "SaslHandshake must come first"


def _answer(context: Context, request: Request, outcome: Outcome) -> Parts:
    if isinstance(outcome, Continued):
        response = SaslAuthenticateResponse(error_message="", auth_bytes=outcome.token)
    elif isinstance(outcome, LoggedIn):
        response = SaslAuthenticateResponse(error_message="", auth_bytes=outcome.token)
        response.session_lifetime_ms = context.login.logged_in(outcome)
        context.caller = dataclasses.replace(context.caller, principal=outcome.principal)
        caller = context.caller
        context.mechanisms.login_log.succeeded(
            caller.protocol, context.login.mechanism, caller.principal, caller.address
        )
    else:
        response = _rejected(context, outcome)
    return encode_response(request, response)


def _same_principal(context: Context, outcome: LoggedIn) -> LoggedIn | Rejected:
    before, name = context.caller.principal, outcome.principal
    if not context.login.has_logged_in or before == name:
        return outcome
    reason = f"Cannot change principals during re-authentication from User.{before}: User.{name}"
    return Rejected(name, f"the connection is logged in as {before}", reason)


def _rejected(context: Context, outcome: Rejected) -> SaslAuthenticateResponse:
    login, caller = context.login, context.caller
    context.mechanisms.login_log.failed(caller.protocol, login.mechanism, outcome.user, caller.address, outcome.reason)
    attempt = "re-authentication" if login.has_logged_in else "authentication"
    hidden = f"Authentication failed during {attempt} due to invalid credentials with SASL mechanism "
    return SaslAuthenticateResponse(
        error_code=Code.SASL_AUTHENTICATION_FAILED,
        error_message=outcome.answer or hidden + login.mechanism,
    )


HANDLERS = {"SaslHandshake": handle_handshake, "SaslAuthenticate": handle_authenticate}
