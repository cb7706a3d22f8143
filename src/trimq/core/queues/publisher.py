"""Publishes messages: evaluates their properties, routes them, and appends them to queues. Knows neither connections
nor consumers."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

from trimq.core.failures.ledger import Reason
from trimq.core.queues.arguments import DROP_HEAD, MAX_MILLISECONDS, REJECT_PUBLISH_DLX, STREAM
from trimq.core.queues.backlog import NEVER_DELIVERED, DeliveryCounts
from trimq.core.queues.queue import NO_PRIORITY, Publication, Queue
from trimq.core.routing.bindings import MessageHeaders
from trimq.core.routing.exchanges import Exchange
from trimq.core.routing.router import Route, Router, copied_keys
from trimq.errors import Refusal
from trimq.errors.queues import InvalidExpiration, InvalidHeader, UnknownQueue
from trimq.formats.amqp_content.content import (
    MAX_RECORD_BYTES,
    NO_BLOB,
    PRIVATE_HEADERS,
    Content,
    StoredContent,
    encode_content,
    encode_reference,
)
from trimq.formats.amqp_content.field_tables import BadField
from trimq.formats.amqp_content.private_headers import BLIND_COPIES, without_private_headers
from trimq.formats.amqp_content.property_list import (
    FLAGS,
    PERSISTENT,
    flags_of,
    read_headers_leniently,
    read_property,
    read_text,
    replace,
)
from trimq.storage.group_commit.passes import Ticket

_new_tuple = tuple.__new__  # half the time of a NamedTuple's own constructor, for every message

DELAY = "x-delay"

_NUMBER = re.compile("[+-]?[0-9]{1,30}")  # as RabbitMQ reads an expiration
# Of a batch of messages for many queues, between two chances for others to have their turn: about 5 ms. The first
# message for a queue costs several times as much as the following ones: its log is written, and it is dispatched.
_APPENDS_PER_SLICE = 2_000
_QUEUES_PER_SLICE = 200

_CACHED_OPTIONS = 1000
_CACHED_HEADER_BYTES = 256


class PublishOptions(NamedTuple):
    """Properties of a message that the broker evaluates. `is_special`: it may have copies (CC, BCC), or its properties
    are stored in another form."""

    is_transient: bool
    expiration_ms: int | None
    priority: int
    is_special: bool
    delay_ms: int


class PublishResult:
    """`is_routed` False: no queue matched. `is_refused`: a full queue rejected the message, or a topic of another
    layout did, which says why in `reason`. The result is final when pass `number` is durable, or written if
    `needs_sync` is False; 0: at once."""

    __slots__ = ("is_refused", "is_routed", "needs_sync", "number", "reason", "tickets")

    def __init__(self, is_routed: bool, is_refused: bool = False) -> None:
        self.is_routed = is_routed
        self.is_refused = is_refused
        self.reason: Refusal | None = None
        self.needs_sync = False
        self.number = 0
        self.tickets: list[Ticket] = []

    def refusal(self) -> Refusal | None:
        """Returns the refusal if the message could not be written; valid once its pass is over. A queue that was
        deleted before the write is none: the message would be gone anyway."""
        for ticket in self.tickets:
            if ticket.refusal is not None and not isinstance(ticket.refusal, UnknownQueue):
                return ticket.refusal
        return None

    def add(self, ticket: Ticket, needs_sync: bool) -> None:
        self.tickets.append(ticket)
        if ticket.number > self.number:
            self.number = ticket.number
        if needs_sync:
            self.needs_sync = True


class PublishRoute(NamedTuple):
    """Names of the queues for a message, and the exchanges in which it waits for its delay."""

    exchange: Exchange
    names: Route
    delayed_exchanges: list[Exchange]

    @property
    def is_empty(self) -> bool:
        return not self.names and not self.delayed_exchanges


class SharedBodies(Protocol):
    """Stores a body once for several queues."""

    def put(self, body: bytes, is_volatile: bool, now_ms: int) -> int: ...

    def drop_unreferenced(self, blob: int) -> None: ...


FindQueue = Callable[[str, str], Queue | None]
OnOverflow = Callable[[Queue, Sequence[StoredContent], Reason, DeliveryCounts], Ticket | None]


class DelayMessage(Protocol):
    """Stores a message of a delayed exchange."""

    def __call__(
        self, exchange: Exchange, content: Content, delay_ms: int, is_transient: bool, flags: int = 0
    ) -> Ticket: ...


class Publisher:
    """Stores a body of at least `shared_bytes` that is routed to several queues once, in `bodies`; 0: never."""

    def __init__(
        self,
        router: Router,
        find_queue: FindQueue,
        bodies: SharedBodies,
        shared_bytes: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._router = router
        self._find_queue = find_queue
        self._bodies = bodies
        self._shared_bytes = shared_bytes or MAX_RECORD_BYTES
        self._now_ms = now_ms
        self._options_cache: dict[bytes, PublishOptions] = {}
        self.on_overflow: OnOverflow = lambda queue, batch, reason, delivery_counts: None
        self.delay_message: DelayMessage

    def publish(
        self,
        exchange: Exchange,
        key: str,
        header: bytes,
        body: bytes,
        origin: bytes | None = None,
        flags: int = 0,
        route: PublishRoute | None = None,
    ) -> PublishResult:
        """Publishes a message. `origin`: the exchange that the client published to, if it is not `exchange`. `flags`:
        DEAD_LETTER. `route`: the route found earlier, in a transaction."""
        options = self._options_cache.get(header) or self._learn(header)
        names: Route | None = None
        delayed_exchanges: list[Exchange] | None = None
        if route is not None:
            _, names, delayed_exchanges = route
        elif not options.is_special:
            names = self._router.known(exchange.namespace, exchange.name, key)
        content = _new_tuple(Content, (origin or exchange.encoded_name, _encode(key), header, body, self._now_ms()))
        if names is None:
            _, names, delayed_exchanges = self.find_route(exchange, key, header)
        if options.is_special:
            content, flags = _normalised(content, flags)
        if names:
            publication = _new_tuple(Publication, (encode_content(content), options[0], options[1], options[2], flags))
            published = self.deliver(exchange.namespace, names, publication)
        else:
            published = PublishResult(False)
        if delayed_exchanges:
            self._delay_message(delayed_exchanges, content._replace(header=header), options, published, flags)
        return published

    def find_route(self, exchange: Exchange, key: str, header: bytes) -> PublishRoute:
        """Returns where `publish` sends a message. Raises the refusal that it would raise for the properties."""
        options = self.options_of(header)
        headers: MessageHeaders | None = None
        keys = [key]
        if options.is_special:
            headers = _headers_of(header)
            keys += copied_keys(headers)
        delayed_exchanges: list[Exchange] = []
        names = self._router.route(
            exchange,
            keys,
            lambda: _headers_of(header) if headers is None else headers,
            delayed_exchanges if options.delay_ms else None,
        )
        return PublishRoute(exchange, names, delayed_exchanges)

    def further_keys(self, header: bytes) -> list[str]:
        """Returns the routing keys in the headers CC and BCC."""
        if b"\x02CC" not in header and b"\x03BCC" not in header:
            return []
        return copied_keys(_headers_of(header))

    def check(self, header: bytes) -> None:
        """Raises the refusal that `publish` would raise for these properties."""
        if self.options_of(header).is_special:
            copied_keys(_headers_of(header))

    def stored_header(self, header: bytes) -> bytes:
        """Returns the properties as they are delivered, or returned to the client if the message has no route."""
        return without_private_headers(_with_plain_expiration(header)) if self.options_of(header).is_special else header

    def find_existing_route(self, exchange: Exchange, key: str, header: bytes) -> PublishRoute:
        """As `find_route`, with the names of existing queues only."""
        found = self.find_route(exchange, key, header)
        names = tuple(name for name in found.names if self._find_queue(exchange.namespace, name) is not None)
        return found._replace(names=names)

    def _delay_message(
        self,
        delayed_exchanges: list[Exchange],
        content: Content,
        options: PublishOptions,
        published: PublishResult,
        flags: int,
    ) -> None:
        published.is_routed = True
        for exchange in delayed_exchanges:
            ticket = self.delay_message(exchange, content, options.delay_ms, options.is_transient, flags)
            published.add(ticket, not options.is_transient)

    def route(self, exchange: Exchange, key: str, header: bytes) -> Route:
        """Returns the names of the queues to which a message is routed, or would be after its delay."""
        headers = _headers_of(header)
        return self._router.route(exchange, [key, *copied_keys(headers)], lambda: headers)

    def publish_all(
        self, exchange: Exchange, key: str, contents: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[tuple[PublishResult | None, int]]:
        """Fast path of `publish` for messages with one key, given as pairs of header and body. Yields each result with
        the number of messages that it is for, in order. A raised refusal is for the message after these. Messages for
        many queues are published in slices, between which the caller may let others have their turn: it yields None
        with 0 there."""
        namespace = exchange.namespace
        for options, batch in self._group_by_options(contents):
            names = None if options.is_special else self._router.known(namespace, exchange.name, key)
            if names is None and not options.is_special:  # not known yet, or routed by headers
                self.find_route(exchange, key, batch[0][0])
                names = self._router.known(namespace, exchange.name, key)
            published: PublishResult | None = None
            if names is not None:
                encoded_name, encoded_key, now_ms = exchange.encoded_name, _encode(key), self._now_ms()
                alike = [_new_tuple(Content, (encoded_name, encoded_key, each[0], each[1], now_ms)) for each in batch]
                if len(names) <= _QUEUES_PER_SLICE and len(names) * len(batch) <= _APPENDS_PER_SLICE:
                    published = self.deliver_all(namespace, names, alike, options)
                else:
                    published = yield from self._deliver_in_slices(namespace, names, alike, options)
            if published is None:
                yield from self._publish_singly(exchange, key, batch)
            else:
                yield published, len(batch)

    def _publish_singly(
        self, exchange: Exchange, key: str, contents: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[tuple[PublishResult | None, int]]:
        appends = 0
        for header, body in contents:
            if appends >= _APPENDS_PER_SLICE:
                appends = 0
                yield None, 0
            yield self.publish(exchange, key, header, body), 1
            appends += len(self._router.known(exchange.namespace, exchange.name, key) or ())

    def _group_by_options(
        self, contents: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[tuple[PublishOptions, Sequence[tuple[bytes, bytes]]]]:
        """Yields consecutive messages with equal options."""
        start = 0
        known = contents[0][0]
        options = self.options_of(known)
        for index, (header, _) in enumerate(contents):
            if header is known:
                continue
            known = header
            try:
                other = self.options_of(header)
            except Refusal:
                yield options, contents[start:index]
                raise
            if other != options:
                yield options, contents[start:index]
                start, options = index, other
        yield options, contents[start:]

    def deliver_all(
        self,
        namespace: str,
        names: Sequence[str],
        contents: Sequence[Content],
        options: PublishOptions,
        flags: int = 0,
    ) -> PublishResult | None:
        """Fast path of `deliver` for contents with equal options. Returns None, and appends nothing, if they must be
        delivered one by one: a queue does not accept batches, or a body is to be shared."""
        if len(names) > 1 and any(len(content[3]) >= self._shared_bytes for content in contents):
            return None
        queues = [queue for name in names if (queue := self._find_queue(namespace, name)) is not None]
        if not all(queue.accepts_batches for queue in queues):
            return None
        published = PublishResult(bool(queues))
        for queue in queues:
            published.add(
                *queue.publish_all(contents, options.is_transient, options.expiration_ms, options.priority, flags)
            )
        return published

    def _deliver_in_slices(
        self, namespace: str, names: Sequence[str], contents: Sequence[Content], options: PublishOptions
    ) -> Generator[tuple[None, int], None, PublishResult | None]:
        """Does the same as `deliver_all` for many queues. Each slice appends all messages to some of the queues, since
        a log that is written once with all of them costs much less than one that is written for each."""
        if any(len(content[3]) >= self._shared_bytes for content in contents):
            return None
        if not self.accepts_batches(namespace, names):
            return None
        step = max(min(_APPENDS_PER_SLICE // len(contents), _QUEUES_PER_SLICE), 1)
        published = PublishResult(False)
        for begin in range(0, len(names), step):
            if begin:
                yield None, 0
            for name in names[begin : begin + step]:
                queue = self._find_queue(namespace, name)
                if queue is not None:
                    published.is_routed = True
                    _append_admitted(queue, contents, options, published)
        return published

    def accepts_batches(self, namespace: str, names: Sequence[str]) -> bool:
        """True if all named queues accept batches."""
        found = [self._find_queue(namespace, name) for name in names]
        return all(queue.accepts_batches for queue in found if queue is not None)

    def ready_and_full_queues(self, namespace: str, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the names of the existing queues, those with room and those that are full."""
        found = [queue for name in names if (queue := self._find_queue(namespace, name)) is not None]
        return [queue.name for queue in found if not queue.is_full], [queue.name for queue in found if queue.is_full]

    def deliver(self, namespace: str, names: Sequence[str], publication: Publication) -> PublishResult:
        """Appends a message to those of the named queues that exist."""
        published = PublishResult(False)
        blob, shared = NO_BLOB, publication
        if len(names) > 1 and len(publication.sealed.content.body) >= self._shared_bytes:
            blob, shared = self._share_body(namespace, names, publication)
        try:
            for name in names:
                queue = self._find_queue(namespace, name)
                if queue is None:
                    continue
                published.is_routed = True
                if queue.is_topic:
                    _deliver_to_topic(queue, publication, published)
                    continue
                if queue.settings.overflow != DROP_HEAD and queue.is_full:
                    published.is_refused = True
                    self._refuse(queue, shared)
                    continue
                ticket, needs_sync = queue.publish(publication if queue.kind == STREAM else shared)
                published.tickets.append(ticket)
                if ticket.number > published.number:  # a repeated message may have been stored in an earlier pass
                    published.number = ticket.number
                if needs_sync:
                    published.needs_sync = True
        finally:
            if blob != NO_BLOB:
                self._bodies.drop_unreferenced(blob)  # no queue had room
        return published

    def _share_body(self, namespace: str, names: Sequence[str], publication: Publication) -> tuple[int, Publication]:
        """Stores the body once for several queues. Returns its blob, and the publication that refers to it; NO_BLOB and
        the same publication if it is not shared. Streams have their own copy: their retention counts bytes."""
        found = [self._find_queue(namespace, name) for name in names]
        sharing = [queue for queue in found if queue is not None and queue.kind != STREAM]
        blob = NO_BLOB
        content = publication.sealed.content
        if len(sharing) > 1:
            is_volatile = not any(queue.will_persist(publication.is_transient) for queue in sharing)
            blob = self._bodies.put(content.body, is_volatile, content.published_ms)
        if blob == NO_BLOB:
            return NO_BLOB, publication
        return blob, publication._replace(sealed=encode_reference(content, blob))

    def _refuse(self, queue: Queue, publication: Publication) -> None:
        if queue.settings.overflow == REJECT_PUBLISH_DLX:
            stored = StoredContent(-1, publication.flags, -1, publication.sealed.content)
            self.on_overflow(queue, (stored,), Reason.OVERFLOW, NEVER_DELIVERED)

    def options_of(self, header: bytes) -> PublishOptions:
        return self._options_cache.get(header) or self._learn(header)

    def _learn(self, header: bytes) -> PublishOptions:
        options = read_publish_options(header)
        if len(header) <= _CACHED_HEADER_BYTES:
            if len(self._options_cache) >= _CACHED_OPTIONS:
                self._options_cache.clear()
            self._options_cache[header] = options
        return options


def _deliver_to_topic(queue: Queue, publication: Publication, published: PublishResult) -> None:
    try:
        ticket, needs_sync = queue.publish(publication)
    except Refusal as refusal:
        published.is_refused = True
        published.reason = refusal
    else:
        published.add(ticket, needs_sync)


def _append_admitted(
    queue: Queue, contents: Sequence[Content], options: PublishOptions, published: PublishResult
) -> None:
    """Appends messages to a queue that accepted batches when they arrived. If a policy has changed that since, they are
    stored one by one, and a limit on its length does not refuse them."""
    if queue.accepts_batches:
        published.add(*queue.publish_all(contents, options.is_transient, options.expiration_ms, options.priority))
        return
    for content in contents:
        sealed = encode_content(content)
        publication = Publication(sealed, options.is_transient, options.expiration_ms, options.priority)
        if queue.is_topic:
            _deliver_to_topic(queue, publication, published)
        else:
            published.add(*queue.publish(publication))


def read_publish_options(header: bytes) -> PublishOptions:
    flags = flags_of(header)
    expiration_ms: int | None = None
    is_respelled = False
    if flags & FLAGS["expiration"]:
        expiration = read_text(header, "expiration") or ""
        expiration_ms = _expiration_ms(expiration)
        is_respelled = expiration != str(expiration_ms)
    priority = read_property(header, "priority") if flags & FLAGS["priority"] else NO_PRIORITY
    has_headers = bool(flags & FLAGS["headers"])
    return PublishOptions(
        read_property(header, "delivery_mode") != PERSISTENT,
        expiration_ms,
        priority if isinstance(priority, int) else NO_PRIORITY,
        is_respelled or (has_headers and (b"\x02CC" in header or b"\x03BCC" in header)),
        _delay_ms(header) if has_headers and b"x-delay" in header else 0,
    )


def _delay_ms(header: bytes) -> int:
    """Returns the `x-delay` of a message; 0 if there is none or it is invalid."""
    try:
        delay = read_headers_leniently(header).get(DELAY)
    except BadField:
        return 0
    if isinstance(delay, str) and delay.isascii() and delay.isdigit():
        delay = int(delay)
    if isinstance(delay, bool) or not isinstance(delay, int):
        return 0
    return max(min(int(delay), MAX_MILLISECONDS), 0)


def _expiration_ms(text: str) -> int:
    if _NUMBER.fullmatch(text) is None or not 0 <= int(text) <= MAX_MILLISECONDS:
        raise InvalidExpiration(text)
    return int(text)


def _normalised(content: Content, flags: int) -> tuple[Content, int]:
    """Returns a content with its expiration as a plain number, and the flags to store it with. Blind copies stay: a
    dead letter is routed to them again."""
    header = _with_plain_expiration(content.header)
    if BLIND_COPIES in _headers_of(header):
        flags |= PRIVATE_HEADERS
    return content._replace(header=header), flags


def _with_plain_expiration(header: bytes) -> bytes:
    expiration = read_text(header, "expiration")
    return header if expiration is None else replace(header, expiration=str(_expiration_ms(expiration)))


def _headers_of(header: bytes) -> MessageHeaders:
    try:
        return MessageHeaders(read_headers_leniently(header), header)
    except BadField as error:
        raise InvalidHeader("headers", str(error)) from error


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
