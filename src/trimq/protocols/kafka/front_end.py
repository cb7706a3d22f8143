"""Kafka front-end: opens one conversation per connection and passes each request to the handler of its API. Knows no
bytes: `wire` decodes requests and encodes responses."""

from __future__ import annotations

import logging
import random

from trimq.clock import Clock
from trimq.core.api.broker import Broker
from trimq.core.security.authentication import Authenticator
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
from trimq.protocols.receive_buffer import ReceiveMemory

log = logging.getLogger(__name__)

PROTOCOL = "kafka"

_LOGIN_KEYS = frozenset(api.key for api in ROWS if api.name in ("SaslHandshake", "SaslAuthenticate"))
_BEFORE_LOGIN = _LOGIN_KEYS | {api.key for api in ROWS if api.name == "ApiVersions"}


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

    def handle(self, event: object) -> Reply | None:
        assert isinstance(event, Request)
        handler = HANDLERS.get(event.api_key)
        if handler is None:
            raise ProtocolError(f"{APIS[event.api_key].name} is not served")
        if self._must_log_in:
            self._require_login(event.api_key)
        if self._login.expires_ms is not None and self._login.is_expired and event.api_key not in _LOGIN_KEYS:
            raise ProtocolError("the session has expired: the client did not log in again in time")
        if event.client_id != self._client_id:
            self._remember(event.client_id)
        return handler(self._context, event)

    def _require_login(self, api_key: int) -> None:
        if self._context.caller.principal != ANONYMOUS:
            self._must_log_in = False
        elif api_key not in _BEFORE_LOGIN:
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
        return KafkaConversation(connection, context)
