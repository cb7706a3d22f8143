"""The settings of the section `rocketmq`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trimq.config.address import Address, Advertised
from trimq.config.kinds import DAY_MS, GIB, HOUR_MS, INT32, INT64, KIB, MIB, DelayLevels, Hours, Listen, Name


class RocketMQ(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Where RocketMQ clients find the name server.")] = Address(
        "127.0.0.1", 9876
    )
    broker_listen: Annotated[Listen, Meta(description="Where RocketMQ clients send and pull messages.")] = Address(
        "127.0.0.1", 10911
    )
    grpc_listen: Annotated[
        Listen,
        Meta(
            description="Where RocketMQ 5 clients connect with gRPC. Needs the extra `grpc`: without it, off unless "
            "asked for."
        ),
    ] = Address("127.0.0.1", 8081)
    old_clients: Annotated[
        bool,
        Meta(
            description="Also listen two ports below broker_listen, where clients before 4.5 send. If that has port 0, "
            "only where the second port below it is free."
        ),
    ] = True
    advertise: Annotated[
        Advertised | None,
        Meta(description="What RocketMQ clients are told to send to and pull from, if not what was bound."),
    ] = None
    cluster_name: Annotated[Name, Meta(description="The name of the cluster that RocketMQ's tools show.")] = (
        "DefaultCluster"
    )
    broker_name: Annotated[
        Name,
        Meta(
            description="The name by which RocketMQ clients know this broker. Another broker that registers with the "
            "name server needs another name; a genuine one is often called broker-a."
        ),
    ] = "broker-trimq"
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
    pop_out_limit: Annotated[
        int,
        Meta(ge=1, le=INT32, description="How many messages of a queue a group may have popped and not acknowledged."),
    ] = 10_000
    remembered_ids: Annotated[
        int, Meta(ge=0, le=INT32, description="How many message ids are remembered: one sent again is stored once.")
    ] = 0
    flush_timeout_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="A producer whose message is not on disk after this time is told so; the message stays.",
        ),
    ] = 5000
    registered_brokers: Annotated[
        int, Meta(ge=0, le=INT32, description="How many other brokers may register with the name server.")
    ] = 1000
    registered_topics: Annotated[int, Meta(ge=0, le=INT32, description="How many topics such brokers may tell of.")] = (
        100_000
    )
    client_groups: Annotated[
        int, Meta(ge=1, le=INT32, description="In how many groups one RocketMQ connection may produce and consume.")
    ] = 1000
    client_subscriptions: Annotated[
        int, Meta(ge=1, le=INT32, description="How many subscriptions one heartbeat may tell of, of all its groups.")
    ] = 10_000
    group_locks: Annotated[
        int, Meta(ge=1, le=INT32, description="How many queues a RocketMQ group may lock, to consume in order.")
    ] = 10_000
    queue_locks: Annotated[
        int, Meta(ge=1, le=INT32, description="How many queues all such groups may lock together.")
    ] = 100_000
    filter_bytes: Annotated[
        int, Meta(ge=1, le=MIB, description="The longest SQL expression by which a RocketMQ consumer may filter.")
    ] = 16 * KIB
    filter_operators: Annotated[
        int, Meta(ge=1, le=500, description="How many operators and brackets such an expression may have.")
    ] = 200
    pop_invisible_limit_ms: Annotated[
        int,
        Meta(
            ge=1000,
            le=DAY_MS * 30,
            description="The longest time for which a message may be popped, or its time be prolonged.",
        ),
    ] = 12 * HOUR_MS
    frame_bytes: Annotated[
        int, Meta(ge=KIB, le=INT32, description="The largest frame of a RocketMQ client; a larger one closes it.")
    ] = 16 * MIB
    command_bytes: Annotated[
        int,
        Meta(
            ge=KIB,
            le=INT32,
            description="The longest body of a RocketMQ request that is neither a message nor the registration of a"
            " broker; it is refused if it is longer.",
        ),
    ] = MIB
    header_bytes: Annotated[
        int, Meta(ge=KIB, le=16 * MIB - 1, description="The largest header of a frame; a larger one closes it.")
    ] = MIB
    grpc_header_bytes: Annotated[
        int, Meta(ge=KIB, le=MIB, description="The longest headers of a gRPC call; it is refused if they are longer.")
    ] = 16 * KIB
    grpc_idle_frames: Annotated[
        int,
        Meta(
            ge=100,
            le=INT32,
            description="How many frames of HTTP/2 a gRPC client may send in 10 s that ask for nothing; more close it.",
        ),
    ] = 10_000
    received_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=INT64,
            description="How much memory requests of RocketMQ clients that have come in part may take together, over "
            "remoting and gRPC; beyond it, connections and calls that send large ones are refused.",
        ),
    ] = GIB
    commit_file_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=GIB, description="The size of each file of the commit log.")
    ] = GIB
    commit_preallocate: Annotated[
        bool,
        Meta(description="Make the next file of the commit log, with its room on the disk, before it is needed."),
    ] = False
    commit_warm: Annotated[
        bool,
        Meta(description="Make it before it is needed, and write zeros to all of it, so that its pages are in memory."),
    ] = False
    commit_lock_memory: Annotated[
        bool,
        Meta(
            description="Hold the file of the commit log that is appended to in memory. The limit RLIMIT_MEMLOCK must"
            " allow commit_file_bytes, or the broker does not start."
        ),
    ] = False
    queue_file_entries: Annotated[
        int,
        Meta(ge=100, le=100_000_000, description="For how many messages each file of a consume queue has room."),
    ] = 300_000
    index_keys: Annotated[
        int, Meta(ge=100, le=100_000_000, description="How many keys each file of the key index has room for.")
    ] = 20_000_000
    retention_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="How long a full file of the commit log is kept.")
    ] = 72 * HOUR_MS
    dead_letter_retention_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=INT64,
            description="How long dead letters (%DLQ%) are kept at least, with the file of the commit log that they lie"
            " in, even if files are kept for a shorter time. Only a disk that is nearly full lets them go earlier.",
        ),
    ] = 72 * HOUR_MS
    delete_when: Annotated[
        Hours,
        Meta(description="In which hours of the day (UTC) files go that were kept long enough. Empty: in all."),
    ] = "04"
    config_save_ms: Annotated[
        int,
        Meta(ge=100, le=INT64, description="How often the files are written that a genuine RocketMQ broker reads."),
    ] = 5000
