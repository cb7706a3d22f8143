"""Test bench for RocketMQ: a front-end on a core in memory, used command by command without a socket or an event
loop."""

from __future__ import annotations

import errno
import json
import random
import struct
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

from doubles import FaultyFiles, PassRunner

from trimq.clock import Clock, ManualTime
from trimq.config import Address as Listen
from trimq.config import Log, RocketMQ, Settings
from trimq.core.assembly.core import open_core
from trimq.core.metadata.cluster import Address
from trimq.formats.rocketmq_unit.unit import Unit, iterate_units
from trimq.metrics import Metrics
from trimq.protocols.client_counters import CountsOfAll
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.front_end import RocketMQConversation, RocketMQFrontEnds
from trimq.storage.io.memory_files import MemoryFiles
from trimq.wire.remoting import Command, RemotingConnection

NOW_MS = 1_700_000_000_000
# Each run draws other ids than the run before.
_SEEDS = count(7)
EACH_REFUSAL = Log(audit_per_minute=0)
BROKER_ADDRESS = Address("127.0.0.1", 10911)


class Way:
    """Outlet of a connection: records the commands that are sent."""

    is_congested = False

    def __init__(self) -> None:
        self._connection = RemotingConnection()
        self.sent: list[Command] = []
        self.is_closed = False

    def abort(self, reason: str = "") -> None:
        self.is_closed = True

    def send(self, parts: Parts) -> None:
        self.sent.append(read_frame(parts))

    def throttle_reading(self, milliseconds: int) -> None:
        raise AssertionError("reading was throttled unexpectedly")

    def close(self) -> None:
        raise AssertionError("the connection was closed unexpectedly")


def read_frame(parts: Parts) -> Command:
    connection = RemotingConnection()
    connection.receive(b"".join(parts))
    command = connection.next_event()
    assert command is not None
    return command


def request(code: int, fields: dict[str, Any], body: bytes, flag: int, version: int) -> bytes:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
    header = json.dumps(
        {"code": code, "opaque": 5, "flag": flag, "extFields": texts, "language": "JAVA", "version": version}
    ).encode()
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def receive(conversation: RocketMQConversation, data: bytes) -> Iterator[None]:
    """Feeds the bytes, each time as many as the buffer holds."""
    while data:
        room = conversation.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        room.release()
        conversation.buffer_updated(size)
        data = data[size:]
        yield


class Peer:
    """One connection."""

    def __init__(self, desk: Desk, conversation: RocketMQConversation, way: Way) -> None:
        self._desk = desk
        self.conversation = conversation
        self.way = way

    def begin(self, code: int, fields: dict[str, Any] | None = None, body: Any = b"", **changes: int) -> Reply | None:
        """Sends a command. Returns the front-end's reply."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.give(request(code, fields or {}, data, changes.get("flag", 0), changes.get("version", 479)))

    def give(self, frame: bytes) -> Reply | None:
        """Handles one whole frame."""
        for _ in receive(self.conversation, frame):
            pass
        event = self.conversation.next_event()
        assert event is not None
        return self.conversation.handle(event)

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: Any = b"", **changes: int) -> Command:
        """Returns the answer once it is durable."""
        reply = self.begin(code, fields, body, **changes)
        assert reply is not None, "this command is not answered"
        return self._desk.take(reply)

    def send(self, topic: str, body: bytes = b"hello", queue: int = 0, properties: str = "", **fields: Any) -> Command:
        given = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 77, "h": 0, "i": properties}
        return self.ask(310, {**given, **fields}, body)

    def pull_fields(self, topic: str, offset: int = 0, queue: int = 0, **fields: Any) -> dict[str, Any]:
        given = {"consumerGroup": "g", "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32}
        return {**given, "sysFlag": 4, "commitOffset": 0, "subscription": "*", **fields}

    def pull(self, topic: str, offset: int = 0, queue: int = 0, **fields: Any) -> Command:
        return self.ask(11, self.pull_fields(topic, offset, queue, **fields))

    def heartbeat(self, client: str, group: str, *topics: str, model: Any = "CLUSTERING", version: int = 1) -> Command:
        subscriptions = [{"topic": topic, "subString": "*", "subVersion": version} for topic in topics]
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": subscriptions,
        }
        return self.ask(34, body={"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]})


class Desk:
    """`settings`: the settings of the section `rocketmq`."""

    make_runner: type[PassRunner] = PassRunner
    flush: Literal["sync", "pooled"] = "sync"

    def __init__(
        self,
        files: FaultyFiles | None = None,
        now_ms: int = NOW_MS,
        memory: MemoryFiles | None = None,
        **settings: Any,
    ) -> None:
        self.memory = MemoryFiles() if memory is None else memory
        self.files = FaultyFiles(self.memory) if files is None else files
        # The default name in Apache RocketMQ, with whose answers these are compared.
        self.given = {"commit_file_bytes": 1 << 23, "broker_name": "broker-a", **settings}
        anywhere = Listen("127.0.0.1", 0)
        section = RocketMQ(listen=anywhere, broker_listen=anywhere, **self.given)
        self.settings = Settings(rocketmq=section, flush=self.flush, log=EACH_REFUSAL)
        self.message_time, self.liveness = ManualTime(now_ms), ManualTime(1_000_000)
        self.runner = self.make_runner(self.files)
        clock = Clock(self.message_time, self.liveness)
        metrics = self.metrics = Metrics()
        self.core = open_core(
            self.settings,
            self.files,
            self.runner.passes,
            clock,
            self.runner.offload,
            random.Random(next(_SEEDS)),
            metrics,
        )
        self.settle()  # a node does this before it opens its front-ends
        assert self.core.commit_log_service is not None
        counts = CountsOfAll(metrics).of("rocketmq")
        self.doors = RocketMQFrontEnds(
            self.settings,
            self.core.commit_log_service.commit_log,
            self.core.cluster,
            clock,
            counts,
            self.core.signatures,
            self.core.broker.users,
            self.core.broker.acl_entries,
            self.core.broker.foreign_topics,
        )
        self.settle()
        self.core.cluster.announce("rocketmq_broker", BROKER_ADDRESS)
        self.advance(0)  # a node's loop turns at least once before it is ready
        self.core.start()
        self.broker = self.connect()
        self.names = self.connect(self.doors.name_server())

    def settle(self) -> None:
        """Writes and syncs everything, however long it may wait."""
        self.runner.passes.end_soon()
        self.runner.settle()

    def connect(self, front_end: Any = None) -> Peer:
        way = Way()
        made = self.doors.broker() if front_end is None else front_end
        return Peer(self, made.open_conversation("10.0.0.1:5000", way), way)

    def take(self, reply: Reply) -> Command:
        self.runner.settle()
        assert reply.is_ready(self.runner.passes.written, self.runner.passes.durable)
        return read_frame(reply.take())

    def is_ready(self, reply: Reply) -> bool:
        self.runner.settle()
        return reply.is_ready(self.runner.passes.written, self.runner.passes.durable)

    def let_pass(self, milliseconds: int) -> None:
        """Advances liveness by this time and runs everything that becomes due."""
        until_ms = self.liveness.now_ms() + milliseconds
        while self.liveness.step(until_ms):
            self.runner.settle()

    def advance(self, milliseconds: int) -> None:
        """Advances message time by this time and runs everything that becomes due."""
        until_ms = self.message_time.now_ms() + milliseconds
        while self.message_time.step(until_ms):
            self.runner.settle()

    def fail_writes(self, where: str = "", operation: str = "write") -> None:
        """Makes this operation fail from now on, for files with `where` in their name."""
        failing = operation

        def refuse(operation: str, name: str) -> None:
            if operation == failing and where in name:
                raise OSError(errno.EIO, "the disk takes nothing")

        self.files.before = refuse

    def restart(self) -> Desk:
        """Opens the same data again, after a clean stop."""
        self.core.stop_writes()
        self.core.close()
        self.settle()
        return type(self)(self.files, self.message_time.now_ms(), self.memory, **self.given)

    def cut_power(self) -> Desk:
        """Restarts after a power cut: unsynced data is lost."""
        self.core.stop_writes()
        self.memory.crash()
        return type(self)(FaultyFiles(self.memory), self.message_time.now_ms(), self.memory, **self.given)

    def kill(self) -> Desk:
        """Restarts after the process was killed: unsynced data is still in the page cache."""
        self.core.stop_writes()
        return type(self)(self.files, self.message_time.now_ms(), self.memory, **self.given)


def units_of(command: Command) -> list[Unit]:
    return list(iterate_units(command.body))


def bodies_of(command: Command) -> list[bytes]:
    return [bytes(unit.body) for unit in units_of(command)]
