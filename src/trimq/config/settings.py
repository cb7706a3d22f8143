"""Declares every setting once, with type, check, help and default; settings of a protocol are in its module. The TOML
key, the environment variable, the flag and the documentation are derived from these lines. Values are passed down,
never global."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trimq.config.address import Address
from trimq.config.amqp import Amqp
from trimq.config.kafka import Kafka
from trimq.config.kinds import (
    DAY_MS,
    GIB,
    HOUR_MS,
    INT32,
    INT64,
    KIB,
    MIB,
    HostNames,
    Listen,
    Path,
    UserName,
    UserNames,
)
from trimq.config.rocketmq import RocketMQ
from trimq.config.tls import Tls


class Http(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Address of the HTTP port for health, metrics and administration.")] = (
        Address("127.0.0.1", 8180)
    )
    hosts: Annotated[
        HostNames,
        Meta(
            description="Names under which the HTTP port is reached, besides localhost, IP addresses and the names "
            "that the broker listens on or advertises. Requests that name another host are refused: it may be that of "
            "a web page whose owner has pointed it at this broker. *: any name."
        ),
    ] = ""
    metrics: Annotated[
        Literal["all", "no-names", "login"],
        Meta(
            description="all: /metrics is open to everybody. no-names: so it is, without the metrics that name groups "
            "and topics. login: it needs a login (HTTP Basic) once one is required."
        ),
    ] = "all"
    received_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=INT64,
            description="Memory for partly received requests of all HTTP clients; beyond it, connections that hold "
            "much are closed: of the address that holds the most, the largest of the oldest.",
        ),
    ] = 128 * MIB
    live_pages: Annotated[
        int,
        Meta(ge=0, le=INT32, description="Maximum number of pages of the console that receive live numbers."),
    ] = 500
    sessions: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Maximum number of browsers that are logged in; one more ends the oldest session.",
        ),
    ] = 1000
    session_minutes: Annotated[
        int, Meta(ge=1, le=INT32, description="Time after which a browser has to log in again.")
    ] = 12 * 60


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    segment_bytes: Annotated[
        int, Meta(ge=KIB, le=INT32, description="A segment that would grow past this size is closed.")
    ] = GIB
    segment_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="A segment whose first record is older than this is closed.")
    ] = 7 * DAY_MS
    index_interval_bytes: Annotated[
        int, Meta(ge=0, le=INT32, description="Bytes of a log between two entries of its indexes.")
    ] = 4096
    retention_ms: Annotated[
        int, Meta(ge=-1, le=INT64, description="How long a closed segment is kept after its last record. -1: forever.")
    ] = 7 * DAY_MS
    retention_bytes: Annotated[
        int,
        Meta(
            ge=-1, le=INT64, description="Size of a stream above which its oldest segments are deleted. -1: unlimited."
        ),
    ] = -1
    retention_check_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="Interval between checks for segments past their retention.")
    ] = 300_000
    compaction_check_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=INT64,
            description="Interval between checks whether compacted topics that were written to are due for compaction.",
        ),
    ] = 15_000
    message_bytes: Annotated[int, Meta(ge=1, le=INT32, description="Largest batch of messages that is accepted.")] = (
        1_048_588
    )
    checkpoint_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=INT64,
            description="Bytes written between two checkpoints; recovery after a crash reads about this much again.",
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
            description="Memory for recently published messages of queues, to deliver them without reading the disk.",
        ),
    ] = 64 * MIB
    low_water_bytes: Annotated[
        int, Meta(ge=0, le=INT64, description="Writes are refused while the disk has less free space than this.")
    ] = 256 * MIB
    busy_after_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Writes are refused as busy, and AMQP publishers blocked, while a sync of the disk takes "
            "longer than this.",
        ),
    ] = 5_000
    disk_pressure_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="While disk usage is above this, the oldest closed segments are deleted early. 100: never.",
        ),
    ] = 95
    open_files: Annotated[
        int, Meta(ge=16, le=INT32, description="Maximum number of files of the data folder that are kept open.")
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
            description="Maximum size of the ledger of failed messages; the oldest are removed first. 0: failures "
            "are only counted.",
        ),
    ] = 64 * MIB
    retention_ms: Annotated[
        int, Meta(ge=1, le=INT64, description="Retention of messages in the ledger of failed messages.")
    ] = 3 * DAY_MS


class Security(msgspec.Struct, frozen=True, kw_only=True):
    mode: Annotated[
        Literal["open", "required"] | None,
        Meta(
            description="open: while no user is defined, every client may do everything. required: only users may do "
            "anything. Not set: open if every listener is on a loopback address, otherwise required."
        ),
    ] = None
    administrator: Annotated[
        UserName | None,
        Meta(
            description="Name of an administrator that is defined at the start if there is none. The password is read "
            "from security.administrator_password_file, or from the variable TRIMQ_NEW_PASSWORD."
        ),
    ] = None
    administrator_password_file: Annotated[
        Path | None, Meta(description="File with the password of security.administrator in its first line.")
    ] = None
    password_change_closes: Annotated[
        bool, Meta(description="A new password of a user closes all connections that logged in with the old one.")
    ] = True
    login_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=HOUR_MS,
            description="Time for a client to finish a TLS handshake, send its first request and, with Kafka, log in, "
            "once a login is required. AMQP clients have amqp.handshake_ms.",
        ),
    ] = 10_000
    failed_login_delay_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=HOUR_MS,
            description="Longest delay between logins of one user name from one address after failed ones: none after "
            "three, a second after ten, and then twice as long after each. 0: no delay.",
        ),
    ] = 5_000

    loopback_users: Annotated[
        UserNames,
        Meta(
            description="Users that may log in from the broker's machine only, as in RabbitMQ. Empty: none. While no "
            "user is defined, guest is one."
        ),
    ] = "guest"
    secrets_key_file: Annotated[
        Path | None,
        Meta(
            description="File with the key that encrypts the RocketMQ secrets of users: 32 bytes in base64, readable "
            "by its owner only. Without it, the key is made when the first secret is set, in `secrets.key` in the data "
            "folder."
        ),
    ] = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    connections: Annotated[
        int, Meta(ge=1, le=INT32, description="Maximum number of concurrent connections of each listener.")
    ] = 10_000
    connections_per_address: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Maximum number of concurrent connections of each listener from one client address (of IPv6: "
            "from a /64).",
        ),
    ] = 5_000
    memory_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Writes are refused, and AMQP publishers blocked, while the broker uses more than this part "
            "of the memory of its machine or container.",
        ),
    ] = 60
    throttle_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Kafka producers are throttled from this part of limits.memory_percent on, and while the disk "
            "has less free space than storage.low_water_bytes divided by this part: the closer to the limit, the "
            "longer, up to 1 s per request. 100: they are only refused at the limit.",
        ),
    ] = 80
    frame_bytes: Annotated[
        int, Meta(ge=KIB, le=INT32, description="Largest request that is read; a larger one closes its connection.")
    ] = 100 * MIB
    command_bytes: Annotated[
        int,
        Meta(
            ge=KIB,
            le=INT32,
            description="Largest request without records; a larger one closes its connection. "
            "A decoded request can take fifty times as much memory.",
        ),
    ] = 4 * MIB
    elements_per_request: Annotated[
        int,
        Meta(
            ge=100,
            le=INT32,
            description="Maximum number of elements of all arrays of one request (partitions, groups, and so on); a "
            "request with more closes its connection.",
        ),
    ] = 100_000
    pending_requests_per_connection: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Number of unanswered requests above which the broker stops reading from a connection. Long "
            "polls of RocketMQ are not counted.",
        ),
    ] = 1000
    held_requests_per_connection: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Maximum number of pending long polls of RocketMQ per connection; one more is answered at "
            "once. Each takes about 3 KB.",
        ),
    ] = 10_000
    unsent_bytes_per_connection: Annotated[
        int, Meta(ge=KIB, le=INT32, description="Unsent bytes above which the broker stops reading from a connection.")
    ] = MIB
    idle_connection_ms: Annotated[
        int,
        Meta(ge=1000, le=INT64, description="A connection without requests and without reads for this time is closed."),
    ] = 600_000
    batch_expansion_bytes: Annotated[
        int,
        Meta(ge=KIB, le=INT32, description="Largest uncompressed size of a compressed batch; a larger one is refused."),
    ] = 128 * MIB
    records_per_batch: Annotated[
        int,
        Meta(
            ge=100,
            le=INT32,
            description="Maximum number of records and record headers of one batch; a batch with more is refused. "
            "Checking a million records of different sizes takes about two seconds of a thread.",
        ),
    ] = 500_000
    expanded_bytes_per_request: Annotated[
        int,
        Meta(
            ge=KIB,
            le=INT64,
            description="Maximum uncompressed size of all compressed batches of one Kafka request together; those "
            "beyond it are refused.",
        ),
    ] = 256 * MIB
    records_per_request: Annotated[
        int,
        Meta(
            ge=100,
            le=INT32,
            description="Maximum number of records of all batches of one Kafka request; the batches beyond it are "
            "refused.",
        ),
    ] = 1_000_000
    queued_reviews: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Maximum number of large Kafka batches, and of searches by time in them, that wait for the "
            "thread that checks them; one more is refused as busy. A connection has one at a time.",
        ),
    ] = 200
    # The folder of a stream is <topic>-<n>, and file systems allow 255 bytes: 249 and a dash leave five digits.
    topic_name_length: Annotated[
        int, Meta(ge=1, le=249, description="Maximum length of a topic name in characters.")
    ] = 249
    topics: Annotated[
        int,
        Meta(
            ge=1, le=INT32, description="Maximum number of Kafka topics, and of RocketMQ topics with the system's own."
        ),
    ] = 100_000
    streams: Annotated[
        int, Meta(ge=1, le=INT32, description="Maximum number of streams (partitions) of all Kafka topics together.")
    ] = 200_000
    groups: Annotated[int, Meta(ge=1, le=INT32, description="Maximum number of Kafka consumer groups.")] = 100_000
    queues_per_vhost: Annotated[
        int, Meta(ge=1, le=INT32, description="Maximum number of AMQP queues of a virtual host.")
    ] = 100_000
    users: Annotated[int, Meta(ge=1, le=INT32, description="Maximum number of users.")] = 100_000
    streams_per_topic: Annotated[
        int, Meta(ge=1, le=100_000, description="Maximum number of streams (Kafka: partitions) of a topic.")
    ] = 10_000


class Cross(msgspec.Struct, frozen=True, kw_only=True):
    list: Annotated[
        Literal["all", "named", "off"],
        Meta(
            description="Topics of other protocols, for clients of each protocol. all: in lists of topics, and usable "
            "by name. named: by name only. off: unknown, and their names refused."
        ),
    ] = "all"
    batch_records: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Maximum number of messages in one batch for a topic of another protocol: they are translated "
            "in one turn of the event loop.",
        ),
    ] = 1000


class Log(msgspec.Struct, frozen=True, kw_only=True):
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level of the messages that the broker logs to its standard error."),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        Meta(description="text: one line per message for people. json: one JSON object per line for log collectors."),
    ] = "text"
    repeats_per_minute: Annotated[
        int,
        Meta(
            ge=0,
            le=INT32,
            description="Lines per minute of one kind of message; more of them are counted, not written. 0: no limit.",
        ),
    ] = 10
    audit_file: Annotated[
        Path | None,
        Meta(
            description="File to which audit records are appended, one JSON object per line: logins, refusals for lack "
            "of rights, and changes. It may be moved away at any time. Not set: they are part of the log."
        ),
    ] = None
    audit_per_minute: Annotated[
        int,
        Meta(
            ge=0,
            le=INT32,
            description="Different logins, and different refusals, that are written as audit records each minute; "
            "further ones are counted, and so are repetitions. 0: each one is written.",
        ),
    ] = 1000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    data_dir: Annotated[Path, Meta(description="Folder for all data of the broker.")] = "trimq-data"
    flush: Annotated[
        Literal["sync", "async", "pooled"],
        Meta(
            description="sync: acknowledge messages once they are on disk. async: acknowledge from the page cache and "
            "sync in the background. pooled: as async, and RocketMQ messages are acknowledged from memory, before they "
            "are in the page cache."
        ),
    ] = "sync"
    flush_interval_ms: Annotated[
        int, Meta(ge=1, le=HOUR_MS, description="Longest time between a write and its sync, unless flush = sync.")
    ] = 200
    ready_file: Annotated[
        Path | None,
        Meta(description="JSON file with the process id and all bound addresses, written when the broker is ready."),
    ] = None
    node_id: Annotated[int, Meta(ge=0, le=INT32, description="Node id of this broker, as clients see it.")] = 1
    kafka: Kafka = Kafka()
    rocketmq: RocketMQ = RocketMQ()
    amqp: Amqp = Amqp()
    http: Http = Http()
    tls: Tls = Tls()
    storage: Storage = Storage()
    failures: Failures = Failures()
    cross: Cross = Cross()
    limits: Limits = Limits()
    security: Security = Security()
    log: Log = Log()


RENAMED = {"amqp.failures_bytes": "failures.retention_bytes", "amqp.failures_ms": "failures.retention_ms"}
"""Keys of earlier versions, and their present keys."""
