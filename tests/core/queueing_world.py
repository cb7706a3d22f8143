"""A whole core on files in memory with a manual clock, used through the queue API."""

from __future__ import annotations

import random

from doubles import FaultyFiles, PassRunner
from no_rocketmq import NO_ROCKETMQ

from trimq.clock import Clock, ManualTime
from trimq.config import Settings
from trimq.core.api.broker import Broker
from trimq.core.assembly.core import Core, open_core
from trimq.core.queues.consumers import Consumer, Subscription
from trimq.core.queues.publisher import PublishResult
from trimq.core.queues.unacked import Delivery
from trimq.core.queues.work_queue import WorkQueue
from trimq.core.routing.bindings import Binding
from trimq.formats.amqp_content.field_tables import FieldTable, Value
from trimq.formats.amqp_content.property_list import write_properties
from trimq.metrics import Metrics
from trimq.model import Caller
from trimq.storage.io.memory_files import MemoryFiles

CALLER = Caller("guest", "client", "", "amqp")
OWNER = "connection 1"


class Channel:
    """Records its deliveries."""

    def __init__(self) -> None:
        self.can_take = True
        self.out: list[Delivery] = []
        self.seen: list[tuple[str, bytes, bool]] = []
        self.cancelled_tags: list[str] = []
        self.timed_out_tags: list[str] = []

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.out += deliveries
        self.seen += [(consumer.tag, delivery.message.body, delivery.redelivered) for delivery in deliveries]

    def cancelled(self, consumer: Consumer) -> None:
        self.cancelled_tags.append(consumer.tag)

    def timed_out(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        self.timed_out_tags.append(consumer.tag)

    def bodies(self) -> list[bytes]:
        """Returns the bodies delivered since the last call."""
        seen, self.seen = self.seen, []
        return [body for _, body, _ in seen]


class World:
    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.memory = MemoryFiles()
        self.files = FaultyFiles(self.memory)
        self.time = ManualTime(now_ms)
        self._start()

    def _start(self) -> None:
        self.runner = PassRunner(self.files)
        clock = Clock(self.time, self.time)
        self.core: Core = open_core(
            Settings(rocketmq=NO_ROCKETMQ),
            self.files,
            self.runner.passes,
            clock,
            self.runner.offload,
            random.Random(1),
            Metrics(),
        )
        self.runner.settle()
        self.core.start()
        self.runner.settle()
        self.broker: Broker = self.core.broker

    def settle(self) -> None:
        self.runner.settle()

    def advance(self, milliseconds: int) -> None:
        until_ms = self.time.now_ms() + milliseconds
        while self.time.step(until_ms):
            self.settle()
        self.settle()

    def restart(self) -> None:
        """Stops and starts again cleanly."""
        self.core.stop_writes()
        self.core.close()
        self.settle()
        self.time = ManualTime(self.time.now_ms())
        self._start()

    def crash(self) -> None:
        self.memory.crash()
        self.time = ManualTime(self.time.now_ms())
        self._start()

    # -- operations with default arguments

    def queue(self, name: str = "q", owner: str = OWNER, **arguments: Value) -> WorkQueue:
        """Declares a queue. Arguments are named without `x-` and with underscores."""
        flags = {flag: arguments.pop(flag, flag == "durable") for flag in ("durable", "exclusive", "auto_delete")}
        table: FieldTable = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        declared = self.broker.queues.declare_queue(
            CALLER, name, bool(flags["durable"]), bool(flags["exclusive"]), bool(flags["auto_delete"]), table, owner
        )
        self.settle()
        return declared.queue  # type: ignore[return-value]

    def exchange(self, name: str, kind: str = "direct", **arguments: Value) -> None:
        table: FieldTable = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.broker.exchanges.declare(CALLER, name, kind, True, False, False, table)
        self.settle()

    def bind(self, source: str, queue: str, key: str = "") -> None:
        self.broker.exchanges.bind(CALLER, Binding(source, queue, True, key, {}), OWNER)
        self.settle()

    def send(self, key: str, *bodies: bytes, exchange: str = "", **properties: Value) -> list[PublishResult]:
        """Publishes without waiting for the disk."""
        header = write_properties(**{"delivery_mode": 2, **properties})
        return [self.broker.exchanges.publish(CALLER, exchange, key, header, body) for body in bodies]

    def publish(self, key: str, *bodies: bytes, exchange: str = "", **properties: Value) -> list[PublishResult]:
        published = self.send(key, *bodies, exchange=exchange, **properties)
        self.settle()
        return published

    def consume(
        self,
        queue: str = "q",
        tag: str = "c",
        channel: Channel | None = None,
        prefetch: int = 0,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
        arguments: FieldTable | None = None,
    ) -> tuple[Channel, Consumer]:
        channel = channel or Channel()
        subscription = Subscription(tag, channel, prefetch, no_ack, exclusive, priority, arguments or {})
        consumer = self.broker.queues.subscribe(CALLER, queue, OWNER, subscription)
        self.settle()
        return channel, consumer

    def get(self, queue: str = "q", no_ack: bool = False) -> Delivery | None:
        found = self.broker.queues.get(CALLER, queue, OWNER, no_ack).delivery
        self.settle()
        return found

    def drain(self, queue: str = "q") -> list[bytes]:
        """Gets and acknowledges all messages."""
        found = []
        while (delivery := self.get(queue, no_ack=True)) is not None:
            found.append(delivery.message.body)
        return found

    def ack(self, *deliveries: Delivery) -> None:
        self.broker.queues.ack(deliveries)
        self.settle()

    def requeue(self, *deliveries: Delivery, counts: bool = False) -> None:
        self.broker.queues.requeue(deliveries, counts)
        self.settle()

    def reject(self, *deliveries: Delivery, counts: bool = True) -> None:
        self.broker.queues.reject(deliveries, counts)
        self.settle()

    def exists(self, queue: str = "q") -> bool:
        return any(found.name == queue for found in self.broker.queues.queues(CALLER))
