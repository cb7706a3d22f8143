"""The settings of the section `amqp`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trimq.config.address import Address
from trimq.config.kinds import GIB, HOUR_MS, INT32, INT64, KIB, MIB, Listen


class Amqp(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Where AMQP 0-9-1 clients connect.")] = Address("127.0.0.1", 5672)
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
            description="How much memory what a channel has not acknowledged may take before nothing more is delivered "
            "to it. Bodies of more than 4 KiB take none: they are read again if they come back.",
        ),
    ] = 256 * MIB
    unread_reply_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64,
            description="How much may wait for a client that does not read its direct replies. More is lost.",
        ),
    ] = 16 * MIB
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
    channel_prefetch: Annotated[
        bool,
        Meta(
            description="basic.qos with global=true limits the whole channel, as in RabbitMQ before 4.3. Otherwise it "
            "is about each consumer that comes, as in RabbitMQ 4.3."
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
            description="How much memory messages of AMQP clients that have come in part, or wait for tx.commit or for "
            "room, may take together; beyond it, connections that send large ones are closed.",
        ),
    ] = GIB
