"""Names of topic settings: ours (`retention_ms`) and Kafka's (`retention.ms`) are both understood, in either spelling.
Knows no route."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from trimq.core.partitions.topic_settings import SETTING_NAMES
from trimq.errors import InvalidSetting, Refusal
from trimq.protocols.kafka.names.topic_configs import CONFIGS, BrokerLevels, describe, to_settings

_KAFKA = {config.name: config for config in CONFIGS}
_CHANGEABLE = [config for config in CONFIGS if config.setting]
_LIKENESS = 0.6

# Settings that Kafka does not have.
_OWN = {"writable": ("true", "Whether messages may be appended. false: the topic is read-only.")}


def own_names(given: Mapping[str, str | None]) -> dict[str, str | None]:
    """Translates to our names and values; None stays None. Raises InvalidSetting, with the nearest name if a name is
    unknown."""
    settings: dict[str, str | None] = {}
    names: dict[str, str] = {}
    for name, value in given.items():
        for setting, own_value in _translate(name, value).items():
            if setting in settings and settings[setting] != own_value:
                raise InvalidSetting(name, f"is the same setting as {names[setting]}, with another value")
            settings[setting], names[setting] = own_value, name
    return settings


def _translate(name: str, value: str | None) -> dict[str, str | None]:
    own = name.replace(".", "_")
    if own in SETTING_NAMES:
        config = _KAFKA.get(name)
        if value is not None and config is not None and config.setting == own:
            return dict(_from_kafka(name, value))
        return {own: value}
    theirs = name.replace("_", ".")
    if theirs not in _KAFKA:
        raise InvalidSetting(name, f"unknown topic setting{_suggest(name)}; trimq topics settings lists all")
    if value is not None:
        return dict(_from_kafka(theirs, value))
    setting = _KAFKA[theirs].setting
    return {setting: None} if setting else {}


def _from_kafka(name: str, value: str) -> dict[str, str]:
    try:
        return to_settings({name: value})
    except Refusal as refusal:
        raise InvalidSetting(name, str(refusal).removeprefix(f"{name}: ")) from None


def _suggest(name: str) -> str:
    known = [*SETTING_NAMES, *(config.name for config in _CHANGEABLE)]
    found = get_close_matches(name, known, n=1, cutoff=_LIKENESS)
    return f", did you mean {found[0]}?" if found else ""


def setting_rows(broker: BrokerLevels) -> Iterator[dict[str, str | None]]:
    """Yields every setting with both names, its default and its meaning, in order of our names."""
    defaults = {config.name: config.value for config in describe({}, broker)}
    described = {
        config.setting: (config.name, defaults[config.name] or "", config.documentation) for config in _CHANGEABLE
    }
    described |= {name: ("", default, meaning) for name, (default, meaning) in _OWN.items()}
    for name in sorted(described):
        kafka, default, meaning = described[name]
        yield {"name": name, "kafka_name": kafka or None, "default": default, "description": meaning}
