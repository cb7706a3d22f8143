"""connection.start-ok, tune-ok, open, close and update-secret.

Served: PLAIN, AMQPLAIN and EXTERNAL (for clients with a verified certificate), heartbeats, smaller frames and fewer
channels than offered. Not served: challenges (connection.secure), redirects."""

from __future__ import annotations

from trimq.errors.queues import TooManyConnections
from trimq.model import Caller
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.handlers.context import Context, write_fault
from trimq.protocols.amqp.heartbeats import Heartbeats
from trimq.protocols.amqp.wire.codes import Code, ConnectionFault
from trimq.protocols.amqp.wire.connection import Phase
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.amqp.wire.error_texts import namespace_of, rabbitmq_text
from trimq.protocols.amqp.wire.frames import HEARTBEAT_FRAME
from trimq.protocols.amqp.wire.handshake import (
    check_tuning,
    has_capability,
    offered_mechanisms,
    read_login,
    server_properties,
)
from trimq.protocols.contract import DeferredReply, Reply

_LANE = 0

# Delay before a failed login closes the socket of a client without `authentication_failure_close`: slows down password
# guessing.
_SILENT_REFUSAL_MS = 3000


def greet(context: Context) -> Reply:
    mechanisms = offered_mechanisms(context.certificate_user is not None)
    start = methods.ConnectionStart(0, 9, server_properties(context.cluster_name), mechanisms, b"en_US")
    return Reply.now([write_command(0, start)], _LANE)


def start_ok(context: Context, method: methods.ConnectionStartOk) -> Reply:
    login = read_login(method.mechanism, method.response, context.certificate_user)
    context.client_properties = method.client_properties
    context.connection.phase = Phase.WAITING
    is_wanted = True

    def abandon() -> None:
        nonlocal is_wanted
        is_wanted = False

    reply = DeferredReply(_LANE, on_abandon=abandon)

    def checked(is_right: bool) -> None:
        if not is_wanted:
            return
        if is_right:
            caller = context.caller
            context.login_log.succeeded(caller.protocol, method.mechanism, login.user, caller.address)
            name = method.client_properties.get("connection_name")
            context.caller = Caller(login.user, str(name or ""), caller.address, caller.protocol)
            context.connection.phase = Phase.TUNING
            context.offered = _offer(context)
            reply.resolve([write_command(0, context.offered)])
        else:
            caller = context.caller
            reason = "unknown user" if login.password is None else "unknown user or wrong password"
            context.login_log.failed(caller.protocol, method.mechanism, login.user, caller.address, reason)
            _refuse_login(context, method.mechanism, reply)

    if login.password is None:
        checked(context.authenticator.admits_certificate(login.user, context.caller.address))
    else:
        context.authenticator.check(login.user, login.password, context.caller.address, checked, lambda: is_wanted)
    return reply


def _offer(context: Context) -> methods.ConnectionTune:
    settings = context.settings
    return methods.ConnectionTune(context.broker.limits.channel_max, settings.frame_max, settings.heartbeat_s)


def _refuse_login(context: Context, mechanism: str, reply: Reply) -> None:
    if has_capability(context.client_properties, "authentication_failure_close"):
        reason = f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
        reply.resolve(write_fault(ConnectionFault(Code.ACCESS_REFUSED, reason)))
        context.outlet.close()
    else:
        liveness = context.clock.liveness
        liveness.call_at(liveness.now_ms() + _SILENT_REFUSAL_MS, context.outlet.abort)


def tune_ok(context: Context, method: methods.ConnectionTuneOk) -> None:
    check_tuning(context.offered, method)
    connection = context.connection
    connection.frame_max = method.frame_max
    connection.channel_max = method.channel_max
    connection.phase = Phase.OPENING
    if method.heartbeat:
        context.heartbeats = Heartbeats(
            context.clock.liveness,
            method.heartbeat,
            lambda: connection.receive_count,
            lambda: context.outlet.send([HEARTBEAT_FRAME]),
            context.outlet.abort,
        )


def open_vhost(context: Context, method: methods.ConnectionOpen) -> Reply:
    namespace = namespace_of(method.vhost)
    user = context.caller.principal
    ids = method.class_and_method
    if namespace not in context.broker.namespaces.registry or not method.vhost:
        raise ConnectionFault(Code.NOT_ALLOWED, f"vhost {method.vhost} not found", *ids)
    try:
        context.broker.tenant_limits.open_connection(namespace, user)
    except TooManyConnections as refusal:
        raise ConnectionFault(Code.NOT_ALLOWED, rabbitmq_text(refusal), *ids) from None
    context.counted_in = namespace
    if not context.authenticator.may_access_namespace(context.caller, namespace):
        raise ConnectionFault(Code.NOT_ALLOWED, f"access to vhost '{method.vhost}' refused for user '{user}'", *ids)
    caller = context.caller
    context.caller = Caller(user, caller.client_id, caller.address, caller.protocol, namespace)
    context.connection.phase = Phase.RUNNING
    context.outlet.disable_idle_timeout()
    return Reply.now([write_command(0, methods.ConnectionOpenOk())], _LANE)


def close(context: Context, method: methods.ConnectionClose) -> Reply:
    """Closes the connection. Deletes its exclusive queues before the answer, so that the client can reuse their
    names."""
    context.release_all()
    context.outlet.close()
    return Reply.now([write_command(0, methods.ConnectionCloseOk())], _LANE)


def update_secret(context: Context, method: methods.ConnectionUpdateSecret) -> Reply:
    """Accepts any secret, as RabbitMQ does with its internal user database: a login that does not expire needs no new
    secret."""
    return Reply.now([write_command(0, methods.ConnectionUpdateSecretOk())], _LANE)
