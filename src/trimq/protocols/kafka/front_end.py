"""Kafka front-end: opens one conversation per connection and passes each request to the handler of its API. Knows no
bytes: `wire` decodes requests and encodes responses."""

from __future__ import annotations

import logging
import random

from trimq.clock import Clock, Timer
from trimq.core.api.broker import Broker
from trimq.core.security.authentication import Authenticator
from trimq.core.security.login_delays import source_of
from trimq.errors import ProtocolError
from trimq.model import ANONYMOUS, Caller
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import ConnectionDetails, Parts, Reply, SessionControl
from trimq.protocols.kafka.handlers import HANDLERS
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.fetch_sessions import FetchSessions
from trimq.protocols.kafka.logins.mechanisms import Mechanisms
from trimq.protocols.kafka.logins.session import LoginSession
from trimq.protocols.kafka.wire.apis import APIS, ROWS
from trimq.protocols.kafka.wire.connection import KafkaConnection, Request
from trimq.wire.receive_buffer import ReceiveMemory

log = logging.getLogger(__name__)

PROTOCOL = "kafka"

_LOGIN_KEYS = frozenset(api.key for api in ROWS if api.name in ("SaslHandshake", "SaslAuthenticate"))
_BEFORE_LOGIN = _LOGIN_KEYS | {api.key for api in ROWS if api.name == "ApiVersions"}
# As in Apache Kafka (`sasl.server.max.receive.size`).
FRAME_BYTES_BEFORE_LOGIN = 512 * 1024


class KafkaConversation:
    def __init__(self, connection: KafkaConnection, context: Context) -> None:
        self._connection = connection
        self._context = context
        self._login = context.login
        self._client_id: str | None = None
        self._must_log_in = context.authenticator.admits_only_users
        self.get_buffer = connection.get_buffer
        self.buffer_updated = connection.buffer_updated
        self.release_memory = connection.release_memory
        self.next_event = connection.next_event
        self._login_timer: Timer | None = None

    def identify(self, principal: str) -> None:
        """The name counts until the client logs in under another, whether a user of that name is defined or not."""
        context = self._context
        if context.authenticator.is_admitted(principal, context.caller.address):
            context.caller = Caller(principal, "", context.caller.address, context.caller.protocol)
            context.mechanisms.login_log.succeeded(PROTOCOL, "EXTERNAL", principal, context.caller.address)

    def limit_until_login(self, frame_bytes: int, timeout_ms: int) -> None:
        """Accepts short frames only, and closes the connection if it takes longer than that, until the client has
        logged in; then frames of `frame_bytes`."""

        def next_event() -> Request | None:
            if self._context.caller.principal != ANONYMOUS:
                self._end_login_timer()
                self._connection.limit_frames(frame_bytes)
                self.next_event = self._connection.next_event
            return self._connection.next_event()

        self._connection.limit_frames(min(FRAME_BYTES_BEFORE_LOGIN, frame_bytes))
        self.next_event = next_event
        liveness = self._context.clock.liveness
        self._login_timer = liveness.call_at(liveness.now_ms() + timeout_ms, self._login_timed_out)

    def _login_timed_out(self) -> None:
        self._login_timer = None
        if self._context.caller.principal == ANONYMOUS:
            log.info("connection of %s: closing (the client did not log in in time)", self._context.caller.address)
            self._context.outlet.abort()

    def _end_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    def handle(self, event: object) -> Reply | None:
        assert isinstance(event, Request)
        handler = HANDLERS.get(event.api_key)
        if handler is None:
            raise ProtocolError(f"{APIS[event.api_key].name} is not served")
        if self._must_log_in:
            self._require_login(event.api_key)
        if self._login.is_restricted and event.api_key not in _LOGIN_KEYS and (why := self._login.refusal()):
            raise ProtocolError(why)
        if event.client_id != self._client_id:
            self._remember(event.client_id)
        return handler(self._context, event)

    def _require_login(self, api_key: int) -> None:
        if self._context.caller.principal != ANONYMOUS:
            self._must_log_in = False
        elif api_key not in _BEFORE_LOGIN:
            self._context.mechanisms.login_log.missing(self._context.caller, APIS[api_key].name)
            raise ProtocolError(f"{APIS[api_key].name} before the login: this broker serves users only (SASL)")

    def _remember(self, client_id: str | None) -> None:
        caller = self._context.caller
        self._client_id = client_id
        self._context.caller = Caller(caller.principal, client_id or "", caller.address, caller.protocol)

    def on_congestion_end(self) -> None:
        """Does nothing: Kafka clients receive only responses to their own requests."""

    def closing_parts(self, error: ProtocolError) -> Parts:
        """Returns no bytes: Kafka has no message that announces a close."""
        return []

    def describe(self) -> ConnectionDetails:
        caller = self._context.caller
        return ConnectionDetails(caller.principal, client_id=caller.client_id)

    def closed(self) -> None:
        self._end_login_timer()
        self.next_event = self._connection.next_event  # breaks a reference cycle
        self._connection.drop()


class KafkaFrontEnd:
    def __init__(
        self, broker: Broker, authenticator: Authenticator, clock: Clock, counts: Counts, mechanisms: Mechanisms
    ) -> None:
        self._broker = broker
        self._authenticator = authenticator
        self._clock = clock
        self._counts = counts
        self._mechanisms = mechanisms
        self._held_bytes = ReceiveMemory(broker.settings.kafka.received_bytes)
        # Seeded with the time: session ids must differ from those that clients still hold from before a restart.
        self._fetch_sessions = FetchSessions(random.Random(clock.message.now_ms()))

    def open_conversation(self, address: str, outlet: SessionControl) -> KafkaConversation:
        caller = Caller(principal=ANONYMOUS, client_id="", address=address, protocol=PROTOCOL)
        context = Context(
            self._broker,
            caller,
            self._clock,
            outlet,
            self._counts,
            self._fetch_sessions,
            self._authenticator,
            self._mechanisms,
            LoginSession(self._clock, self._broker.settings.kafka.max_reauth_ms),
        )
        limits = self._broker.settings.limits
        connection = KafkaConnection(
            limits.frame_bytes,
            command_limit=limits.command_bytes,
            element_limit=limits.elements_per_request,
            receive_memory=self._held_bytes,
        )
        connection.memory.attach(source_of(address), lambda reason: outlet.abort(reason))
        conversation = KafkaConversation(connection, context)
        if self._authenticator.must_log_in(ANONYMOUS):
            timeout_ms = self._broker.settings.security.login_timeout_ms
            conversation.limit_until_login(limits.frame_bytes, timeout_ms)
        return conversation
