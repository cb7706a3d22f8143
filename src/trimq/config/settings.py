"""Every setting of the broker, declared once: type, check, help and default. From these lines come the key in the file,
the environment variable, the flag and the documentation. Values are passed down, never global."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trimq.config.address import Address, Advertised

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
INT32 = 2**31 - 1  # Kafka's positions in a segment, sizes of a batch and of a frame are signed 32-bit numbers
INT64 = 2**63 - 1

Listen = Address | None
Path = Annotated[str, Meta(pattern=r"^[^\x00]+$")]
Name = Annotated[
    str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,100}$", extra={"form": "letters, digits, _ and -", "placeholder": "NAME"})
]

DelayLevels = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,6}[smhd]( [1-9][0-9]{0,6}[smhd]){0,99}$",
        extra={"form": "times like 10s 5m 2h 1d, with a blank between", "placeholder": "TIMES"},
    ),
]


class Kafka(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Where Kafka clients connect.")] = Address("127.0.0.1", 9092)
    advertise: Annotated[
        Advertised | None, Meta(description="What Kafka clients are told to connect to, if not what was bound.")
    ] = None
    num_partitions: Annotated[
        int, Meta(ge=1, le=100_000, description="Partitions of a topic whose creator leaves the number to the broker.")
    ] = 1
    auto_create_topics: Annotated[
        bool, Meta(description="Create a topic when a client that allows it asks for one that does not exist.")
    ] = True
    group_initial_rebalance_delay_ms: Annotated[
        int,
        Meta(ge=0, le=INT32, description="How long the first member of an empty group waits for others to join it."),
    ] = 0
    record_validation: Annotated[
        Literal["full", "header"],
        Meta(
            description="full: check each record that is produced. header: only the batch around them, except where a "
            "topic is compacted or limits the times of its records."
        ),
    ] = "full"
    received_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=INT64,
            description="How much memory requests of Kafka clients that have come in part may take together; beyond "
            "it, connections that send large ones are closed.",
        ),
    ] = GIB


class RocketMQ(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Where RocketMQ clients find the name server.")] = None
    broker_listen: Annotated[Listen, Meta(description="Where RocketMQ clients send and pull messages.")] = None
    grpc_listen: Annotated[
        Listen,
        Meta(description="Where RocketMQ 5 clients connect with gRPC.", extra={"absent_front_end": "RocketMQ"}),
    ] = None
    old_clients: Annotated[
        bool, Meta(description="Also listen two ports below broker_listen, where clients before 4.5 send.")
    ] = True
    advertise: Annotated[
        Advertised | None,
        Meta(description="What RocketMQ clients are told to send to and pull from, if not what was bound."),
    ] = None
    cluster_name: Annotated[Name, Meta(description="The name of the cluster that RocketMQ's tools show.")] = (
        "DefaultCluster"
    )
    broker_name: Annotated[Name, Meta(description="The name by which RocketMQ clients know this broker.")] = "broker-a"
    auto_create_topics: Annotated[
        bool, Meta(description="Create a topic when a RocketMQ producer sends to one that does not exist.")
    ] = True
    default_queues: Annotated[
        int, Meta(ge=1, le=1000, description="How many queues a topic gets at most that is created by sending to it.")
    ] = 8
    delay_levels: Annotated[
        DelayLevels, Meta(description="How long messages of each level of delay wait: s, m, h or d behind a number.")
    ] = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    max_delay_ms: Annotated[
        int, Meta(ge=1000, le=INT64, description="How long a message may wait whose producer names its time.")
    ] = 3 * DAY_MS
    transaction_timeout_ms: Annotated[
        int,
        Meta(ge=1, le=INT64, description="How long a transaction may be undecided before its producer is asked."),
    ] = 6000
    transaction_check_interval_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="How often the broker looks for transactions that are undecided.")
    ] = 30_000
    transaction_check_max: Annotated[
        int, Meta(ge=1, le=INT32, description="How often a producer is asked before a transaction is rolled back.")
    ] = 15
    message_bytes: Annotated[
        int, Meta(ge=1, le=INT32, description="The longest body of a RocketMQ message that is accepted.")
    ] = 4 * MIB
    frame_bytes: Annotated[
        int, Meta(ge=KIB, le=INT32, description="The largest frame of a RocketMQ client; a larger one closes it.")
    ] = 16 * MIB
    header_bytes: Annotated[
        int, Meta(ge=KIB, le=16 * MIB - 1, description="The largest header of a frame; a larger one closes it.")
    ] = MIB
    commit_file_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=GIB, description="The size of each file of the commit log.")
    ] = GIB
    index_keys: Annotated[
        int, Meta(ge=100, le=100_000_000, description="How many keys each file of the key index has room for.")
    ] = 20_000_000
    retention_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="How long a full file of the commit log is kept.")
    ] = 72 * HOUR_MS


class Amqp(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Where AMQP 0-9-1 clients connect.")] = None
    message_bytes: Annotated[
        int, Meta(ge=1, le=INT32, description="The largest message that is accepted; a larger one closes its channel.")
    ] = 128 * MIB
    frame_max: Annotated[int, Meta(ge=4096, le=INT32, description="The largest frame that clients are offered.")] = (
        128 * KIB
    )
    channel_max: Annotated[
        int, Meta(ge=0, le=65535, description="How many channels of a connection clients are offered. 0: any.")
    ] = 2047
    unacked_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=INT64,
            description="How much a channel may hold unacknowledged before nothing more is delivered to it.",
        ),
    ] = 256 * MIB
    heartbeat_s: Annotated[
        int, Meta(ge=0, le=65535, description="How often a sign of life is suggested to clients. 0: never.")
    ] = 60
    handshake_ms: Annotated[
        int, Meta(ge=1, le=HOUR_MS, description="A connection that is not open after this time is closed.")
    ] = 10_000
    consumer_timeout_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64,
            description="How long a consumer may take to acknowledge a message before it loses it. 0: any time.",
        ),
    ] = 1_800_000


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


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    connections: Annotated[
        int, Meta(ge=1, le=INT32, description="How many connections each listener accepts at once.")
    ] = 10_000
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
        int, Meta(ge=1, le=INT32, description="How many unanswered requests a connection may have.")
    ] = 1000
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
    storage: Storage = Storage()
    limits: Limits = Limits()
