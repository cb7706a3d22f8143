"""Test bench for AMQP: a whole core on files in memory, its AMQP front-end, and clients that show every byte to the
test. The test controls time, loop passes and syncs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from doubles import FaultyFiles, PassRunner
from no_rocketmq import NO_ROCKETMQ
from protocols.amqp.wire.test_contents import frames_of
from protocols.amqp.wires import command, publish

from trimq.clock import Clock, ManualTime
from trimq.config import Amqp, Log, Settings, Storage
from trimq.core.assembly.core import open_core
from trimq.errors import ProtocolError, Stopping
from trimq.formats.amqp_content.field_tables import FieldTable
from trimq.formats.amqp_content.property_list import EMPTY, write_properties
from trimq.metrics import Metrics
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.front_end import AmqpFrontEnd
from trimq.protocols.amqp.wire.handshake import CAPABILITIES
from trimq.protocols.amqp.wire.method_codec import read_method
from trimq.protocols.contract import Reply
from trimq.server.connection.pending_replies import PassProgress, PendingReplies
from trimq.storage.io.memory_files import MemoryFiles

ALL_CAPABILITIES: FieldTable = dict.fromkeys(CAPABILITIES, True)
PERSISTENT = write_properties(delivery_mode=2)


class Desk:
    def __init__(self, storage: Storage | None = None, **settings: Any) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.message_time, self.liveness = ManualTime(1_800_000_000_000), ManualTime(1_000_000)
        self.clock = Clock(self.message_time, self.liveness)
        self.settings = Settings(
            amqp=Amqp(**settings), rocketmq=NO_ROCKETMQ, storage=storage or Storage(), log=Log(audit_per_minute=0)
        )
        self.runner = PassRunner(self.files)
        self.core = open_core(
            self.settings, self.files, self.runner.passes, self.clock, self.runner.offload, random.Random(7), Metrics()
        )
        self.runner.settle()
        self.core.start()
        self.front_end = AmqpFrontEnd(
            self.core.broker,
            self.core.authenticator,
            self.clock,
            self.settings.amqp,
            random.Random(8),
            "trimq@test",
            self.core.login_log,
        )
        self.clients: list[Client] = []

    def settle(self) -> None:
        """Writes, syncs, delivers and sends everything that is pending."""
        for _ in range(3):  # a sync can cause a delivery, and a delivery a sync
            self.runner.settle()
            for client in self.clients:
                client.go_on()

    def end_pass(self) -> None:
        """Writes everything that is pending and syncs nothing."""
        self.runner.end_pass()
        for client in self.clients:
            client.go_on()

    def client(self, *channels: int, **login: Any) -> Client:
        """Opens a client, completes its handshake and opens these channels."""
        client = Client(self)
        client.log_in(**login)
        for channel in channels:
            client.ask(channel, methods.ChannelOpen())
        return client


class Content(NamedTuple):
    """A method with its content."""

    method: methods.Method
    header: bytes
    body: bytes


class Client:
    """The peer, the session and the session's outlet in one object."""

    def __init__(self, desk: Desk, address: str = "127.0.0.1:4000") -> None:
        self.desk = desk
        self.sent = bytearray()
        self.is_congested = False
        self.is_closed = self.is_aborted = self.is_held = self.may_be_silent = False
        self.share = 1 << 30
        """So many events are handled in one turn; the next is when all is settled."""
        self.fault: ProtocolError | None = None
        self._progress = PassProgress()
        self._pending_replies = PendingReplies(self._progress, self._send_ready)
        self._conversation = desk.front_end.open_conversation(address, self)
        desk.clients.append(self)

    # -- the outlet

    def send(self, parts: Sequence[Any]) -> None:
        self.sent += b"".join(parts)

    def throttle_reading(self, milliseconds: int) -> None:
        raise AssertionError("reading was throttled unexpectedly")

    def hold_reading(self) -> None:
        self.is_held = True

    def release_reading(self) -> None:
        self.is_held = False

    def disable_idle_timeout(self) -> None:
        self.may_be_silent = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    # -- the session

    def feed(self, data: bytes) -> None:
        while data:
            room = self._conversation.get_buffer(len(data))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self._conversation.buffer_updated(count)
            data = data[count:]
        self.go_on()

    def go_on(self) -> None:
        self._release()
        left = self.share
        try:
            while left and not self.is_held and not self.is_closed and (event := self._conversation.next_event()):
                left -= 1
                reply = self._conversation.handle(event)
                if reply is not None:
                    self._accept(reply)
        except ProtocolError as error:
            self.fault = error
            self.is_closed = True
            self.send(self._conversation.closing_parts(error))
        self._release()

    def _accept(self, reply: Reply) -> None:
        self._release()
        if not self._pending_replies.add(reply):
            self.send(reply.take())

    def _release(self) -> None:
        passes = self.desk.runner.passes
        self._progress.advance(passes.written, passes.durable)

    def _send_ready(self, ready: list[Reply], is_by_pass: bool) -> None:
        for reply in ready:
            self.send(reply.take())

    def relieve(self) -> None:
        """Ends the congestion: the peer has read everything that was sent."""
        self.is_congested = False
        self._conversation.on_congestion_end()

    def closing_parts(self) -> list[Any]:
        """Returns the frames that the broker sends when it stops."""
        self.send(self._conversation.closing_parts(Stopping()))
        return self.heard()

    def lose(self) -> None:
        """Loses the connection."""
        self.is_closed = True
        self._pending_replies.abandon_all()
        self._conversation.closed()
        self.desk.clients.remove(self)

    # -- actions of the client

    def log_in(
        self,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        capabilities: FieldTable = ALL_CAPABILITIES,
        **tuning: int,
    ) -> None:
        self.feed(b"AMQP\0\0\x09\x01")
        response = b"\0%b\0%b" % (user.encode(), password.encode())
        self.tell(0, methods.ConnectionStartOk({"capabilities": capabilities}, "PLAIN", response, "en_US"))
        self.desk.settle()
        tune = methods.ConnectionTuneOk(**{"channel_max": 2047, "frame_max": 131_072, **tuning})
        self.tell(0, tune)
        self.tell(0, methods.ConnectionOpen(vhost))
        self.heard()

    def tell(self, channel: int, *sent_methods: methods.Method) -> None:
        self.feed(b"".join(command(channel, method) for method in sent_methods))

    def ask(self, channel: int, method: methods.Method) -> Any:
        """Sends a method and returns its single answer once everything is durable."""
        self.tell(channel, method)
        self.desk.settle()
        (answer,) = self.heard()
        return answer

    def declare(self, channel: int, name: str, **flags: Any) -> None:
        self.ask(channel, methods.QueueDeclare(queue=name, **{"is_durable": True, **flags}))

    def publish(self, channel: int, key: str, *bodies: bytes, header: bytes = EMPTY, **flags: Any) -> None:
        method = methods.BasicPublish(routing_key=key, **flags)
        self.feed(b"".join(publish(channel, method, body, header) for body in bodies))

    def heard_by_channel(self) -> list[tuple[int, Any]]:
        """Methods received since the last call, with their contents, each with its channel."""
        found: list[tuple[int, Any]] = []
        for kind, channel, payload in frames_of(bytes(self.sent)):
            if kind == 1:
                found.append((channel, read_method(payload)))
            elif kind == 2:
                found[-1] = channel, Content(found[-1][1], payload[12:], b"")
            elif kind == 3:
                found[-1] = channel, found[-1][1]._replace(body=found[-1][1].body + payload)
        self.sent.clear()
        return found

    def heard(self) -> list[Any]:
        return [came for _, came in self.heard_by_channel()]

    def bodies(self) -> list[bytes]:
        return [came.body for came in self.heard() if isinstance(came, Content)]
