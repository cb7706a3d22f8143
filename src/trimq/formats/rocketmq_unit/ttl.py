"""Until when a message unit is of use, as its properties say: for a time from when it was stored on, or up to a moment.
Knows no clock."""

from __future__ import annotations

from collections.abc import MutableMapping

from trimq.formats.rocketmq_unit.properties import find_property

TTL_MS = "TRIMQ_TTL_MS"
"""How long from when it was stored on."""

EXPIRES_MS = "TRIMQ_EXPIRES_MS"
"""Up to when. It counts where both are set, and goes with the message when that is stored anew."""

EXPIRY_PROPERTIES = frozenset((TTL_MS, EXPIRES_MS))

_MOST_DIGITS = 18


def parse_milliseconds(text: str) -> int:
    """Milliseconds, 1 at least. ValueError: it is no such number."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS or not (limit := int(text)):
        raise ValueError(f"not a number of milliseconds: {text[:40]!r}")
    return limit


def expiry_ms(properties: bytes, store_ms: int) -> int | None:
    """When the message is of no more use. None: it always is, or does not say so in numbers."""
    try:
        if (moment := find_property(properties, EXPIRES_MS)) is not None:
            return parse_milliseconds(moment)
        time = find_property(properties, TTL_MS)
        return None if time is None else store_ms + parse_milliseconds(time)
    except ValueError:
        return None


def keep_expiry(properties: MutableMapping[str, str], store_ms: int) -> None:
    """Of a message that is stored anew: it is of use no longer than where it was stored first."""
    if TTL_MS in properties and EXPIRES_MS not in properties:
        try:
            properties[EXPIRES_MS] = str(store_ms + parse_milliseconds(properties[TTL_MS]))
        except ValueError:
            return  # it never expires


def drop_expiry(properties: MutableMapping[str, str]) -> None:
    for name in EXPIRY_PROPERTIES:
        properties.pop(name, None)
