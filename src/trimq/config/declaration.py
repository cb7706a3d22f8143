"""Declaration of a setting with its names, type, default and help, derived from `settings`. Knows no setting by
name."""

from __future__ import annotations

from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from trimq.config.address import OFF, Address, Advertised, parse_advertised, parse_listen
from trimq.config.kinds import DAY_MS, GIB, HOUR_MS, INT64, KIB, MIB
from trimq.config.settings import Settings


def variable_of(key: str) -> str:
    return "TRIMQ_" + key.replace(".", "_").upper()


def flag_of(key: str) -> str:
    return "--" + key.replace(".", "-").replace("_", "-")


class Declaration(msgspec.Struct, frozen=True):
    """One setting with its key, environment variable and flag."""

    section: str
    field: str
    type: Any
    default: Any
    help: str

    @property
    def key(self) -> str:
        return f"{self.section}.{self.field}" if self.section else self.field

    @property
    def variable(self) -> str:
        return variable_of(self.key)

    @property
    def flag(self) -> str:
        return flag_of(self.key)

    @property
    def unit(self) -> str:
        """Unit by the last word of the field name, as everywhere in the broker; empty for a count or a text."""
        return {"bytes": "bytes", "ms": "ms", "percent": "%"}.get(_unit_word(self.field), "")

    @property
    def choices(self) -> tuple[str, ...]:
        """Allowed words of a setting that accepts one of a list; otherwise empty."""
        bare = _bare_type(self.type)
        if bare is bool:
            return ("true", "false")
        return get_args(bare) if get_origin(bare) is Literal else ()

    @property
    def is_listener(self) -> bool:
        return _bare_type(self.type) is Address

    @property
    def form(self) -> str:
        """Description of valid values, in a few words."""
        bare = _bare_type(self.type)
        if self.choices:
            return " or ".join(filter(None, [", ".join(self.choices[:-1]), self.choices[-1]]))
        if self.is_listener:
            return "HOST:PORT or off"
        if bare is Advertised:
            return "HOST or HOST:PORT"
        if bare is int:
            lowest, highest = _bounds(self.type)
            return f"a whole number from {lowest} on" if highest == INT64 else f"a whole number, {lowest} to {highest}"
        return str(_meta_extra(self.type, "form", "a path"))

    @property
    def placeholder(self) -> str:
        """Placeholder of the value in the help text."""
        bare = _bare_type(self.type)
        if self.choices:
            return "|".join(self.choices)
        known = {int: "N", Address: "HOST:PORT", Advertised: "HOST[:PORT]"}
        return known.get(bare) or str(_meta_extra(self.type, "placeholder", "PATH"))

    @property
    def written_default(self) -> str | int | None:
        """Default as written in a settings file; None if there is no default."""
        if self.is_listener:
            return OFF if self.default is None else str(self.default)
        default: str | int | None = self.default
        return default

    @property
    def shown_default(self) -> str:
        """Default for display, with large sizes and long times also in larger units."""
        written = self.written_default
        if written is None:
            return "not set"
        if isinstance(written, bool):
            return str(written).lower()
        if isinstance(written, int) and (readable := readable_number(written, self.unit)):
            return f"{written} ({readable})"
        return f"{written} {self.unit}".rstrip() if isinstance(written, int) and written >= 0 else str(written)

    def convert(self, value: object, *, typed: bool) -> Any:
        """Returns the checked value or raises ValueError. `typed`: the value is from TOML, which has types."""
        bare = _bare_type(self.type)
        if bare in (Address, Advertised):
            if not isinstance(value, str):
                raise ValueError("the value must be a string")
            return parse_listen(value) if bare is Address else parse_advertised(value)
        return msgspec.convert(value, self.type, strict=typed)


def readable_number(number: int, unit: str) -> str:
    """Returns the number in the largest unit that divides it; empty if there is none."""
    scales = {
        "bytes": ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")),
        "ms": ((DAY_MS, "days"), (HOUR_MS, "hours"), (60_000, "minutes")),
    }
    for scale, name in scales.get(unit, ()):
        if number > 0 and number % scale == 0:
            count = number // scale
            return f"{count} {name.removesuffix('s') if count == 1 else name}"
    return ""


def _unit_word(field: str) -> str:
    """Returns the word that names the unit: `bytes` of `unsent_bytes_per_connection`, ignoring words after `per`."""
    return field.partition("_per_")[0].rpartition("_")[2]


def _bare_type(declared: Any) -> Any:
    """Returns the type without annotations and without None."""
    while get_origin(declared) is Annotated:
        declared = get_args(declared)[0]
    members = [member for member in get_args(declared) if member is not NoneType]
    is_optional = NoneType in get_args(declared)
    return _bare_type(members[0]) if is_optional else declared


def _meta_extra(declared: Any, name: str, default: str) -> Any:
    """Returns an entry of the type's `Meta.extra`, or the default."""
    for meta in get_args(declared)[1:]:
        if isinstance(meta, Meta) and meta.extra and name in meta.extra:
            return meta.extra[name]
    return default


def _bounds(declared: Any) -> tuple[int, int]:
    meta = get_args(declared)[1]
    return meta.ge, meta.le


@cache
def declarations() -> tuple[Declaration, ...]:
    """Returns every setting in the order of the documentation: settings without a section first."""
    general, sectioned = [], []
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.default, msgspec.Struct):
            sectioned += [_declare(field.name, inner) for inner in msgspec.structs.fields(field.default)]
        else:
            general.append(_declare("", field))
    return (*general, *sectioned)


def _declare(section: str, field: msgspec.structs.FieldInfo) -> Declaration:
    meta: Meta = get_args(field.type)[-1]
    return Declaration(section, field.name, field.type, field.default, meta.description or "")
