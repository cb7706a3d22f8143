"""Registration of this broker with other name servers: at connect, every 30 seconds, and after a change of a topic.
Knows no socket: the server opens the connections and opens them again when they end."""

from __future__ import annotations

import logging
import zlib
from itertools import count

from trimq.clock import Clock, Timer
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.errors import ProtocolError
from trimq.model import SYSTEM
from trimq.protocols.contract import ConnectionDetails, Parts, Reply, SessionControl
from trimq.protocols.rocketmq.name_server.broker_registry import MASTER
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.wire.codes import RequestCode, ResponseCode
from trimq.protocols.rocketmq.wire.registrations import DataVersion, QueueData, Registration, write_registration
from trimq.protocols.rocketmq.wire.replies import reply
from trimq.wire.receive_buffer import ReceiveMemory
from trimq.wire.remoting import ONE_WAY, RESPONSE, Command, RemotingConnection, encode_command

log = logging.getLogger(__name__)

INTERVAL_MS = 30_000
CHANGE_DELAY_MS = 100  # collects changes: a registration lists all topics


class RegistrationConversation:
    """Connection to one name server."""

    def __init__(self, registrar: Registrar, connection: RemotingConnection, address: str, outlet: SessionControl):
        self._registrar = registrar
        self._connection = connection
        self._address = address
        self._outlet = outlet
        self._last_refusal = ""
        self.get_buffer = connection.get_buffer
        self.buffer_updated = connection.buffer_updated
        self.next_event = connection.next_event
        self.release_memory = connection.release_memory

    def identify(self, principal: str) -> None:
        """Never called: the broker makes this connection itself, without TLS."""

    def register(self, parts: Parts) -> None:
        self._outlet.send(parts)

    def handle(self, event: object) -> Reply | None:
        assert isinstance(event, Command)
        if event.flag & RESPONSE:
            self._registered(event)
            return None
        if event.flag & ONE_WAY:
            return None  # news about slaves, which this broker does not have
        reason = f" request type {event.code} not supported"
        return reply(event, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=reason)

    def _registered(self, command: Command) -> None:
        refusal = "" if command.code == ResponseCode.SUCCESS else f"code {command.code}, {command.remark}"
        if refusal and refusal != self._last_refusal:  # logged once, not every 30 seconds
            log.warning("name server %s: registration refused (%s)", self._address, refusal)
        self._last_refusal = refusal

    def on_congestion_end(self) -> None:
        """Nothing to resume."""

    def closing_parts(self, error: ProtocolError) -> Parts:
        return self._registrar.farewell()

    def describe(self) -> ConnectionDetails:
        return ConnectionDetails(SYSTEM.principal)

    def closed(self) -> None:
        self._connection.drop()
        self._registrar.conversation_closed(self)


class Registrar:
    def __init__(
        self, topic_api: CommitLogTopicApi, identity: Identity, clock: Clock, frame_bytes: int, memory: ReceiveMemory
    ) -> None:
        self._topic_api = topic_api
        self._identity = identity
        self._clock = clock
        self._frame_bytes = frame_bytes
        self._memory = memory
        self._opaques = count(1)
        self._conversations: dict[RegistrationConversation, None] = {}
        self._timer: Timer | None = None
        self._due_ms = 0
        self._version = DataVersion(1, 0, clock.message.now_ms())
        topic_api.on_change(self._topics_changed)

    def open_conversation(self, address: str, outlet: SessionControl) -> RegistrationConversation:
        connection = RemotingConnection(self._frame_bytes, receive_memory=self._memory)
        opened = RegistrationConversation(self, connection, address, outlet)
        outlet.disable_idle_timeout()
        self._conversations[opened] = None
        opened.register(self._request())
        self._schedule(INTERVAL_MS)
        return opened

    def conversation_closed(self, conversation: RegistrationConversation) -> None:
        self._conversations.pop(conversation, None)
        if not self._conversations and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def farewell(self) -> Parts:
        """Unregisters: the last bytes of a connection when the broker stops."""
        return [encode_command(RequestCode.UNREGISTER_BROKER, next(self._opaques), ONE_WAY, self._fields())]

    def _fields(self) -> dict[str, str]:
        identity = self._identity
        return {
            "brokerAddr": identity.address,
            "brokerId": str(MASTER),
            "brokerName": identity.broker_name,
            "clusterName": identity.cluster_name,
        }

    def _request(self) -> Parts:
        topics = {topic.name.name: topic.definition for topic in self._topic_api.all(SYSTEM)}
        queues = {
            name: QueueData(each.read_streams, each.write_streams, each.permissions, each.flags)
            for name, each in topics.items()
        }
        body = write_registration(Registration(queues, self._version))
        fields = {
            **self._fields(),
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
            "compressed": "false",
            "haServerAddr": "",  # there are no slaves that could copy this broker
        }
        return [encode_command(RequestCode.REGISTER_BROKER, next(self._opaques), 0, fields, size=len(body)), body]

    # -- times

    def _topics_changed(self) -> None:
        self._version = DataVersion(self._version.counter + 1, 0, self._clock.message.now_ms())
        if self._conversations:
            self._schedule(CHANGE_DELAY_MS)

    def _schedule(self, delay_ms: int) -> None:
        due_ms = self._clock.liveness.now_ms() + delay_ms
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms, self._timer = due_ms, self._clock.liveness.call_at(due_ms, self._register_all)

    def _register_all(self) -> None:
        self._timer = None
        parts = self._request()
        for conversation in list(self._conversations):
            conversation.register(parts)
        self._schedule(INTERVAL_MS)
