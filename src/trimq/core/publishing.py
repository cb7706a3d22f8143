"""The way of a message from its publisher into queues: what its properties ask for, its routes, its place in each
queue. Knows neither who publishes nor who reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from trimq.core.any_queue import AnyQueue, Publication
from trimq.core.exchanges import Exchange
from trimq.core.failures import Reason
from trimq.core.queue_arguments import DROP_HEAD, MAX_MILLISECONDS, REJECT_PUBLISH_DLX
from trimq.core.queue_refusals import InvalidExpiration, InvalidHeader
from trimq.core.routing import Route, Routing, copied_keys
from trimq.errors import Refusal
from trimq.formats.content import Content, Sealed, Stored, seal
from trimq.formats.field_tables import BadField, Table, Value
from trimq.formats.property_list import FLAGS, PERSISTENT, flags_of, read_headers, read_property, replace
from trimq.storage.passes import Ticket

_new_tuple = tuple.__new__  # half the time of a NamedTuple's own constructor, for every message

_CACHED_FACTS = 1000
_CACHED_HEADER_BYTES = 256


class Facts(NamedTuple):
    """What the properties of a message ask of the broker."""

    is_transient: bool
    expiration_ms: int | None
    priority: int
    has_copies: bool


class Published:
    """`is_routed` False: no queue took it. `is_refused`: one that is full did not. It counts when pass `number` is
    durable, or written only where `needs_sync` is False; 0: at once."""

    __slots__ = ("is_refused", "is_routed", "needs_sync", "number", "tickets")

    def __init__(self, is_routed: bool, is_refused: bool = False) -> None:
        self.is_routed = is_routed
        self.is_refused = is_refused
        self.needs_sync = False
        self.number = 0
        self.tickets: list[Ticket] = []

    def refusal(self) -> Refusal | None:
        """Why it does not count after all, once its pass is over."""
        return next((ticket.refusal for ticket in self.tickets if ticket.refusal is not None), None)

    def add(self, ticket: Ticket, needs_sync: bool) -> None:
        self.tickets.append(ticket)
        if ticket.number > self.number:
            self.number = ticket.number
        if needs_sync:
            self.needs_sync = True


class JointTicket(Ticket):
    """Several tickets as one: refused if any of them is."""

    __slots__ = ("_tickets",)

    def __init__(self, tickets: Sequence[Ticket]) -> None:
        self._tickets = tickets
        super().__init__(max(ticket.number for ticket in tickets))

    @property
    def refusal(self) -> Refusal | None:
        return next((ticket.refusal for ticket in self._tickets if ticket.refusal is not None), None)

    @refusal.setter
    def refusal(self, refusal: Refusal | None) -> None:
        """It follows from the others."""


FindQueue = Callable[[str, str], AnyQueue | None]
Overflowed = Callable[[AnyQueue, Stored, Reason, int], Ticket | None]


class Publishing:
    def __init__(self, routing: Routing, find_queue: FindQueue, now_ms: Callable[[], int]) -> None:
        self._routing = routing
        self._find_queue = find_queue
        self._now_ms = now_ms
        self._facts: dict[bytes, Facts] = {}
        self.overflowed: Overflowed = lambda queue, stored, reason, attempts: None

    def publish(self, exchange: Exchange, key: str, header: bytes, body: bytes) -> Published:
        facts = self._facts.get(header) or self._learn(header)
        names: Route | None = None
        if not facts.has_copies:
            names = self._routing.known(exchange.namespace, exchange.name, key)
        if names is None:
            keys = [key]
            if facts.has_copies:
                headers = read_headers(header)
                keys += copied_keys(headers)
                header = _without_blind_copies(header, headers)
            names = self._routing.route(exchange, keys, lambda: _headers_of(header))
        if not names:
            return Published(False)
        content = _new_tuple(Content, (exchange.encoded_name, _encode(key), header, body, self._now_ms()))
        publication = _new_tuple(Publication, (seal(content), facts[0], facts[1], facts[2], 0))
        return self.deliver(exchange.namespace, names, publication)

    def deliver(self, namespace: str, names: Sequence[str], publication: Publication) -> Published:
        """To the queues of these names that there are."""
        published = Published(False)
        for name in names:
            queue = self._find_queue(namespace, name)
            if queue is None:
                continue
            published.is_routed = True
            if queue.settings.overflow != DROP_HEAD and queue.is_full:
                published.is_refused = True
                self._refuse(queue, publication.sealed)
            else:
                ticket, needs_sync = queue.publish(publication)
                published.tickets.append(ticket)
                published.number = ticket.number  # all are of one pass
                if needs_sync:
                    published.needs_sync = True
        return published

    def _refuse(self, queue: AnyQueue, sealed: Sealed) -> None:
        if queue.settings.overflow == REJECT_PUBLISH_DLX:
            self.overflowed(queue, Stored(-1, 0, -1, sealed.content), Reason.OVERFLOW, 0)

    def facts_of(self, header: bytes) -> Facts:
        return self._facts.get(header) or self._learn(header)

    def _learn(self, header: bytes) -> Facts:
        facts = read_facts(header)
        if len(header) <= _CACHED_HEADER_BYTES:
            if len(self._facts) >= _CACHED_FACTS:
                self._facts.clear()
            self._facts[header] = facts
        return facts


def read_facts(header: bytes) -> Facts:
    flags = flags_of(header)
    expiration_ms: int | None = None
    if flags & FLAGS["expiration"]:
        expiration_ms = _expiration_ms(str(read_property(header, "expiration")))
    priority = read_property(header, "priority") if flags & FLAGS["priority"] else 0
    has_headers = bool(flags & FLAGS["headers"])
    return Facts(
        read_property(header, "delivery_mode") != PERSISTENT,
        expiration_ms,
        priority if isinstance(priority, int) else 0,
        has_headers and (b"\x02CC" in header or b"\x03BCC" in header),
    )


def _expiration_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_MILLISECONDS:
        raise InvalidExpiration(text)
    return int(text)


def _without_blind_copies(header: bytes, headers: Table) -> bytes:
    if "BCC" not in headers:
        return header
    kept = {name: value for name, value in headers.items() if name != "BCC"}
    return replace(header, headers=kept)


def _headers_of(header: bytes) -> Mapping[str, Value]:
    try:
        return read_headers(header)
    except BadField as error:
        raise InvalidHeader("headers", str(error)) from error


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
