"""Every setting of the broker, declared once: type, check, help and default; those of a protocol in its module. From
these lines come the key in the file, the environment variable, the flag and the documentation. Values are passed down,
never global."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trimq.config.address import Address
from trimq.config.amqp import Amqp
from trimq.config.kafka import Kafka
from trimq.config.kinds import DAY_MS, GIB, HOUR_MS, INT32, INT64, KIB, MIB, Listen, Path
from trimq.config.rocketmq import RocketMQ
from trimq.config.tls import Tls


class Http(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Where health, metrics and administration are served.")] = Address(
        "127.0.0.1", 8180
    )


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    segment_bytes: Annotated[
        int, Meta(ge=KIB, le=INT32, description="A segment that would grow past this size is closed.")
    ] = GIB
    segment_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="A segment whose first record is older than this is closed.")
    ] = 7 * DAY_MS
    index_interval_bytes: Annotated[
        int, Meta(ge=0, le=INT32, description="How many bytes of a log lie between two entries of its indexes.")
    ] = 4096
    retention_ms: Annotated[
        int, Meta(ge=-1, le=INT64, description="How long a closed segment is kept after its last record. -1: for ever.")
    ] = 7 * DAY_MS
    retention_bytes: Annotated[
        int, Meta(ge=-1, le=INT64, description="How large a stream may grow before its oldest segments go. -1: any.")
    ] = -1
    retention_check_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="How often the broker looks for segments that may go.")
    ] = 300_000
    message_bytes: Annotated[
        int, Meta(ge=1, le=INT32, description="The largest batch of messages that is accepted.")
    ] = 1_048_588
    checkpoint_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=INT64,
            description="How much may be written before a checkpoint, and so be read again after a crash.",
        ),
    ] = 64 * MIB
    queue_segment_bytes: Annotated[
        int, Meta(ge=KIB, le=INT32, description="A segment of a queue that would grow past this size is closed.")
    ] = 16 * MIB
    queue_memory_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64,
            description="How much of what was just published to queues is kept in memory for consumers that keep up.",
        ),
    ] = 64 * MIB
    low_water_bytes: Annotated[
        int, Meta(ge=0, le=INT64, description="Writes are refused while the disk has less room than this.")
    ] = 256 * MIB
    busy_after_ms: Annotated[
        int,
        Meta(ge=1, le=INT32, description="Writes are refused as busy while the disk takes longer than this to sync."),
    ] = 5_000
    disk_pressure_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="While the disk is fuller than this, the oldest closed segments go early. 100: never.",
        ),
    ] = 95
    open_files: Annotated[
        int, Meta(ge=16, le=INT32, description="How many files of the data folder are kept open at once.")
    ] = 2000
    syncfs_threshold: Annotated[
        int,
        Meta(ge=1, le=INT32, description="With more dirty files than this, the whole file system is synced at once."),
    ] = 2  # measured: docs/performance.md


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    retention_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64,
            description="How much is kept of messages that were given up, the newest first. 0: they are only counted.",
        ),
    ] = 64 * MIB
    retention_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="For how long messages that were given up are kept to be looked at.")
    ] = 3 * DAY_MS


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    connections: Annotated[
        int, Meta(ge=1, le=INT32, description="How many connections each listener accepts at once.")
    ] = 10_000
    memory_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Writes are refused, and AMQP publishers blocked, while the broker takes more than this part "
            "of the machine's memory, or of its container's.",
        ),
    ] = 60
    frame_bytes: Annotated[
        int, Meta(ge=KIB, le=INT32, description="The largest request that is read; a larger one closes its connection.")
    ] = 100 * MIB
    command_bytes: Annotated[
        int,
        Meta(
            ge=KIB,
            le=INT32,
            description="The largest request that brings no records; a larger one closes its connection. "
            "What is read of it can take fifty times as much memory.",
        ),
    ] = 4 * MIB
    elements_per_request: Annotated[
        int,
        Meta(
            ge=100,
            le=INT32,
            description="How many elements the arrays of one request may have together (partitions, groups, and so "
            "on); one with more closes its connection.",
        ),
    ] = 100_000
    pending_requests_per_connection: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="How many unanswered requests a connection may have before it is not read. Those of RocketMQ "
            "that wait for messages are not counted.",
        ),
    ] = 1000
    held_requests_per_connection: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="How many requests of RocketMQ that wait for messages a connection may have; one more is "
            "answered at once. Each takes about 3 KB.",
        ),
    ] = 10_000
    unsent_bytes_per_connection: Annotated[
        int, Meta(ge=KIB, le=INT32, description="How much may wait to be sent to a connection before it is not read.")
    ] = MIB
    idle_connection_ms: Annotated[
        int,
        Meta(ge=1000, le=INT64, description="A connection that asks nothing and reads nothing for so long is closed."),
    ] = 600_000
    batch_expansion_bytes: Annotated[
        int, Meta(ge=KIB, le=INT32, description="What one compressed batch may expand to; a larger one is refused.")
    ] = 128 * MIB
    records_per_batch: Annotated[
        int,
        Meta(
            ge=100,
            le=INT32,
            description="How many records one batch may have, with their headers; one with more is refused. A million "
            "of different sizes take about two seconds to check, and everybody else waits meanwhile.",
        ),
    ] = 500_000
    # A stream's folder is <topic>-<n>, and a file system takes 255 bytes: 249 and a dash leave five digits.
    topic_name_length: Annotated[
        int, Meta(ge=1, le=249, description="How many characters the name of a topic may have.")
    ] = 249
    streams_per_topic: Annotated[
        int, Meta(ge=1, le=100_000, description="How many streams (Kafka: partitions) a topic may have.")
    ] = 10_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    data_dir: Annotated[Path, Meta(description="The folder that holds everything the broker keeps.")] = "trimq-data"
    flush: Annotated[
        Literal["sync", "async"],
        Meta(description="sync: acknowledge what is on disk. async: acknowledge at once, sync in the background."),
    ] = "sync"
    flush_interval_ms: Annotated[
        int, Meta(ge=1, le=HOUR_MS, description="How long a write may wait for its sync with flush = async.")
    ] = 200
    ready_file: Annotated[
        Path | None, Meta(description="A JSON file of the process id and every bound address, written once ready.")
    ] = None
    node_id: Annotated[int, Meta(ge=0, le=INT32, description="The number by which clients know this broker.")] = 1
    kafka: Kafka = Kafka()
    rocketmq: RocketMQ = RocketMQ()
    amqp: Amqp = Amqp()
    http: Http = Http()
    tls: Tls = Tls()
    storage: Storage = Storage()
    failures: Failures = Failures()
    limits: Limits = Limits()


RENAMED = {"amqp.failures_bytes": "failures.retention_bytes", "amqp.failures_ms": "failures.retention_ms"}
"""Keys that settings had in earlier versions: what they are now."""
