"""Loads settings from the text of a file, the environment and flags: a flag beats the environment, the environment
beats the file. Reports all mistakes at once. Opens nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from trimq.config.address import Address
from trimq.config.declaration import Declaration, declarations, flag_of, variable_of
from trimq.config.settings import RENAMED, Settings
from trimq.config.tls import find_contradictions
from trimq.errors import StartupError

# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
_KUBERNETES_VARIABLE = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?$"
)

EVERY_INTERFACE = ("0.0.0.0", "::")


class _GivenValue(NamedTuple):
    """A given value, and the name of its flag, variable or key in the file."""

    value: object
    name: str
    typed: bool


def load(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    file_text: str = "",
    *,
    file_name: str = "the settings file",
    mistakes: Iterable[str] = (),
    missing: Iterable[str] = (),
) -> Settings:
    """Returns the checked settings, or raises one StartupError with all mistakes. `flags`: values by key
    (`kafka.listen`). `mistakes`: found by the caller, reported together with those found here. `missing`: listeners
    whose packages are not installed; they are off unless set explicitly."""
    found = list(mistakes)
    by_key = {declaration.key: declaration for declaration in declarations()}
    given = _given_in_file(file_text, file_name, by_key, found)
    given |= _given_in_environment(environment, by_key, found)
    given |= {key: _GivenValue(value, by_key[key].flag, typed=False) for key, value in flags.items()}
    values = dict.fromkeys(missing) | _convert(given, by_key, found)
    settings = _build(values)
    found += _contradictions(settings, by_key)
    if found:
        raise StartupError(_report(found))
    return settings


def _given_in_file(text: str, name: str, by_key: Mapping[str, Declaration], found: list[str]) -> dict[str, _GivenValue]:
    if not text:
        return {}
    import tomllib  # imported only if there is a file: takes 10 ms of the start

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found.append(f"{name} is not TOML: {error}")
        return {}
    given = {}
    sections = {declaration.section for declaration in by_key.values()}
    for key, value in _flatten(document, sections):
        if key in by_key:
            given[key] = _GivenValue(value, f"{key} in {name}", typed=True)
        elif key in sections:
            found.append(f"{key} in {name} is a section: write [{key}] and its settings below")
        else:
            found.append(f"{key} in {name} is not a setting{_renamed_hint(RENAMED, key) or _suggest(key, by_key)}")
    return given


def _flatten(document: Mapping[str, Any], sections: set[str]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and key in sections:
            yield from ((f"{key}.{field}", inner) for field, inner in value.items())
        else:
            yield key, value


def _given_in_environment(
    environment: Mapping[str, str], by_key: Mapping[str, Declaration], found: list[str]
) -> dict[str, _GivenValue]:
    by_variable = {declaration.variable: declaration.key for declaration in by_key.values()}
    renamed = {variable_of(old): variable_of(new) for old, new in RENAMED.items()}
    given = {}
    for variable, value in environment.items():
        if not variable.startswith("TRIMQ_") or not value:
            continue  # scripts and compose files write "not set" as an empty variable
        if variable in by_variable:
            given[by_variable[variable]] = _GivenValue(value, variable, typed=False)
        elif suggestion := _renamed_hint(renamed, variable) or _suggest(variable, by_variable, likeness=0.9):
            found.append(f"{variable} is not a setting{suggestion}")
        elif _has_section_prefix(variable, by_key) and not _is_foreign_variable(variable, by_variable):
            found.append(f"{variable} is not a setting{_suggest(variable, by_variable)}")
    return given


def _has_section_prefix(variable: str, by_key: Mapping[str, Declaration]) -> bool:
    sections = {declaration.section for declaration in by_key.values()} - {""}
    return variable.startswith(tuple(variable_of(f"{section}.") for section in sections))


def _is_foreign_variable(variable: str, by_variable: Mapping[str, str]) -> bool:
    """True for variables that are not meant for the broker: Kubernetes sets variables with our prefix for services
    called `trimq` or `trimq-kafka`, and client programs are given a listener's address under its name
    (`TRIMQ_KAFKA`)."""
    return f"{variable}_LISTEN" in by_variable or _KUBERNETES_VARIABLE.search(variable) is not None


def _suggest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    from difflib import get_close_matches  # only when there is a mistake to explain

    matches = get_close_matches(name, known, n=1, cutoff=likeness)
    return f" (did you mean {matches[0]}?)" if matches else ""


def suggest_flag(flag: str) -> str:
    """Returns a hint to append to the error about an unknown flag: its new name or a similar flag."""
    renamed = {flag_of(old): flag_of(new) for old, new in RENAMED.items()}
    return _renamed_hint(renamed, flag) or _suggest(flag, [declaration.flag for declaration in declarations()])


def _renamed_hint(renamed: Mapping[str, str], name: str) -> str:
    return f" any more: it is called {renamed[name]} now" if name in renamed else ""


def _convert(given: Mapping[str, _GivenValue], by_key: Mapping[str, Declaration], found: list[str]) -> dict[str, Any]:
    values = {}
    for key, (value, name, typed) in given.items():
        declaration = by_key[key]
        try:
            values[key] = declaration.convert(value, typed=typed)
        except msgspec.ValidationError:
            found.append(f"{name}: expected {declaration.form}, got {_shorten(value)}")
        except ValueError as error:
            found.append(f"{name}: expected {declaration.form}, got {_shorten(value)}: {error}")
    return values


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def _build(values: Mapping[str, Any]) -> Settings:
    """Returns the settings with these values; all others have their defaults."""
    settings = Settings()
    for key, value in values.items():
        section, _, field = key.rpartition(".")
        if section:
            changed = msgspec.structs.replace(getattr(settings, section), **{field: value})
            settings = msgspec.structs.replace(settings, **{section: changed})
        else:
            settings = msgspec.structs.replace(settings, **{field: value})
    return settings


def _contradictions(settings: Settings, by_key: Mapping[str, Declaration]) -> Iterator[str]:
    """Yields conflicts between values that are valid on their own."""
    yield from _unreachable_listeners(settings, by_key)
    yield from find_contradictions(settings.tls)
    limits, storage = settings.limits, settings.storage
    if limits.frame_bytes < storage.message_bytes:
        yield (
            f"limits.frame_bytes ({limits.frame_bytes}) is below storage.message_bytes ({storage.message_bytes}): "
            "the largest messages could not be received"
        )
    if settings.kafka.num_partitions > limits.streams_per_topic:
        yield (
            f"kafka.num_partitions ({settings.kafka.num_partitions}) is above limits.streams_per_topic "
            f"({limits.streams_per_topic})"
        )


def _unreachable_listeners(settings: Settings, by_key: Mapping[str, Declaration]) -> Iterator[str]:
    taken: dict[Address, str] = {}
    is_reachable = False
    for key, declaration in by_key.items():
        section = getattr(settings, declaration.section, None)
        address = getattr(section, declaration.field) if declaration.is_listener else None
        if address is None:
            continue
        is_reachable = True
        if address.port and taken.setdefault(address, key) != key:
            yield f"{taken[address]} and {key} are both {address}"
        if address.host in EVERY_INTERFACE and getattr(section, "advertise", ()) is None:
            yield (
                f"{key} is {address}, every interface, which is not an address that clients can connect to; set "
                f"{declaration.section}.advertise to the host name or address of this machine"
            )
    if not is_reachable:
        yield "every listener is off, so no client could connect; set the address of at least one"


def _report(mistakes: list[str]) -> str:
    if len(mistakes) == 1:
        return mistakes[0]
    return f"{len(mistakes)} mistakes in the settings:" + "".join(f"\n  - {mistake}" for mistake in mistakes)
