"""Messages that are given up: each is written into the ledger of failures, and goes to the exchange that its queue
names for dead letters. Knows queues and routes, never why a message died beyond the word for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.any_queue import NO_PRIORITY, AnyQueue, Publication
from trimq.core.bindings import MessageHeaders
from trimq.core.dead_letters import Death, bury, goes_in_circle
from trimq.core.exchanges import Exchanges
from trimq.core.failure_ledger import FailureLedger
from trimq.core.failures import Failure, FailureEntry, FailureId, Failures, LedgerEntry, Origin, Reason
from trimq.core.failures import to_record as to_entry
from trimq.core.publishing import JointTicket, Publishing
from trimq.core.queue_refusals import UnknownQueue
from trimq.core.routing import Routing
from trimq.core.shared_failures import SharedFailures, place_of
from trimq.errors import UnknownFailure
from trimq.formats.content import RETURNED, Content, Stored, from_record, seal, to_record
from trimq.formats.property_list import PERSISTENT, read_property
from trimq.metrics import Metrics
from trimq.model import SYSTEM, Caller, Record, StreamId, TopicName
from trimq.storage.passes import Passes, Ticket

_NOTHING_KEPT = Ticket(0)


class Burying:
    def __init__(
        self,
        exchanges: Exchanges,
        routing: Routing,
        publishing: Publishing,
        find_queue: Callable[[UUID], AnyQueue | None],
        ledger: FailureLedger,
        passes: Passes,
        timeline: Timeline,
        metrics: Metrics,
    ) -> None:
        self._exchanges = exchanges
        self._routing = routing
        self._publishing = publishing
        self._find_queue = find_queue
        self._ledger = ledger
        self.failures = Failures(timeline, metrics, self._keep, ledger.read, passes.afterwards)
        self.shared: SharedFailures | None = None
        """Knows the letters that entries only name. None: nothing is kept in a shared log."""

    def give_up(self, queue: AnyQueue, stored: Stored, reason: Reason, attempts: int) -> Ticket | None:
        """None: nothing is kept of it, and it may be settled at once."""
        origin = Origin(TopicName(queue.namespace, queue.name), StreamId(queue.id, 0), stored.offset)
        ticket = self.failures.give_up(SYSTEM, to_record(stored.content, stored.offset), reason, origin, attempts)
        return None if ticket is _NOTHING_KEPT else ticket

    def all(self, from_id: FailureId) -> Iterator[Failure]:
        """The failures from `from_id` on whose messages are still here, oldest first."""
        for failure in self.failures.all(from_id):
            if place_of(failure.entry) is None:
                yield failure
            elif self.shared is not None and (entry := self.shared.find(failure.entry)) is not None:
                yield replace(failure, entry=entry)

    def redrive(self, caller: Caller, id: FailureId) -> Ticket:
        """Send a message that was given up to the queue that it was in, as it was, or to the group that gave it up.
        UnknownQueue, UnknownTopic: that is gone. UnknownFailure: the message is."""
        entry = self.failures.get(id).entry
        if place_of(entry) is not None:
            return self.failures.redrive(caller, id, lambda _: self._send_letter(id, entry))
        return self.failures.redrive(caller, id, lambda record: self._send_again(entry.origin, record))

    def _send_letter(self, id: FailureId, entry: FailureEntry) -> Ticket:
        ticket = None if self.shared is None else self.shared.send_again(entry)
        if ticket is None:
            raise UnknownFailure(id)
        return ticket

    def _send_again(self, origin: Origin, record: Record) -> Ticket:
        namespace, name = origin.topic
        published = self._publishing.deliver(namespace, (name,), _publication(from_record(record), 0))
        if not published.is_routed:
            raise UnknownQueue(name, namespace)
        return JointTicket(published.tickets) if published.tickets else _NOTHING_KEPT

    def _keep(self, entry: LedgerEntry) -> Ticket:
        """What the dead-letter exchange does not take has to be given up even where the ledger cannot be written, or a
        full disk would never get emptier: so only the tickets of dead letters may carry a refusal."""
        noted = self._ledger.append(to_entry(entry))
        tickets = self._bury(entry) if isinstance(entry, FailureEntry) else ()
        if tickets:
            return JointTicket(tickets)
        return _NOTHING_KEPT if noted is None else Ticket(noted.number)

    def _bury(self, entry: FailureEntry) -> list[Ticket]:
        """To the queues that the dead-letter exchange leads to."""
        queue = self._find_queue(entry.origin.stream.topic)
        if queue is None or queue.settings.dead_letter_exchange is None:
            return []
        exchange = self._exchanges.find(queue.namespace, queue.settings.dead_letter_exchange)
        if exchange is None:
            return []
        death = Death(queue.name, entry.reason, entry.time_ms, exchange.name, queue.settings.dead_letter_key)
        letter = bury(from_record(entry.record), death)
        headers = MessageHeaders(letter.headers, letter.content.header)
        names = self._routing.route(exchange, letter.keys, lambda: headers)
        names = tuple(name for name in names if not goes_in_circle(letter.headers, name))
        flags = RETURNED if entry.reason in (Reason.REJECTED, Reason.DELIVERY_LIMIT) else 0
        return self._publishing.deliver(queue.namespace, names, _publication(letter.content, flags)).tickets


def _publication(content: Content, flags: int) -> Publication:
    priority = read_property(content.header, "priority")
    return Publication(
        seal(content),
        read_property(content.header, "delivery_mode") != PERSISTENT,
        None,
        priority if isinstance(priority, int) else NO_PRIORITY,
        flags,
    )
