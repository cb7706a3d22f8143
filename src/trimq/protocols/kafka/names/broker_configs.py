"""Broker settings under Kafka's names: as DescribeConfigs returns them, and those that can be changed live. The others
are read-only while the broker runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimq.config import Address as Bound
from trimq.config import Settings
from trimq.core.metadata.cluster import Address, Node
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal
from trimq.protocols.kafka.names.topic_configs import (
    BROKER_NAMES,
    MIN_INSYNC_REPLICAS,
    BrokerLevels,
    Config,
    ConfigSource,
    ConfigType,
    DescribedConfig,
    Synonym,
    defaults_of,
    describe,
    kafka_word,
    translate,
)

_LISTENER = "PLAINTEXT"


_NOT_REPLICATED = "No effect: there is no replication."

# Settings of the broker that can be changed live, besides the defaults of topics.
_LIVE = (
    Config("follower.replication.throttled.rate", ConfigType.LONG, str(2**63 - 1), "follower_replication_rate", "",
           _NOT_REPLICATED),
    Config("leader.replication.throttled.rate", ConfigType.LONG, str(2**63 - 1), "leader_replication_rate", "",
           _NOT_REPLICATED),
    Config("log.cleaner.backoff.ms", ConfigType.LONG, "15000", "compaction_check_ms", "",
           "Interval at which the broker looks for topics to compact."),
    Config("replica.alter.log.dirs.io.max.bytes.per.second", ConfigType.LONG, str(2**63 - 1), "folder_move_rate", "",
           "No effect: there is one folder."),
)  # fmt: skip
_ALTERABLE = {config.name: config for config in _LIVE} | BROKER_NAMES
_BY_SETTING = {config.setting: name for name, config in _ALTERABLE.items()}


def describe_broker(levels: BrokerLevels, me: Node) -> Iterator[DescribedConfig]:
    """Returns every setting in order of its name: settings of the broker, defaults of topics, and fixed values."""
    rows = (*_own(levels.file, me), *_of_topics(levels), *_live(levels), *_SENSITIVE)
    return iter(sorted({config.name: config for config in rows}.values()))


def describe_cluster_defaults(cluster: Mapping[str, str]) -> Iterator[DescribedConfig]:
    """Yields the settings that were changed live for all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    for name, value in sorted(to_broker_configs(cluster, is_cluster=True).items()):
        config = _ALTERABLE[name]
        yield DescribedConfig(name, value, config.kind, source, config.documentation, (Synonym(name, value, source),))


def to_broker_configs(settings: Mapping[str, str], is_cluster: bool) -> dict[str, str]:
    """Translates the settings of a level to Kafka's names. The cluster always has min.insync.replicas."""
    found = {MIN_INSYNC_REPLICAS: BROKER_NAMES[MIN_INSYNC_REPLICAS].default} if is_cluster else {}
    for setting, value in settings.items():
        name = _BY_SETTING[setting]
        found[name] = kafka_word(_ALTERABLE[name], value)
    return found


def to_broker_settings(configs: Mapping[str, str]) -> dict[str, str]:
    """Translates from Kafka's names. Raises KafkaRefusal if a setting is unknown, invalid, or cannot be changed."""
    settings = {}
    for name, text in configs.items():
        config = _ALTERABLE.get(name)
        if config is None:
            raise KafkaRefusal(Code.INVALID_REQUEST, f"{name}: cannot be changed while the broker runs")
        try:
            settings[config.setting] = translate(config, text)
        except KafkaRefusal as refusal:
            raise KafkaRefusal(Code.INVALID_REQUEST, f"{name} ({refusal})") from None
    return settings


def is_alterable_list(name: str) -> bool:
    config = _ALTERABLE.get(name)
    return config is not None and config.kind is ConfigType.LIST


def current_broker_value(name: str, levels: BrokerLevels) -> str:
    """Returns the value in force of a setting that can be changed live."""
    return defaults_of(_ALTERABLE[name], levels)[0].value


def broker_name(setting: str) -> str:
    """Returns Kafka's name of a setting that can be changed live."""
    return _BY_SETTING.get(setting, setting)


def _live(levels: BrokerLevels) -> Iterator[DescribedConfig]:
    for config in _LIVE:
        found = [each._replace(name=config.name) for each in defaults_of(config, levels)]
        if config.setting == "compaction_check_ms" and levels.file.storage.compaction_check_ms != int(config.default):
            value = str(levels.file.storage.compaction_check_ms)
            found.insert(-1, Synonym(config.name, value, ConfigSource.BROKER))
        yield DescribedConfig(
            config.name, found[0].value, config.kind, found[0].source, config.documentation, tuple(found)
        )


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
        ("log.dirs", ConfigType.LIST, settings.data_dir, "", "Folder of all data of the broker."),
        ("log.retention.check.interval.ms", ConfigType.LONG, str(storage.retention_check_ms), "300000",
         "Interval at which the broker deletes expired segments."),
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


def _of_topics(levels: BrokerLevels) -> Iterator[DescribedConfig]:
    """Yields the defaults of topic settings under their broker-level names."""
    described = {config.name: config for config in describe({}, levels)}
    for name, config in BROKER_NAMES.items():
        found = described[config.name]
        synonyms = found.synonyms or (Synonym(name, found.value or "", found.source),)
        yield found._replace(name=name, synonyms=synonyms)


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
