"""Settings of the section `amqp`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trimq.config.address import Address
from trimq.config.kinds import GIB, HOUR_MS, INT32, INT64, KIB, MIB, Listen


class Amqp(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Address that AMQP 0-9-1 clients connect to.")] = Address(
        "127.0.0.1", 5672
    )
    message_bytes: Annotated[
        int, Meta(ge=1, le=INT32, description="Largest message that is accepted; a larger one closes its channel.")
    ] = 128 * MIB
    frame_max: Annotated[
        int, Meta(ge=4096, le=INT32, description="Largest frame, as offered to clients in connection.tune.")
    ] = 128 * KIB
    channel_max: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Channels per connection, as offered to clients in connection.tune. 0: unlimited.",
        ),
    ] = 2047
    unacked_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=INT64,
            description="Memory for unacknowledged messages of a channel; beyond it, nothing more is delivered to the "
            "channel. Bodies of more than 4 KiB are not kept in memory: they are read again if requeued.",
        ),
    ] = 256 * MIB
    unread_reply_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64,
            description="Unsent direct replies to a client that does not read them; beyond it, replies are dropped.",
        ),
    ] = 16 * MIB
    heartbeat_s: Annotated[
        int, Meta(ge=0, le=65535, description="Heartbeat interval suggested to clients. 0: no heartbeats.")
    ] = 60
    handshake_ms: Annotated[
        int, Meta(ge=1, le=HOUR_MS, description="A connection whose handshake takes longer than this is closed.")
    ] = 10_000
    consumer_timeout_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64,
            description="Time in which a consumer must acknowledge a delivery; after it, the consumer is cancelled and "
            "its overdue messages are requeued. 0: no limit.",
        ),
    ] = 1_800_000
    channel_prefetch: Annotated[
        bool,
        Meta(
            description="basic.qos with global=true limits the whole channel, as in RabbitMQ before 4.3. Otherwise it "
            "limits each consumer that subscribes later, as in RabbitMQ 4.3."
        ),
    ] = False
    shared_body_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=INT32,
            description="From this size on, the body of a message that is routed to several queues is stored once for "
            "all of them. 0: every queue stores its own.",
        ),
    ] = 4096
    received_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=INT64,
            description="Memory for partly received messages of all AMQP clients, and for messages that wait for "
            "tx.commit or until writes are accepted again; beyond it, connections that send large messages are closed.",
        ),
    ] = GIB
