"""Test bench for Kafka: a front-end on a core in memory, used request by request without a socket or an event loop."""

from __future__ import annotations

import copy
import errno
import random
from typing import Any

from doubles import FaultyFiles, PassRunner
from no_rocketmq import NO_ROCKETMQ
from protocols.kafka.frames import request_frame

from trimq.clock import Clock, ManualTime
from trimq.config import Kafka, Limits, Settings, Storage
from trimq.core.assembly.core import open_core
from trimq.core.metadata.cluster import Address
from trimq.metrics import Metrics
from trimq.model import Buffer, Caller
from trimq.protocols.client_counters import CountsOfAll
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.front_end import KafkaFrontEnd
from trimq.protocols.kafka.logins.mechanisms import Mechanisms
from trimq.protocols.kafka.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from trimq.protocols.kafka.messages.handshakes import SaslAuthenticateRequest, SaslHandshakeRequest
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.schema import RequestMessage
from trimq.protocols.kafka.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.apis import APIS, response_class
from trimq.storage.io.memory_files import MemoryFiles

_API_VERSIONS = 18  # whose response header has no tagged fields
NOW_MS = 1_700_000_000_000
SECTIONS = {"kafka": Kafka, "storage": Storage, "limits": Limits}


class Way:
    """Outlet of a connection: records for how long reading was paused, and whether it is held."""

    is_congested = False
    may_be_closed = False

    def __init__(self) -> None:
        self.pauses_ms: list[int] = []
        self.is_held = False
        self.is_closed = False

    def send(self, parts: list[Buffer]) -> None:
        raise AssertionError("data was sent without a request")

    def throttle_reading(self, milliseconds: int) -> None:
        self.pauses_ms.append(milliseconds)

    def hold_reading(self) -> None:
        assert not self.is_held
        self.is_held = True

    def release_reading(self) -> None:
        assert self.is_held
        self.is_held = False

    def abort(self, reason: str = "") -> None:
        self.is_closed = True

    def close(self) -> None:
        assert self.may_be_closed, "the connection was closed unexpectedly"
        self.is_closed = True


class Desk:
    """`settings`: the settings of the broker, a dict for each section."""

    def __init__(self, files: FaultyFiles | None = None, **settings: Any) -> None:
        sections = {name: SECTIONS[name](**given) for name, given in settings.items() if name in SECTIONS}
        self.files = FaultyFiles(MemoryFiles()) if files is None else files
        self.settings = Settings(**{"rocketmq": NO_ROCKETMQ, **settings, **sections})
        self.message_time, self.liveness = ManualTime(NOW_MS), ManualTime(1_000_000)
        self.runner = PassRunner(self.files)
        clock = Clock(self.message_time, self.liveness)
        self.metrics = metrics = Metrics()
        self.core = open_core(
            self.settings, self.files, self.runner.passes, clock, self.runner.offload, random.Random(7), metrics
        )
        self.runner.settle()
        self.core.cluster.announce("kafka", Address("127.0.0.1", 9092))
        self.core.start()
        self.way = Way()
        self.front_end = self.new_front_end(clock)
        self._conversation = self.front_end.open_conversation("10.0.0.1:5000", self.way)
        self._conversations = {"anonymous": self._conversation}

    def speak_as(self, user: str) -> None:
        """Sends the following requests over a connection of this user, who logs in with the password NAME's."""
        if user not in self._conversations:
            self._conversation = self._conversations[user] = self.front_end.open_conversation("10.0.0.1:5001", self.way)
            assert not self.ask(SaslHandshakeRequest(mechanism="PLAIN")).error_code
            token = f"\0{user}\0{user}'s".encode()
            assert not self.ask(SaslAuthenticateRequest(auth_bytes=token)).error_code
        self._conversation = self._conversations[user]

    def connect(self) -> Desk:
        """Returns another connection to the same broker."""
        other = copy.copy(self)
        other._conversation = self.front_end.open_conversation("10.0.0.2:6000", self.way)
        return other

    def new_front_end(self, clock: Clock) -> KafkaFrontEnd:
        core, counts = self.core, CountsOfAll(Metrics()).of("kafka")
        mechanisms = Mechanisms(
            core.authenticator, core.credentials.scram, random.Random(8).randbytes, core.login_log, core.bearer_tokens
        )
        return KafkaFrontEnd(core.broker, core.authenticator, clock, counts, mechanisms)

    def ask(self, message: RequestMessage, version: int | None = None) -> Any:
        """Returns the response once it is durable."""
        version = APIS[message.API_KEY].max_version if version is None else version
        reply = self.begin(message, version)
        assert reply is not None, "this request is not answered"
        self.runner.settle()
        return self.read_answer(reply, message, version)

    def begin(self, message: RequestMessage, version: int) -> Reply | None:
        """Returns the reply, which may not be ready."""
        self._receive(request_frame(message, version))
        event = self._conversation.next_event()
        assert event is not None
        return self._conversation.handle(event)

    def read_answer(self, reply: Reply, message: RequestMessage, version: int) -> Any:
        assert reply.is_ready(self.runner.passes.written, self.runner.passes.durable)
        frame = b"".join(reply.take())
        is_flexible = version >= APIS[message.API_KEY].flexible_from and message.API_KEY != _API_VERSIONS
        body = 9 if is_flexible else 8
        return codec.decode(response_class(message.API_KEY), version, frame, body)

    def _receive(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = self._conversation.get_buffer(len(view))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._conversation.buffer_updated(count)
            view = view[count:]

    def let_pass(self, milliseconds: int) -> None:
        """Advances liveness by this time and runs everything that becomes due."""
        until_ms = self.liveness.now_ms() + milliseconds
        while self.liveness.step(until_ms):
            self.runner.settle()

    def fail_writes(self) -> None:
        """Makes every write to the disk fail from now on."""

        def refuse(operation: str, name: str) -> None:
            if operation == "write":
                raise OSError(errno.EIO, "the disk takes nothing")

        self.files.before = refuse

    def restart(self) -> Desk:
        """Opens the same data again, as a restart does."""
        self.core.close()
        self.runner.settle()
        return Desk(self.files)

    @property
    def caller(self) -> Caller:
        return Caller("anonymous", "client", "10.0.0.1:5000", "kafka")

    # -- common requests

    def create(self, name: str, partitions: int = 1, **configs: str) -> Any:
        given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
        return self.ask(CreateTopicsRequest(topics=[topic])).topics[0]

    def produce(self, topic: str, batch: Buffer, partition: int = 0, version: int = 9) -> Any:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
        return self.ask(request, version).responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int = 0, **fields: Any) -> Any:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
        request = FetchRequest(min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])
        return self.ask(request, 12)

    def configs(self, topic: str) -> dict[str, str]:
        """Settings of the topic itself, without defaults."""
        asked = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
        (found,) = self.ask(DescribeConfigsRequest(resources=[asked])).results
        return {config.name: config.value for config in found.configs if config.config_source == 1}
