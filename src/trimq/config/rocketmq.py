"""Settings of the section `rocketmq`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trimq.config.address import Address, Advertised
from trimq.config.kinds import (
    DAY_MS,
    GIB,
    HOUR_MS,
    INT32,
    INT64,
    KIB,
    MIB,
    Addresses,
    DelayLevels,
    Hours,
    Listen,
    Name,
)


class RocketMQ(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Address of the name server for RocketMQ clients.")] = Address(
        "127.0.0.1", 9876
    )
    broker_listen: Annotated[
        Listen, Meta(description="Address of the broker, where RocketMQ clients send and pull messages.")
    ] = Address("127.0.0.1", 10911)
    grpc_listen: Annotated[
        Listen,
        Meta(
            description="Address that RocketMQ 5 clients connect to with gRPC. Needs the extra `grpc`; off if the "
            "extra is not installed and this is not set."
        ),
    ] = Address("127.0.0.1", 8081)
    old_clients: Annotated[
        bool,
        Meta(
            description="Also listen two ports below broker_listen (VIP channel), where clients before 4.5 send. If "
            "broker_listen has port 0, only if that port is free."
        ),
    ] = True
    advertise: Annotated[
        Advertised | None,
        Meta(description="Broker address announced to RocketMQ clients, if not the bound one."),
    ] = None
    name_servers: Annotated[
        Addresses,
        Meta(
            description="Other name servers, of TriMQ or Apache RocketMQ, with which the broker registers: at start, "
            "every 30 seconds and after changes of topics. Each broker of a name server needs its own broker_name."
        ),
    ] = ""
    cluster_name: Annotated[Name, Meta(description="Cluster name that RocketMQ's tools show.")] = "DefaultCluster"
    broker_name: Annotated[
        Name,
        Meta(
            description="Broker name that RocketMQ clients see. Other brokers that register with the name server need "
            "other names; Apache RocketMQ brokers are often called broker-a."
        ),
    ] = "broker-trimq"
    auto_create_topics: Annotated[
        bool, Meta(description="Create a topic when a RocketMQ producer sends to one that does not exist.")
    ] = True
    default_queues: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum number of queues of a topic that is created by sending to it.")
    ] = 8
    delay_levels: Annotated[
        DelayLevels, Meta(description="Delay of each delay level: numbers followed by s, m, h or d.")
    ] = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    max_delay_ms: Annotated[
        int, Meta(ge=1000, le=INT64, description="Longest delay of a message with an arbitrary delivery time.")
    ] = 3 * DAY_MS
    transaction_timeout_ms: Annotated[
        int,
        Meta(ge=1, le=INT64, description="Age of an undecided half message at its first check-back."),
    ] = 6000
    transaction_check_interval_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="Interval between scans for undecided half messages.")
    ] = 30_000
    transaction_check_max: Annotated[
        int, Meta(ge=1, le=INT32, description="Number of check-backs before an undecided transaction is rolled back.")
    ] = 15
    message_bytes: Annotated[
        int, Meta(ge=1, le=INT32, description="Longest body of a RocketMQ message that is accepted.")
    ] = 4 * MIB
    pop_out_limit: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Maximum number of messages of a queue that a group may have popped and not acknowledged.",
        ),
    ] = 10_000
    remembered_ids: Annotated[
        int,
        Meta(
            ge=0,
            le=INT32,
            description="Number of message ids remembered for deduplication: a message sent again is stored once.",
        ),
    ] = 0
    flush_timeout_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="A producer whose message is not on disk after this time gets FLUSH_DISK_TIMEOUT; the message "
            "is kept.",
        ),
    ] = 5000
    commit_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=HOUR_MS,
            description="Longest time between the acknowledgement of a message and its write to the page cache with "
            "flush = pooled. 16 KiB of messages are written at once.",
        ),
    ] = 200
    busy_after_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Messages of RocketMQ clients are refused as busy while earlier ones wait longer than this for "
            "their acknowledgement, as with osPageCacheBusyTimeOutMills. Clients of the other protocols: "
            "storage.busy_after_ms.",
        ),
    ] = 1000
    registered_brokers: Annotated[
        int, Meta(ge=0, le=INT32, description="Maximum number of other brokers that may register with the name server.")
    ] = 1000
    registered_topics: Annotated[
        int, Meta(ge=0, le=INT32, description="Maximum number of topics that such brokers may register.")
    ] = 100_000
    client_groups: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Maximum number of groups in which one RocketMQ connection may produce and consume.",
        ),
    ] = 1000
    client_subscriptions: Annotated[
        int, Meta(ge=1, le=INT32, description="Maximum number of subscriptions in one heartbeat, over all its groups.")
    ] = 10_000
    group_locks: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Maximum number of queues that a RocketMQ group may lock for orderly consumption.",
        ),
    ] = 10_000
    queue_locks: Annotated[
        int, Meta(ge=1, le=INT32, description="Maximum number of queues that all such groups together may lock.")
    ] = 100_000
    filter_bytes: Annotated[
        int, Meta(ge=1, le=MIB, description="Longest SQL92 filter expression of a RocketMQ consumer.")
    ] = 16 * KIB
    filter_operators: Annotated[
        int, Meta(ge=1, le=500, description="Maximum number of operators and brackets in such an expression.")
    ] = 200
    pop_invisible_limit_ms: Annotated[
        int,
        Meta(
            ge=1000,
            le=DAY_MS * 30,
            description="Longest invisible time of a popped message, also when it is extended.",
        ),
    ] = 12 * HOUR_MS
    frame_bytes: Annotated[
        int,
        Meta(ge=KIB, le=INT32, description="Largest frame of a RocketMQ client; a larger one closes the connection."),
    ] = 16 * MIB
    command_bytes: Annotated[
        int,
        Meta(
            ge=KIB,
            le=INT32,
            description="Longest body of a RocketMQ request that is neither a message nor the registration of a broker;"
            " a longer one is rejected.",
        ),
    ] = MIB
    header_bytes: Annotated[
        int, Meta(ge=KIB, le=16 * MIB - 1, description="Largest header of a frame; a larger one closes the connection.")
    ] = MIB
    grpc_header_bytes: Annotated[
        int,
        Meta(ge=KIB, le=MIB, description="Largest headers of a gRPC call; a call with larger ones is rejected."),
    ] = 16 * KIB
    grpc_idle_frames: Annotated[
        int,
        Meta(
            ge=100,
            le=INT32,
            description="Maximum number of HTTP/2 frames without a request that a gRPC client may send in 10 s; more "
            "close the connection.",
        ),
    ] = 10_000
    signature_window_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64,
            description="How far the time that a gRPC client signs may be from the broker's, both in UTC. 0: not "
            "checked, as in Apache RocketMQ, whose Java and Python clients sign their local time.",
        ),
    ] = 0
    allowed_brokers: Annotated[
        Addresses,
        Meta(
            description="Addresses of brokers that may register with the name "
            "server without a login as an administrator. Without users, an empty list allows all; with users, none."
        ),
    ] = ""
    received_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=INT64,
            description="Memory for partly received requests of all RocketMQ clients, over remoting and gRPC; beyond "
            "it, connections that hold much are closed: of the address that holds the most, the largest of the oldest.",
        ),
    ] = GIB
    commit_file_bytes: Annotated[int, Meta(ge=64 * KIB, le=GIB, description="Size of each file of the commit log.")] = (
        GIB
    )
    commit_preallocate: Annotated[
        bool,
        Meta(description="Create the next file of the commit log, with its disk space allocated, before it is needed."),
    ] = False
    commit_warm: Annotated[
        bool,
        Meta(
            description="Create the next file before it is needed and fill it with zeros, so that its pages are in "
            "memory."
        ),
    ] = False
    commit_lock_memory: Annotated[
        bool,
        Meta(
            description="Lock the active file of the commit log in memory (mlock). The limit RLIMIT_MEMLOCK must allow"
            " commit_file_bytes, or the broker does not start."
        ),
    ] = False
    queue_file_entries: Annotated[
        int,
        Meta(ge=100, le=100_000_000, description="Number of messages in each file of a consume queue."),
    ] = 300_000
    index_keys: Annotated[
        int, Meta(ge=100, le=100_000_000, description="Number of keys in each file of the key index.")
    ] = 20_000_000
    retention_ms: Annotated[int, Meta(ge=1, le=INT64, description="Retention of full files of the commit log.")] = (
        72 * HOUR_MS
    )
    dead_letter_retention_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=INT64,
            description="Minimum retention of dead letters (%DLQ%) and of the commit log files that contain them, even"
            " if retention_ms is shorter. On a nearly full disk they are deleted earlier.",
        ),
    ] = 72 * HOUR_MS
    delete_when: Annotated[
        Hours,
        Meta(description="Hours of the day (UTC) in which files past their retention are deleted. Empty: all."),
    ] = "04"
    config_save_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=INT64,
            description="Interval between writes of the configuration files that Apache RocketMQ reads.",
        ),
    ] = 5000
