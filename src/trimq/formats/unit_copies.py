"""The properties of message units that are made of stored ones: what is added to tell of their way may be left out
where it does not fit, what the producer set may not."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.formats.unit import LONGEST_PROPERTIES
from trimq.formats.unit_properties import NAME_ENDS, VALUE_ENDS

WAIT = "WAIT"

OF_THE_BROKER = ("TRACE_ON", "MSG_REGION", "CLUSTER")
"""What every message is told by the broker that takes it, and nobody needs."""


def copied_properties(properties: Mapping[str, str], optional: tuple[str, ...] = OF_THE_BROKER) -> bytes:
    """As `write_properties`, of what was stored before: also where a value holds what must not be sent. While it is too
    long, one of `optional` after the other is left out. It may be too long even so, which whoever stores it will say.
    """
    written = _write(properties)
    left = dict(properties)
    for name in optional:
        if len(written) <= LONGEST_PROPERTIES:
            break
        if left.pop(name, None) is not None:
            written = _write(left)
    return written


def _write(properties: Mapping[str, str]) -> bytes:
    items = [f"{name}{NAME_ENDS}{value}{VALUE_ENDS}" for name, value in properties.items() if name and value]
    return "".join(items).encode("utf-8", "replace")
