"""Settings of consumer groups with broker-side assignment (KIP-848): translation between Kafka's names and ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trimq.core.groups.coordinator import HEARTBEAT_MS, SESSION_MS
from trimq.core.groups.store import GroupSettings
from trimq.errors import InvalidSetting
from trimq.protocols.kafka.names.topic_configs import ConfigSource, ConfigType, DescribedConfig, Synonym


class _Config(NamedTuple):
    name: str
    setting: str
    default: int
    least: int
    most: int
    documentation: str


_CONFIGS = (
    _Config(
        "consumer.heartbeat.interval.ms",
        "heartbeat_ms",
        HEARTBEAT_MS,
        5_000,
        15_000,
        "Interval between heartbeats of a member.",
    ),
    _Config(
        "consumer.session.timeout.ms",
        "session_ms",
        SESSION_MS,
        45_000,
        60_000,
        "A member that sends no heartbeat for this long is removed.",
    ),
)
_BY_NAME = {config.name: config for config in _CONFIGS}


def describe_group(settings: GroupSettings) -> Iterator[DescribedConfig]:
    own = to_group_configs(settings)
    for config in _CONFIGS:
        synonyms: tuple[Synonym, ...] = (Synonym(f"group.{config.name}", str(config.default), ConfigSource.DEFAULT),)
        if config.name in own:
            synonyms = (Synonym(config.name, own[config.name], ConfigSource.GROUP), *synonyms)
        _, value, source = synonyms[0]
        yield DescribedConfig(config.name, value, ConfigType.INT, source, config.documentation, synonyms)


def to_group_configs(settings: GroupSettings) -> dict[str, str]:
    """Returns the settings that were set for the group, under Kafka's names."""
    values = {config.name: getattr(settings, config.setting) for config in _CONFIGS}
    return {name: str(value) for name, value in values.items() if value is not None}


def to_group_settings(configs: Mapping[str, str]) -> GroupSettings:
    """Translates from Kafka's names. Raises InvalidSetting for an unknown name or a value out of range."""
    values: dict[str, int] = {}
    for name, text in configs.items():
        config = _BY_NAME.get(name)
        if config is None:
            raise InvalidSetting(name, "unknown group setting")
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
        if not config.least <= value <= config.most:
            raise InvalidSetting(name, f"must be an integer from {config.least} to {config.most}, not {text[:20]!r}")
        values[config.setting] = value
    return GroupSettings(**values)
