"""Broker settings under Kafka's names, as DescribeConfigs returns them. All are read-only while the broker runs."""

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
    """Returns every setting in order of its name: settings of the broker, defaults of topics, and fixed values."""
    found = {config.name: config for config in (*_own(settings, me), *_of_topics(settings), *_SENSITIVE)}
    return iter(sorted(found.values()))


def _own(settings: Settings, me: Node) -> Iterator[DescribedConfig]:
    advertised = me.addresses.get("kafka")
    limits, kafka, storage = settings.limits, settings.kafka, settings.storage
    given: list[tuple[str, ConfigType, str, str, str]] = [
        # name, type, value, default of Apache Kafka, documentation
        ("advertised.listeners", ConfigType.LIST, _listener(advertised), "", "Address for clients."),
        ("auto.create.topics.enable", ConfigType.BOOLEAN, _word(kafka.auto_create_topics), "true",
         "Whether a metadata request may create a topic that does not exist."),
        ("broker.id", ConfigType.INT, str(settings.node_id), "-1", "Id of this broker in the cluster."),
        ("connections.max.idle.ms", ConfigType.LONG, str(limits.idle_connection_ms), "600000",
         "A connection is closed after being idle for this long."),
        ("default.replication.factor", ConfigType.INT, "1", "1", "Replicas of a partition."),
        ("listeners", ConfigType.LIST, _listener(kafka.listen), "PLAINTEXT://:9092", "Listening address."),
        ("log.cleaner.backoff.ms", ConfigType.LONG, str(storage.compaction_check_ms), "15000",
         "Interval at which the broker looks for topics to compact."),
        ("log.dirs", ConfigType.LIST, settings.data_dir, "", "Folder of all data of the broker."),
        ("log.retention.check.interval.ms", ConfigType.LONG, str(storage.retention_check_ms), "300000",
         "Interval at which the broker deletes expired segments."),
        ("log.retention.ms", ConfigType.LONG, str(storage.retention_ms), "604800000",
         "How long a closed segment is kept after its last record; -1: forever."),
        ("log.roll.ms", ConfigType.LONG, str(storage.segment_ms), "604800000",
         "A segment whose first record is older than this is closed."),
        ("max.connections", ConfigType.INT, str(limits.connections), "2147483647",
         "Maximum number of connections open at the same time."),
        ("node.id", ConfigType.INT, str(settings.node_id), "-1", "Id of this broker in the cluster."),
        ("num.partitions", ConfigType.INT, str(kafka.num_partitions), "1",
         "Partitions of a topic that is created without a number of partitions."),
        ("socket.request.max.bytes", ConfigType.INT, str(limits.frame_bytes), "104857600",
         "Largest request that is accepted."),
    ]  # fmt: skip
    for name, kind, value, default, documentation in given:
        source = ConfigSource.DEFAULT if value == default else ConfigSource.BROKER
        synonyms = (Synonym(name, value, source),)
        yield DescribedConfig(name, value, kind, source, documentation, synonyms, is_read_only=True)


def _of_topics(settings: Settings) -> Iterator[DescribedConfig]:
    """Yields the defaults of topic settings under their broker-level names."""
    broker_names = {config.name: config.synonym for config in CONFIGS}
    for config in describe({}, settings):
        if broker_names[config.name]:
            yield config._replace(name=broker_names[config.name], is_read_only=True)


_NO_TLS = "Not used: TLS keys are PEM files (tls.certificate and tls.key)."
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
