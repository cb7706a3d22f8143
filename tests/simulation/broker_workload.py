"""The real broker in the simulation: node, sessions, handlers, core and storage, with clients that record its replies,
and invariants that hold at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

from broker_lives import BrokerLives
from broker_promises import BrokerPromises, Creation, FoundTopic
from clients import ORDERED_PORT, UNORDERED_PORT, Client, sent_ms
from idempotent_writer import IdempotentWriter
from kafka_clients import KAFKA_PORT, PARTITIONS, KafkaConsumer, KafkaProducer
from no_rocketmq import NO_ROCKETMQ
from simulated_trace import SimulationFailure
from simulation import Death
from small_clients import Administrator, CursorKeeper, HeavyClient, Pulse, Reader, Writer
from small_front_end import SmallFrontEnd
from stream_promises import StreamPromises
from surroundings import Surroundings

from trimq.config import Address, Amqp, Http, Kafka, Limits, Settings, Storage
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topic
from trimq.errors import DamagedSegment
from trimq.protocols.contract import IN_ORDER
from trimq.server.front_ends import FrontEndParts, PlannedListener, configured_front_ends
from trimq.server.node import Node

DAY_MS = 86_400_000


def choose_settings(random: Random) -> Settings:
    """Returns settings with small sizes, so that files roll, checkpoints are written and limits are reached often."""
    choose = random.choice
    return Settings(
        flush=choose(("sync",) * 6 + ("async",)),
        flush_interval_ms=choose((5, 200, 2_000)),
        kafka=Kafka(listen=Address("127.0.0.1", KAFKA_PORT), num_partitions=PARTITIONS),
        amqp=Amqp(listen=None),
        rocketmq=NO_ROCKETMQ,
        http=Http(listen=None),
        storage=Storage(
            segment_bytes=choose((1_024, 3_000, 20_000)),
            segment_ms=choose((2_000, 600_000, 7 * DAY_MS)),
            index_interval_bytes=choose((0, 300, 4_096)),
            retention_ms=choose((-1, -1, 5_000, 900_000)),
            retention_bytes=choose((-1, -1, -1, 4_000)),
            retention_check_ms=choose((1_000, 60_000)),
            checkpoint_bytes=choose((1, 700, 10_000, 1 << 26)),
            low_water_bytes=choose((0, 0, 1 << 20)),
            disk_pressure_percent=choose((100, 100, 95)),
            syncfs_threshold=choose((1, 4, 8, 64)),
        ),
        limits=Limits(
            pending_requests_per_connection=choose((2, 10, 1_000)),
            unsent_bytes_per_connection=choose((1_024, 30_000, 1 << 20)),
        ),
    )


def plan(settings: Settings) -> dict[str, PlannedListener]:
    """The real front-ends, and the small protocol with ordered and with unordered replies."""

    def make_small(lane: object, parts: FrontEndParts) -> SmallFrontEnd:
        return SmallFrontEnd(parts.core, parts.clock, lane)

    return {
        **configured_front_ends(settings),
        "ordered": PlannedListener(Address("127.0.0.1", ORDERED_PORT), partial(make_small, IN_ORDER)),
        "unordered": PlannedListener(Address("127.0.0.1", UNORDERED_PORT), partial(make_small, None)),
    }


class WatchedStream:
    """A stream that is checked after every pass, at low cost when it has not changed."""

    __slots__ = ("_ends", "_log", "_promises", "_stream")

    def __init__(self, stream: Stream, promises: StreamPromises) -> None:
        self._stream = stream
        self._log = stream.log
        self._promises = promises
        self._ends = (-1, -1, -1)

    def check(self, may_go: Callable[[Stream, Sequence[bytes]], bool]) -> None:
        log = self._log
        ends = (log.start, log.durable_end, log.end)
        if ends != self._ends:
            self._ends = ends
            stream = self._stream
            self._promises.check_ends(
                stream.start, stream.readable_end, stream.durable_end, stream.end, partial(may_go, stream)
            )


class BrokerWorkload(BrokerLives):
    def __init__(self, random: Random, flips_bits: bool = False) -> None:
        settings = choose_settings(random)
        snapshot_bytes = random.choice((500, 5_000, 1 << 16))
        super().__init__(random, settings, plan, snapshot_bytes, Surroundings(BrokerPromises()))
        self._flips_bits = flips_bits
        self._is_restored = False
        self._may_lose = False
        # A new log start is stored only when the records before it are on disk, which is not awaited with async.
        self._may_uncut = self._settings.flush == "async"
        self._promises = self._surroundings.promises
        self._surroundings.may_forget = flips_bits or self._settings.flush == "async"
        self._surroundings.damage_refusals = ("DamagedSegment",) if flips_bits else ()
        self._watched: dict[Topic, list[WatchedStream]] = {}
        self._progress = (0, 0, 0)

    def _make_clients(self) -> list[Client]:
        def source(name: str) -> Random:
            return Random(f"{name} {self._random.random()}")

        shared, randint = self._surroundings, self._random.randint
        record_bytes = self._random.choice((0, 100, 1_500))
        clients: list[Client] = [
            Administrator("admin", source("admin"), shared),
            Pulse("pulse", source("pulse"), shared),
        ]
        for number in range(randint(0, 2)):
            clients.append(Writer(f"writer{number}", source("writer"), shared))
        for number in range(randint(0, 2)):
            clients.append(IdempotentWriter(f"idempotent{number}", source("idempotent"), shared, 100 + number))
        for number in range(randint(1, 2)):
            clients.append(Reader(f"reader{number}", source("reader"), shared))
        for kind, rng in ((KafkaProducer, 0.6), (KafkaConsumer, 0.6), (CursorKeeper, 0.4), (HeavyClient, 0.2)):
            if self._random.random() < rng:
                clients.append(kind(kind.__name__.lower(), source(kind.__name__), shared))
        for client in clients:
            if hasattr(client, "record_bytes"):
                client.record_bytes = record_bytes
        return clients

    def recovered(self, broker: Node) -> None:
        self._files.has_told_full = False
        super().recovered(broker)

    def would_not_start(self, error: Exception) -> None:
        if not self._flips_bits:
            raise SimulationFailure(f"the broker does not start: {error}")
        self._is_restored = True

    def died(self, way: Death) -> None:
        self._progress = (0, 0, 0)
        self.check()  # the changes of its last pass
        if self._settings.flush == "async" and way is Death.POWER:
            self._may_lose = True
        self._watched.clear()
        super().died(way)

    # -- invariants

    def check(self) -> None:
        self._check_clients()
        if self._node is None:
            return
        passes = self._node.passes
        progress = (passes.durable, passes.written, passes.current)
        if progress == self._progress:
            return  # nothing was written or made durable since the last check
        self._progress = progress
        if not passes.durable <= passes.written < passes.current:
            raise SimulationFailure(f"passes out of order: {passes.durable} {passes.written} {passes.current}")
        for topic in self._node.core.topics:
            watched = self._watched.get(topic) or self._watch(topic)
            for stream in watched:
                stream.check(self._may_go)

    def _watch(self, topic: Topic) -> list[WatchedStream]:
        known = self._promises.topic(topic.id.bytes, topic.name.name, len(topic.streams))
        watched = [WatchedStream(*each) for each in zip(topic.streams, known.streams, strict=True)]
        self._watched[topic] = watched
        return watched

    def _may_go(self, stream: Stream, records: Sequence[bytes]) -> bool:
        """Returns whether these records may be deleted without a request."""
        storage, settings = self._settings.storage, stream.log.settings
        now_ms = self._surroundings.now_ms()
        is_old = settings.retention_ms >= 0 and all(now_ms - sent_ms(body) > settings.retention_ms for body in records)
        is_large = 0 <= settings.retention_bytes <= stream.log.size_bytes
        is_pressed = storage.disk_pressure_percent < 100 and self._files.has_told_full
        return is_old or is_large or is_pressed

    def _check_recovered(self, node: Node) -> None:
        may_lose, self._may_lose = self._may_lose, False
        found = [
            FoundTopic(
                topic.id.bytes,
                Creation(topic.name.name, len(topic.streams), tuple(sorted(topic.settings.items()))),
            )
            for topic in node.core.topics
        ]
        if self._flips_bits:
            unsure = self._promises.relearn_topics(found)
            # A restored copy lacks all later records, and later records may have replaced others at their offsets.
            self._check_damaged(node, {topic.id for topic in found} if self._is_restored else unsure, may_lose)
            self._is_restored = False
            return
        had_gone = self._promises.gone_topics()
        self._promises.check_topics(found, may_lose)
        for id, stream, promises in self._streams(node):
            records = _readable_records(stream, may_be_damaged=False)
            if id in had_gone:
                promises.check_damaged(stream.start, records, stream.end, may_lose)
            else:
                promises.check_recovered(stream.start, records, stream.end, may_lose, self._may_uncut)
        self._promises.check_cursors(_cursors(node), may_lose)

    def _check_damaged(self, node: Node, unsure: set[bytes], may_lose: bool) -> None:
        for id, stream, promises in self._streams(node):
            records = _readable_records(stream, may_be_damaged=True)
            if id in unsure:
                promises.relearn(stream.start, records, stream.end)
            else:
                promises.check_damaged(stream.start, records, stream.end, may_lose)
        self._promises.check_damaged_cursors(_cursors(node))

    def _streams(self, node: Node) -> Iterator[tuple[bytes, Stream, StreamPromises]]:
        for topic in node.core.topics:
            known = self._promises.topics[topic.id.bytes]
            for stream, promises in zip(topic.streams, known.streams, strict=True):
                yield topic.id.bytes, stream, promises


def _cursors(node: Node) -> dict[tuple[str, bytes, int], int]:
    cursors = node.core.cursors
    return {
        (group, id.topic.bytes, id.number): cursor.offset
        for group in cursors.groups()
        for id, cursor in cursors.all(group).items()
    }


def _readable_records(stream: Stream, may_be_damaged: bool) -> list[tuple[int, bytes]]:
    if stream.readable_end != stream.end:
        raise SimulationFailure(f"{stream.topic}: {stream.readable_end} of {stream.end} are readable after the start")
    records = []
    try:
        for record in stream.records(stream.start, 1 << 20):
            records.append((record.offset, record.body or b""))
    except DamagedSegment as refusal:
        if not may_be_damaged:
            raise SimulationFailure(f"{stream.topic}: {refusal}") from refusal
    return records
