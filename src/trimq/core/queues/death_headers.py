"""Properties of a dead-lettered message: the `x-death` history, and detection of dead-letter cycles. Pure: a content
in, a content out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimq.core.failures.ledger import Reason
from trimq.formats.amqp_content.content import Content
from trimq.formats.amqp_content.field_tables import BadField, FieldTable, Timestamp, Value
from trimq.formats.amqp_content.private_headers import BLIND_COPIES, IGNORES_COPIES, set_failed_deliveries
from trimq.formats.amqp_content.property_list import read_headers_leniently, read_property, replace

_REASON_NAMES = {
    Reason.EXPIRED: "expired",
    Reason.REJECTED: "rejected",
    Reason.OVERFLOW: "maxlen",
    Reason.DELIVERY_LIMIT: "delivery_limit",
}


class Death(NamedTuple):
    """Queue, reason and time of a death. `dead_letter_key` replaces the routing key of the message; None: it keeps
    it."""

    queue: str
    reason: Reason
    time_ms: int
    dead_letter_exchange: str
    dead_letter_key: str | None


class DeadLetter(NamedTuple):
    """`keys` are the routing keys: that of the message and those in CC and BCC, or the `x-dead-letter-routing-key`
    alone."""

    content: Content
    keys: list[str]
    headers: FieldTable


def make_dead_letter(content: Content, death: Death, is_dead_letter: bool, failed: int = 0) -> DeadLetter:
    """Returns the message as it is published to the dead-letter exchange. `is_dead_letter`: it died before, and its
    history is the broker's own. Otherwise a client wrote the history: the first death replaces it. `failed`: number of
    its failed deliveries in all queues."""
    headers = _headers_of(content)
    if not is_dead_letter:
        _remove_history(headers)
    key = content.key.decode("utf-8", "surrogateescape")
    blind_copies = _texts(headers.get(BLIND_COPIES))
    keys = [key] if IGNORES_COPIES in headers else [key, *_texts(headers.get("CC")), *blind_copies]
    expiration = _expiration_of(content)
    entry: FieldTable = {} if expiration is None else {"original-expiration": expiration}
    reason = _REASON_NAMES[death.reason]
    exchange = content.exchange.decode("utf-8", "surrogateescape")
    entry |= {
        "count": 1,
        "reason": reason,
        "queue": death.queue,
        "time": Timestamp(death.time_ms // 1000),
        "exchange": exchange,
        "routing-keys": _without(keys, blind_copies),
    }
    headers["x-death"] = _add_death(headers.get("x-death"), entry)
    last: FieldTable = {"exchange": exchange, "queue": death.queue, "reason": reason}
    for name, value in last.items():
        headers.setdefault(f"x-first-death-{name}", value)
    for name, value in last.items():
        headers[f"x-last-death-{name}"] = value
    if death.dead_letter_key is not None:
        keys = [death.dead_letter_key]
        if "CC" in headers or blind_copies:
            headers[IGNORES_COPIES] = True
    set_failed_deliveries(headers, failed)
    header = replace(content.header, headers=headers, expiration=None)
    buried = Content(
        death.dead_letter_exchange.encode("utf-8", "surrogateescape"),
        keys[0].encode("utf-8", "surrogateescape"),
        header,
        content.body,
        death.time_ms,
    )
    return DeadLetter(buried, keys, headers)


def _remove_history(headers: FieldTable) -> None:
    """Removes the headers of earlier deaths."""
    headers.pop("x-death", None)
    for name in ("exchange", "queue", "reason"):
        headers.pop(f"x-first-death-{name}", None)
        headers.pop(f"x-last-death-{name}", None)


def _add_death(known: Value, entry: FieldTable) -> list[Value]:
    """Returns the `x-death` entries with this death added: newest first, one entry for each queue and reason."""
    deaths = _deaths(known)
    for at, death in enumerate(deaths):
        if death.get("queue") == entry["queue"] and death.get("reason") == entry["reason"]:
            count = death.get("count")
            again: FieldTable = {**death, "count": count + 1 if isinstance(count, int) else 1}
            return [again, *deaths[:at], *deaths[at + 1 :]]
    return [entry, *deaths]


def is_dead_letter_cycle(headers: FieldTable, queue: str) -> bool:
    """True if the message was in this queue before and no consumer has rejected it since: it would cycle for ever.
    `headers` are those of the dead letter that is about to be routed to `queue`."""
    deaths = _deaths(headers.get("x-death"))
    for at, death in enumerate(deaths):
        if death.get("queue") == queue:
            return all(passed.get("reason") != "rejected" for passed in deaths[: at + 1])
    return False


def _deaths(known: Value) -> list[FieldTable]:
    if not isinstance(known, Sequence) or isinstance(known, str | bytes):
        return []
    return [death for death in known if isinstance(death, dict)]


def _headers_of(content: Content) -> FieldTable:
    try:
        return read_headers_leniently(content.header)
    except BadField:
        return {}  # unreadable headers: the history cannot be added to them, and replaces them


def _expiration_of(content: Content) -> str | None:
    try:
        found = read_property(content.header, "expiration")
    except BadField:
        return None
    return found if isinstance(found, str) else None


def _without(keys: Sequence[str], removed: Sequence[str]) -> list[Value]:
    """Returns the keys without the first occurrence of each removed one."""
    left: list[Value] = list(keys)
    for key in removed:
        if key in left:
            left.remove(key)
    return left


def _texts(value: Value) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    return [text for text in value if isinstance(text, str)]
