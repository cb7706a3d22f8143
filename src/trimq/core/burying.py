"""Dead letters: what is given up in one queue goes, through the ledger of failures, to the exchange that the queue
names for it. Knows queues and routes, never why a message died beyond the word for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from trimq.clock import Timeline
from trimq.core.any_queue import AnyQueue, Publication
from trimq.core.dead_letters import Death, bury, goes_in_circle
from trimq.core.exchanges import Exchanges
from trimq.core.failures import FailureEntry, Failures, LedgerEntry, Origin, Reason
from trimq.core.publishing import JointTicket, Publishing
from trimq.core.routing import Routing
from trimq.formats.content import RETURNED, Stored, from_record, seal, to_record
from trimq.formats.property_list import PERSISTENT, read_property
from trimq.metrics import Metrics
from trimq.model import SYSTEM, Record, StreamId, TopicName
from trimq.storage.passes import Passes, Ticket

_NOTHING_KEPT = Ticket(0)


class Burying:
    def __init__(
        self,
        exchanges: Exchanges,
        routing: Routing,
        publishing: Publishing,
        find_queue: Callable[[UUID], AnyQueue | None],
        passes: Passes,
        timeline: Timeline,
        metrics: Metrics,
    ) -> None:
        self._exchanges = exchanges
        self._routing = routing
        self._publishing = publishing
        self._find_queue = find_queue
        self._failures = Failures(timeline, metrics, self._keep, _read_nothing, passes.afterwards)

    def give_up(self, queue: AnyQueue, stored: Stored, reason: Reason, attempts: int) -> Ticket | None:
        """None: it goes nowhere, and may be settled at once."""
        origin = Origin(TopicName(queue.namespace, queue.name), StreamId(queue.id, 0), stored.offset)
        ticket = self._failures.give_up(SYSTEM, to_record(stored.content, stored.offset), reason, origin, attempts)
        return None if ticket is _NOTHING_KEPT else ticket

    def _keep(self, entry: LedgerEntry) -> Ticket:
        """The dead-letter exchange is where the entry is kept; without one it is only counted."""
        queue = self._find_queue(entry.origin.stream.topic) if isinstance(entry, FailureEntry) else None
        if queue is None or not isinstance(entry, FailureEntry) or queue.settings.dead_letter_exchange is None:
            return _NOTHING_KEPT
        exchange = self._exchanges.find(queue.namespace, queue.settings.dead_letter_exchange)
        if exchange is None:
            return _NOTHING_KEPT
        death = Death(queue.name, entry.reason, entry.time_ms, exchange.name, queue.settings.dead_letter_key)
        letter = bury(from_record(entry.record), death)
        names = self._routing.route(exchange, letter.keys, lambda: letter.headers)
        names = tuple(name for name in names if not goes_in_circle(letter.headers, name))
        flags = RETURNED if entry.reason in (Reason.REJECTED, Reason.DELIVERY_LIMIT) else 0
        header = letter.content.header
        priority = read_property(header, "priority")
        publication = Publication(
            seal(letter.content),
            read_property(header, "delivery_mode") != PERSISTENT,
            None,
            priority if isinstance(priority, int) else 0,
            flags,
        )
        tickets = self._publishing.deliver(queue.namespace, names, publication).tickets
        return JointTicket(tickets) if tickets else _NOTHING_KEPT


def _read_nothing(offset: int) -> Iterable[Record]:
    """What was dead-lettered is read from the queues where it lies."""
    return ()
