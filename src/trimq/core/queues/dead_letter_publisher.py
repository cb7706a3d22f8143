"""Dead-letters messages of AMQP queues: records each in the failure ledger and publishes it to the dead-letter exchange
of its queue. Knows queues and routes; the reason of a death is only a label here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from trimq.clock import Timeline
from trimq.core.failures.ledger import FailedMessageLedger, FailureEntry, Reason
from trimq.core.failures.ledger_log import LedgerLog
from trimq.core.failures.queue_entries import FailedBatch, encode_failed_batch
from trimq.core.queues.at_least_once import NOTHING_SENT, DeadLetterSendResult
from trimq.core.queues.backlog import DeliveryCounts
from trimq.core.queues.death_headers import DeadLetter, Death, is_dead_letter_cycle, make_dead_letter
from trimq.core.queues.publisher import Publisher, PublishOptions, PublishResult
from trimq.core.queues.queue import Publication, Queue
from trimq.core.routing.bindings import MessageHeaders
from trimq.core.routing.exchanges import Exchange, Exchanges
from trimq.core.routing.router import Router
from trimq.errors.queues import UnknownQueue
from trimq.formats.amqp_content import private_headers
from trimq.formats.amqp_content.content import (
    DEAD_LETTER,
    PRIVATE_HEADERS,
    REDELIVERED,
    Content,
    StoredContent,
    encode_content,
    from_record,
)
from trimq.storage.group_commit.passes import JointTicket, Ticket

_NOTHING_KEPT = Ticket(0)

_Envelope = tuple[int, tuple[bytes, ...]]

_new_tuple = tuple.__new__  # half the time of a NamedTuple's own constructor, for every message


class _DeadLetterRoute:
    """Target queues and delayed exchanges of dead letters with equal properties, from one queue and for one reason."""

    __slots__ = ("delayed_exchanges", "flags", "letter", "names", "options")

    def __init__(
        self,
        letter: DeadLetter,
        options: PublishOptions,
        names: Sequence[str],
        delayed_exchanges: list[Exchange],
        flags: int,
    ) -> None:
        self.letter = letter
        self.options = options
        self.names = names
        self.delayed_exchanges = delayed_exchanges
        self.flags = flags

    def contents(self, batch: Sequence[StoredContent]) -> list[Content]:
        exchange, key, header, _, time_ms = self.letter.content
        return [_new_tuple(Content, (exchange, key, header, stored[3].body, time_ms)) for stored in batch]


class DeadLetterPublisher:
    def __init__(
        self,
        exchanges: Exchanges,
        router: Router,
        publisher: Publisher,
        ledger: LedgerLog,
        failures: FailedMessageLedger,
        timeline: Timeline,
    ) -> None:
        self._exchanges = exchanges
        self._router = router
        self._publisher = publisher
        self._ledger = ledger
        self._timeline = timeline
        self._last: tuple[tuple[_Envelope, int, Death], DeadLetter] | None = None
        self._failures = failures

    def give_up(
        self, queue: Queue, batch: Sequence[StoredContent], reason: Reason, delivery_counts: DeliveryCounts
    ) -> Ticket | None:
        """Dead-letters messages of one queue that have these delivery counts in it. Returns None if nothing was stored:
        the caller may acknowledge them at once."""
        now_ms = self._timeline.now_ms()
        tickets: list[Ticket] = []
        exchange = self._dead_letter_exchange(queue)
        if exchange is not None:
            death = Death(queue.name, reason, now_ms, exchange.name, queue.settings.dead_letter_key)
            for _, own in groupby(batch, _envelope_of):
                alike = list(own)
                route = self._route(exchange, alike[0], death, delivery_counts)
                tickets += self._send(queue.namespace, route, alike)
        tickets += self._note(queue, batch, reason, delivery_counts.acquired, now_ms)
        return JointTicket(tickets) if tickets else None

    def send_dead_letters(
        self,
        queue: Queue,
        batch: Sequence[StoredContent],
        reason: Reason,
        delivery_counts: DeliveryCounts,
        died_ms: int,
        confirmed: Collection[str],
    ) -> DeadLetterSendResult | None:
        """At-least-once variant of `give_up`, for messages that are equal except for their bodies. Sends to the target
        queues that have room and are not in `confirmed`; records the messages in the ledger once all targets have them.
        Returns None if the caller must send them one by one."""
        if not queue.settings.is_dead_letter_at_least_once:  # the policy has changed since
            return DeadLetterSendResult((), self.give_up(queue, batch, reason, delivery_counts), True)
        exchange = self._dead_letter_exchange(queue)
        if exchange is None:
            return NOTHING_SENT
        death = Death(queue.name, reason, died_ms, exchange.name, queue.settings.dead_letter_key)
        route = self._route(exchange, batch[0], death, delivery_counts)
        ready, full = self._publisher.ready_and_full_queues(queue.namespace, route.names)
        if not (ready or full or route.delayed_exchanges or confirmed):
            return NOTHING_SENT
        if len(batch) > 1 and not self._publisher.accepts_batches(queue.namespace, route.names):
            return None
        route.names = [name for name in ready if name not in confirmed]
        route.delayed_exchanges = [each for each in route.delayed_exchanges if _delayed_by(each) not in confirmed]
        tickets = self._send(queue.namespace, route, batch)
        is_complete = all(name in confirmed for name in full)
        if is_complete:
            tickets += self._note(queue, batch, reason, delivery_counts.acquired, self._timeline.now_ms())
        to = [*route.names, *map(_delayed_by, route.delayed_exchanges)]
        return DeadLetterSendResult(to, JointTicket(tickets) if tickets else None, is_complete)

    def _note(
        self, queue: Queue, batch: Sequence[StoredContent], reason: Reason, attempts: int, now_ms: int
    ) -> list[Ticket]:
        """Records messages in the ledger. The returned ticket carries no refusal: messages without a dead-letter
        exchange must be dropped even if the ledger cannot be written, or a full disk would never get emptier."""
        failed_batch = FailedBatch(reason.value, queue.namespace, queue.name, queue.id.bytes, attempts, now_ms)
        noted = self._ledger.append_batch(encode_failed_batch(failed_batch, batch))
        self._failures.count(reason, len(batch))
        return [] if noted is None else [Ticket(noted.number)]

    # -- routing and publishing

    def _dead_letter_exchange(self, queue: Queue) -> Exchange | None:
        name = queue.settings.dead_letter_exchange
        return None if name is None else self._exchanges.find(queue.namespace, name)

    def _route(
        self, exchange: Exchange, stored: StoredContent, death: Death, delivery_counts: DeliveryCounts
    ) -> _DeadLetterRoute:
        failed = stored.failed_elsewhere + delivery_counts.failed
        letter = self._letter(stored, death, failed)
        options = self._publisher.options_of(letter.content.header)
        headers = MessageHeaders(letter.headers, letter.content.header)
        delayed_exchanges: list[Exchange] = []
        names = self._router.route(
            exchange, letter.keys, lambda: headers, delayed_exchanges if options.delay_ms else None
        )
        return _DeadLetterRoute(
            letter,
            options,
            [name for name in names if not is_dead_letter_cycle(letter.headers, name)],
            delayed_exchanges,
            _flags_of(letter, failed),
        )

    def _letter(self, stored: StoredContent, death: Death, failed: int) -> DeadLetter:
        """Returns the dead letter of a message, but its body may be that of an earlier message. Caches the last result
        of `make_dead_letter`: consecutive messages often have equal properties and die in the same second."""
        said = _envelope_of(stored), failed, death._replace(time_ms=death.time_ms // 1000)
        if self._last is None or self._last[0] != said:
            self._last = said, make_dead_letter(stored.content, death, stored.is_dead_letter, failed)
        letter = self._last[1]
        return letter._replace(content=letter.content._replace(published_ms=death.time_ms))

    def _send(self, namespace: str, route: _DeadLetterRoute, batch: Sequence[StoredContent]) -> list[Ticket]:
        contents, options, flags = route.contents(batch), route.options, route.flags
        tickets = [
            self._publisher.delay_message(exchange, content, options.delay_ms, options.is_transient, flags)
            for exchange in route.delayed_exchanges
            for content in contents
        ]
        if not route.names:
            return tickets
        together = None
        if len(batch) > 1:
            together = self._publisher.deliver_all(namespace, route.names, contents, options, flags)
        if together is not None:
            return tickets + together.tickets
        for content in contents:
            tickets += self._deliver(namespace, route.names, content, options, flags).tickets
        return tickets

    def _deliver(
        self, namespace: str, names: Sequence[str], content: Content, options: PublishOptions, flags: int = 0
    ) -> PublishResult:
        publication = Publication(encode_content(content), options.is_transient, None, options.priority, flags)
        return self._publisher.deliver(namespace, names, publication)

    # -- a source of the ledger

    def owns(self, entry: FailureEntry) -> bool:
        """Returns True: asked last, for entries that no other layout owns. Entries of queues carry no mark."""
        return True

    def find(self, entry: FailureEntry) -> FailureEntry:
        return entry

    def send_again(self, entry: FailureEntry) -> Ticket:
        """Publishes the message to the queue in which it failed. UnknownQueue: the queue was deleted."""
        namespace, name = entry.origin.topic
        # With the old time of publishing it might expire at once.
        content = from_record(entry.record)._replace(published_ms=self._timeline.now_ms())
        published = self._deliver(namespace, (name,), content, self._publisher.options_of(content.header))
        if not published.is_routed:
            raise UnknownQueue(name, namespace)
        return JointTicket(published.tickets) if published.tickets else _NOTHING_KEPT


def _envelope_of(stored: StoredContent) -> _Envelope:
    """Returns the fields that decide on the dead letter of a message, except for its body."""
    return stored.flags & (DEAD_LETTER | REDELIVERED | PRIVATE_HEADERS), stored.content[:3]


def _flags_of(letter: DeadLetter, failed: int) -> int:
    flags = DEAD_LETTER | REDELIVERED if failed else DEAD_LETTER
    return flags | PRIVATE_HEADERS if any(name in letter.headers for name in private_headers.NAMES) else flags


def _delayed_by(exchange: Exchange) -> str:
    """Returns the name of a delayed exchange in a set of queue names; no queue name contains a NUL."""
    return f"\0{exchange.name}"
