"""The settings of the section `kafka`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trimq.config.address import Address, Advertised
from trimq.config.kinds import GIB, INT32, INT64, MIB, Listen


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
