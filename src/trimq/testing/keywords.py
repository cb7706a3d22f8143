"""Settings of the broker as keywords: `kafka_num_partitions=3` is `kafka.num_partitions` of a settings file. Listeners
get free ports of this machine unless told otherwise; the environment is not looked at."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import msgspec

from trimq.config import Address, Declaration, Settings, declarations, load
from trimq.errors import StartupError

Value = str | int | bool

_FREE_PORT = "127.0.0.1:0"
_NOT_FOR_EMBEDDED = {
    "data_dir": "give the folder as folder=",
    "ready_file": "a broker in this process writes none; its addresses are in `addresses`",
}


# It needs an extra, and protobuf takes its time to load.
_OFF_BY_DEFAULT = ("rocketmq.grpc_listen",)

# Files that have their full size from the beginning on take as much memory, where that is what they are kept in.
IN_MEMORY_SETTINGS: Mapping[str, Value] = {"rocketmq_commit_file_bytes": 8 * 1024 * 1024, "rocketmq_index_keys": 10_000}


def settings_from(keywords: Mapping[str, Value]) -> Settings:
    """TypeError: a keyword is no setting. StartupError: a value cannot be, and why."""
    by_name = {keyword_of(declaration): declaration for declaration in declarations()}
    for name in keywords:
        if name in _NOT_FOR_EMBEDDED:
            raise TypeError(f"{name} is not for an embedded broker: {_NOT_FOR_EMBEDDED[name]}")
        if name not in by_name:
            raise TypeError(f"{name} is no setting of the broker{_suggestion(name, by_name)}")
    flags = {each.key: _FREE_PORT for each in listeners() if each.default is not None}
    flags |= dict.fromkeys(_OFF_BY_DEFAULT, "off")
    flags["rocketmq.old_clients"] = "false"  # nobody can promise that the port two below is free
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
    """The settings with a listener bound elsewhere."""
    section = msgspec.structs.replace(getattr(settings, listener.section), **{listener.field: address})
    return msgspec.structs.replace(settings, **{listener.section: section})


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _suggestion(name: str, known: Mapping[str, Declaration]) -> str:
    likely = get_close_matches(name, known, n=1)
    return f" (did you mean {likely[0]}?)" if likely else "; docs/settings.md lists them, as section_field here"


def _flags_as_keywords(text: str, by_name: Mapping[str, Declaration]) -> str:
    """A mistake in the words of whoever made it. Long flags first: one may begin like another."""
    for name, declaration in sorted(by_name.items(), key=lambda pair: -len(pair[1].flag)):
        text = text.replace(declaration.flag, name)
    return text
