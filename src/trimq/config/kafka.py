"""Settings of the section `kafka`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trimq.config.address import Address, Advertised
from trimq.config.kinds import DAY_MS, GIB, INT32, INT64, MIB, Listen, Name, Path, Text


class Kafka(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[Listen, Meta(description="Address that Kafka clients connect to.")] = Address("127.0.0.1", 9092)
    advertise: Annotated[
        Advertised | None, Meta(description="Address announced to Kafka clients, if not the bound one.")
    ] = None
    num_partitions: Annotated[
        int, Meta(ge=1, le=100_000, description="Partitions of a topic that is created without a number of partitions.")
    ] = 1
    auto_create_topics: Annotated[
        bool, Meta(description="Create a topic when a client that allows it requests one that does not exist.")
    ] = True
    group_initial_rebalance_delay_ms: Annotated[
        int,
        Meta(
            ge=0, le=INT32, description="How long the first rebalance of an empty group waits for more members to join."
        ),
    ] = 0
    offsets_retention_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=INT64,
            description="How long committed offsets of a group without members are kept after their last commit, those "
            "of stopped Spark queries too.",
        ),
    ] = 7 * DAY_MS
    record_validation: Annotated[
        Literal["full", "header"],
        Meta(
            description="full: check each record of a batch. header: check only the batch header, except where a "
            "topic is compacted or limits the timestamps of its records."
        ),
    ] = "full"
    max_reauth_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=INT64,
            description="How long a login of a Kafka client is valid: without a new login of the same user, the next "
            "request after it closes the connection. 0: as long as the connection.",
        ),
    ] = 0
    oauth_jwks_file: Annotated[
        Path | None,
        Meta(
            description="File with the public keys (JWKS) of the issuer of bearer tokens, with which Kafka clients "
            "then can log in (OAUTHBEARER). Read again when a token names an unknown key. Needs the extra `oauth`."
        ),
    ] = None
    oauth_issuer: Annotated[Text, Meta(description="Issuer (`iss`) of bearer tokens. Empty: not checked.")] = ""
    oauth_audience: Annotated[
        Text, Meta(description="Audience (`aud`) that bearer tokens must have. Empty: not checked.")
    ] = ""
    oauth_scope: Annotated[
        Text, Meta(description="Scopes that bearer tokens must have, separated by blanks. Empty: not checked.")
    ] = ""
    oauth_principal_claim: Annotated[Name, Meta(description="Claim of a bearer token that names the user.")] = "sub"
    received_bytes: Annotated[
        int,
        Meta(
            ge=MIB,
            le=INT64,
            description="Memory for partly received requests of all Kafka clients; beyond it, connections that hold "
            "much are closed: of the address that holds the most, the largest of the oldest.",
        ),
    ] = GIB
