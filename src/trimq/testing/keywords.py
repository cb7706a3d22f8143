"""Settings of the broker as keywords: `kafka_num_partitions=3` is `kafka.num_partitions` of a settings file. Listeners
get free ports of this machine unless set; environment variables are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import msgspec

from trimq.config import Address, Declaration, Settings, declarations, load
from trimq.errors import StartupError
from trimq.server.optional_packages import missing_listeners

Value = str | int | bool

_FREE_PORT = "127.0.0.1:0"
_NOT_FOR_EMBEDDED = {
    "data_dir": "use folder= instead",
    "log_level": "set the level of the logger trimq instead",
    "log_format": "the log of a test is that of Python's logging",
    "log_audit_file": "add a handler to the logger trimq.audit instead",
    "security_administrator": "define users over HTTP instead: PUT /api/users/NAME",
    "security_administrator_password_file": "define users over HTTP instead: PUT /api/users/NAME",
    "ready_file": "an embedded broker writes no ready file; use its property `addresses`",
}

# Preallocated files take their full size in memory, so in-memory brokers use smaller ones.
IN_MEMORY_SETTINGS: Mapping[str, Value] = {"rocketmq_commit_file_bytes": 8 * 1024 * 1024, "rocketmq_index_keys": 10_000}


def settings_from(keywords: Mapping[str, Value]) -> Settings:
    """Returns the settings. Raises TypeError if a keyword is not a setting, StartupError if a value is invalid."""
    by_name = {keyword_of(declaration): declaration for declaration in declarations()}
    for name in keywords:
        if name in _NOT_FOR_EMBEDDED:
            raise TypeError(f"{name} cannot be set for an embedded broker: {_NOT_FOR_EMBEDDED[name]}")
        if name not in by_name:
            raise TypeError(f"{name} is not a setting of the broker{_suggestion(name, by_name)}")
    flags = {each.key: _FREE_PORT for each in listeners() if each.default is not None}
    flags |= dict.fromkeys(missing_listeners(), "off")
    flags["rocketmq.old_clients"] = "false"  # the port two below the broker's may be in use
    flags |= {by_name[name].key: _text(value) for name, value in keywords.items()}
    try:
        return load(flags, {})
    except StartupError as mistake:
        raise StartupError(_flags_as_keywords(str(mistake), by_name)) from None


def keyword_of(declaration: Declaration) -> str:
    return declaration.key.replace(".", "_")


def listeners() -> list[Declaration]:
    return [declaration for declaration in declarations() if declaration.is_listener]


def address_of(settings: Settings, listener: Declaration) -> Address | None:
    address: Address | None = getattr(getattr(settings, listener.section), listener.field)
    return address


def with_address(settings: Settings, listener: Declaration, address: Address) -> Settings:
    """Returns the settings with another address for a listener."""
    section = msgspec.structs.replace(getattr(settings, listener.section), **{listener.field: address})
    return msgspec.structs.replace(settings, **{listener.section: section})


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _suggestion(name: str, known: Mapping[str, Declaration]) -> str:
    likely = get_close_matches(name, known, n=1)
    return (
        f" (did you mean {likely[0]}?)"
        if likely
        else "; docs/settings.md lists all settings, write them as section_field"
    )


def _flags_as_keywords(text: str, by_name: Mapping[str, Declaration]) -> str:
    """Replaces flags by keywords in an error text. Longest flags first, since one may be a prefix of another."""
    for name, declaration in sorted(by_name.items(), key=lambda pair: -len(pair[1].flag)):
        text = text.replace(declaration.flag, name)
    return text
