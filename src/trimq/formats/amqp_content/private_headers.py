"""Headers of stored messages that only the broker may read: blind copies, to which a dead letter is routed again, and
what the broker notes about dead letters. Never sent to a client. They are valid only in messages that are stored with
the flag PRIVATE_HEADERS."""

from __future__ import annotations

from trimq.formats.amqp_content.field_tables import BadField, FieldTable
from trimq.formats.amqp_content.property_list import read_headers_leniently, replace

BLIND_COPIES = "BCC"
FAILED_DELIVERIES = "\0failed-deliveries"
IGNORES_COPIES = "\0ignores-copies"  # an `x-dead-letter-routing-key` replaced CC and BCC as well
NAMES = (BLIND_COPIES, FAILED_DELIVERIES, IGNORES_COPIES)

_MARKS = tuple(len(name).to_bytes(1, "big") + name.encode() for name in NAMES)


def without_private_headers(header: bytes) -> bytes:
    """Returns the properties that a client may see. Headers that are malformed are returned as they are."""
    if not any(mark in header for mark in _MARKS):
        return header
    try:
        headers = read_headers_leniently(header)
    except BadField:
        return header
    if not any(name in headers for name in NAMES):
        return header
    return replace(header, headers={name: value for name, value in headers.items() if name not in NAMES})


def failed_deliveries(header: bytes) -> int:
    """Returns the number of failed deliveries in other queues of a message that has at least one."""
    try:
        count = read_headers_leniently(header).get(FAILED_DELIVERIES)
    except BadField:
        return 1
    return count if isinstance(count, int) and count > 1 else 1


def set_failed_deliveries(headers: FieldTable, count: int) -> None:
    """Notes a number of failed deliveries. One needs no header: the message is stored with the flag REDELIVERED."""
    headers.pop(FAILED_DELIVERIES, None)
    if count > 1:
        headers[FAILED_DELIVERIES] = count
