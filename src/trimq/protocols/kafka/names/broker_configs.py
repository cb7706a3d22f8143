"""Kafka's names for the settings of the broker, as DescribeConfigs tells them. None can be changed while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from trimq.config import Address as Bound
from trimq.config import Settings
from trimq.core.metadata.cluster import Address, Node
from trimq.protocols.kafka.names.topic_configs import (
    CONFIGS,
    ConfigSource,
    ConfigType,
    DescribedConfig,
    Synonym,
    describe,
)

_LISTENER = "PLAINTEXT"


def describe_broker(settings: Settings, me: Node) -> Iterator[DescribedConfig]:
    """Every setting, by name: what the broker was started with, what it is for all topics, and what is always so."""
    found = {config.name: config for config in (*_own(settings, me), *_of_topics(settings), *_SENSITIVE)}
    return iter(sorted(found.values()))


def _own(settings: Settings, me: Node) -> Iterator[DescribedConfig]:
    advertised = me.addresses.get("kafka")
    limits, kafka, storage = settings.limits, settings.kafka, settings.storage
    given: list[tuple[str, ConfigType, str, str, str]] = [
        # name, kind, value, Kafka's own default, what it is
        ("advertised.listeners", ConfigType.LIST, _listener(advertised), "", "What clients are told to connect to."),
        ("auto.create.topics.enable", ConfigType.BOOLEAN, _word(kafka.auto_create_topics), "true",
         "Whether a topic is made when a client that allows it asks for one that does not exist."),
        ("broker.id", ConfigType.INT, str(settings.node_id), "-1", "The number by which clients know this broker."),
        ("connections.max.idle.ms", ConfigType.LONG, str(limits.idle_connection_ms), "600000",
         "How long a connection may be silent before it is closed."),
        ("default.replication.factor", ConfigType.INT, "1", "1", "How many replicas a partition has."),
        ("listeners", ConfigType.LIST, _listener(kafka.listen), "PLAINTEXT://:9092", "Where clients connect."),
        ("log.dirs", ConfigType.LIST, settings.data_dir, "", "The folder that holds everything the broker keeps."),
        ("log.retention.check.interval.ms", ConfigType.LONG, str(storage.retention_check_ms), "300000",
         "How often the broker looks for segments that may go."),
        ("log.retention.ms", ConfigType.LONG, str(storage.retention_ms), "604800000",
         "How long a closed segment is kept after its last record; -1: for ever."),
        ("log.roll.ms", ConfigType.LONG, str(storage.segment_ms), "604800000",
         "A segment whose first record is older than this is closed."),
        ("max.connections", ConfigType.INT, str(limits.connections), "2147483647",
         "How many connections are accepted at once."),
        ("node.id", ConfigType.INT, str(settings.node_id), "-1", "The number by which clients know this broker."),
        ("num.partitions", ConfigType.INT, str(kafka.num_partitions), "1",
         "Partitions of a topic whose creator leaves the number to the broker."),
        ("socket.request.max.bytes", ConfigType.INT, str(limits.frame_bytes), "104857600",
         "The largest request that is read."),
    ]  # fmt: skip
    for name, kind, value, default, documentation in given:
        source = ConfigSource.DEFAULT if value == default else ConfigSource.BROKER
        synonyms = (Synonym(name, value, source),)
        yield DescribedConfig(name, value, kind, source, documentation, synonyms, is_read_only=True)


def _of_topics(settings: Settings) -> Iterator[DescribedConfig]:
    """What holds for topics that do not say otherwise, under the broker's names for it."""
    broker_names = {config.name: config.synonym for config in CONFIGS}
    for config in describe({}, settings):
        if broker_names[config.name]:
            yield config._replace(name=broker_names[config.name], is_read_only=True)


_NO_TLS = "Not used: listeners are plain."
_SENSITIVE = tuple(
    DescribedConfig(
        name, None, ConfigType.PASSWORD, ConfigSource.DEFAULT, _NO_TLS, is_read_only=True, is_sensitive=True
    )
    for name in ("ssl.key.password", "ssl.keystore.password", "ssl.truststore.password")
)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _listener(address: Bound | Address | None) -> str:
    if address is None:
        return ""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{_LISTENER}://{host}:{address.port}"
