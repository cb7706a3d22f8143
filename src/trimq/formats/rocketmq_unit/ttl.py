"""Expiry of message units by their properties: a time to live after storing, or a fixed time. Knows no clock."""

from __future__ import annotations

from collections.abc import MutableMapping

from trimq.formats.rocketmq_unit.properties import find_property

TTL_MS = "TRIMQ_TTL_MS"
"""Time to live after storing."""

EXPIRES_MS = "TRIMQ_EXPIRES_MS"
"""Fixed expiry time. Takes precedence over `TTL_MS`, and is kept when the message is stored again."""

EXPIRY_PROPERTIES = frozenset((TTL_MS, EXPIRES_MS))

_MAX_DIGITS = 18


def parse_milliseconds(text: str) -> int:
    """Returns milliseconds, at least 1. Raises ValueError for anything else."""
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS or not (limit := int(text)):
        raise ValueError(f"not a number of milliseconds: {text[:40]!r}")
    return limit


def expiry_ms(properties: bytes, store_ms: int) -> int | None:
    """Returns the expiry time, or None if the message does not expire or the property is not a number."""
    try:
        if (moment := find_property(properties, EXPIRES_MS)) is not None:
            return parse_milliseconds(moment)
        time = find_property(properties, TTL_MS)
        return None if time is None else store_ms + parse_milliseconds(time)
    except ValueError:
        return None


def keep_expiry(properties: MutableMapping[str, str], store_ms: int) -> None:
    """Fixes the expiry time of a message that is stored again, so that its time to live does not start anew."""
    if TTL_MS in properties and EXPIRES_MS not in properties:
        try:
            properties[EXPIRES_MS] = str(store_ms + parse_milliseconds(properties[TTL_MS]))
        except ValueError:
            return  # it never expires


def drop_expiry(properties: MutableMapping[str, str]) -> None:
    for name in EXPIRY_PROPERTIES:
        properties.pop(name, None)
