"""Messages that are given up: each is written into the ledger of failures, and goes to the exchange that its queue
names for dead letters. Knows queues and routes, never why a message died beyond the word for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from trimq.clock import Timeline
from trimq.core.failures.ledger import FailureEntry, Failures, Reason
from trimq.core.failures.ledger_log import FailureLedger
from trimq.core.failures.queue_entries import Row, encode_row
from trimq.core.queues.at_least_once import NOBODY, Sent
from trimq.core.queues.death_headers import DeadLetter, Death, bury, goes_in_circle
from trimq.core.queues.publisher import Facts, Published, Publishing
from trimq.core.queues.queue import AnyQueue, Publication
from trimq.core.routing.bindings import MessageHeaders
from trimq.core.routing.exchanges import Exchange, Exchanges
from trimq.core.routing.router import Routing
from trimq.errors.queues import UnknownQueue
from trimq.formats.amqp_content.content import RETURNED, Content, Stored, from_record, seal
from trimq.storage.group_commit.passes import JointTicket, Ticket

_NOTHING_KEPT = Ticket(0)

_new_tuple = tuple.__new__  # half the time of a NamedTuple's own constructor, for every message


class _Route:
    """Where the dead letters of one queue go that died alike."""

    __slots__ = ("delaying", "facts", "letter", "names")

    def __init__(self, letter: DeadLetter, facts: Facts, names: Sequence[str], delaying: list[Exchange]) -> None:
        self.letter = letter
        self.facts = facts
        self.names = names
        self.delaying = delaying

    def contents(self, run: Sequence[Stored]) -> list[Content]:
        exchange, key, header, _, time_ms = self.letter.content
        return [_new_tuple(Content, (exchange, key, header, stored[3].body, time_ms)) for stored in run]


class Burying:
    def __init__(
        self,
        exchanges: Exchanges,
        routing: Routing,
        publishing: Publishing,
        ledger: FailureLedger,
        failures: Failures,
        timeline: Timeline,
    ) -> None:
        self._exchanges = exchanges
        self._routing = routing
        self._publishing = publishing
        self._ledger = ledger
        self._timeline = timeline
        self._last: tuple[tuple[bytes, ...], Death, DeadLetter] | None = None
        self._failures = failures

    def give_up(self, queue: AnyQueue, run: Sequence[Stored], reason: Reason, attempts: int) -> Ticket | None:
        """Messages that end together. None: nothing is kept of them, and they may be settled at once."""
        now_ms = self._timeline.now_ms()
        tickets: list[Ticket] = []
        exchange = self._dead_exchange(queue)
        if exchange is not None:
            death = Death(queue.name, reason, now_ms, exchange.name, queue.settings.dead_letter_key)
            for _, own in groupby(run, _said_of):
                alike = list(own)
                tickets += self._send(queue.namespace, self._route(exchange, alike[0], death), alike, reason)
        tickets += self._note(queue, run, reason, attempts, now_ms)
        return JointTicket(tickets) if tickets else None

    def send_letters(
        self,
        queue: AnyQueue,
        run: Sequence[Stored],
        reason: Reason,
        attempts: int,
        died_ms: int,
        taken: Collection[str],
    ) -> Sent | None:
        """As `give_up`, of messages that are alike but for their bodies and whose dead letters must not be lost: to
        those that have not taken them yet, as far as they have room. They are in the ledger when all have them. None:
        it has to be done one by one."""
        if not queue.settings.loses_no_dead_letter:  # any more
            return Sent((), self.give_up(queue, run, reason, attempts), True)
        exchange = self._dead_exchange(queue)
        if exchange is None:
            return NOBODY
        death = Death(queue.name, reason, died_ms, exchange.name, queue.settings.dead_letter_key)
        route = self._route(exchange, run[0], death)
        ready, full = self._publishing.takers(queue.namespace, route.names)
        if not (ready or full or route.delaying or taken):
            return NOBODY
        if len(run) > 1 and not self._publishing.takes_runs(queue.namespace, route.names):
            return None
        route.names = [name for name in ready if name not in taken]
        route.delaying = [each for each in route.delaying if _delayed_by(each) not in taken]
        tickets = self._send(queue.namespace, route, run, reason)
        is_complete = all(name in taken for name in full)
        if is_complete:
            tickets += self._note(queue, run, reason, attempts, self._timeline.now_ms())
        to = [*route.names, *map(_delayed_by, route.delaying)]
        return Sent(to, JointTicket(tickets) if tickets else None, is_complete)

    def _note(self, queue: AnyQueue, run: Sequence[Stored], reason: Reason, attempts: int, now_ms: int) -> list[Ticket]:
        """What the dead-letter exchange does not take has to be given up even where the ledger cannot be written, or a
        full disk would never get emptier: so only the tickets of dead letters may carry a refusal."""
        row = Row(reason.value, queue.namespace, queue.name, queue.id.bytes, attempts, now_ms)
        noted = self._ledger.append_row(encode_row(row, run))
        self._failures.count(reason, len(run))
        return [] if noted is None else [Ticket(noted.number)]

    # -- to the queues that the dead-letter exchange leads to

    def _dead_exchange(self, queue: AnyQueue) -> Exchange | None:
        name = queue.settings.dead_letter_exchange
        return None if name is None else self._exchanges.find(queue.namespace, name)

    def _route(self, exchange: Exchange, stored: Stored, death: Death) -> _Route:
        letter = self._letter(stored, death)
        facts = self._publishing.facts_of(letter.content.header)
        headers = MessageHeaders(letter.headers, letter.content.header)
        delaying: list[Exchange] = []
        names = self._routing.route(exchange, letter.keys, lambda: headers, delaying if facts.delay_ms else None)
        return _Route(letter, facts, [name for name in names if not goes_in_circle(letter.headers, name)], delaying)

    def _letter(self, stored: Stored, death: Death) -> DeadLetter:
        """As `bury`, but for the body: many in a row say the same, and die in the same second."""
        said, shown = _said_of(stored), death._replace(time_ms=death.time_ms // 1000)
        if self._last is None or self._last[0] != said or self._last[1] != shown:
            self._last = said, shown, bury(stored.content, death)
        letter = self._last[2]
        return letter._replace(content=letter.content._replace(published_ms=death.time_ms))

    def _send(self, namespace: str, route: _Route, run: Sequence[Stored], reason: Reason) -> list[Ticket]:
        contents, facts = route.contents(run), route.facts
        flags = RETURNED if reason in (Reason.REJECTED, Reason.DELIVERY_LIMIT) else 0
        tickets = [
            self._publishing.hold(exchange, content, facts.delay_ms, facts.is_transient)
            for exchange in route.delaying
            for content in contents
        ]
        if not route.names:
            return tickets
        together = None
        if len(run) > 1 and not flags:
            together = self._publishing.deliver_all(namespace, route.names, contents, facts)
        if together is not None:
            return tickets + together.tickets
        for content in contents:
            tickets += self._deliver(namespace, route.names, content, facts, flags).tickets
        return tickets

    def _deliver(
        self, namespace: str, names: Sequence[str], content: Content, facts: Facts, flags: int = 0
    ) -> Published:
        publication = Publication(seal(content), facts.is_transient, None, facts.priority, flags)
        return self._publishing.deliver(namespace, names, publication)

    # -- a source of the ledger

    def owns(self, entry: FailureEntry) -> bool:
        """Every entry that no other layout owns: the failed messages of queues carry no mark."""
        return True

    def find(self, entry: FailureEntry) -> FailureEntry:
        return entry

    def send_again(self, entry: FailureEntry) -> Ticket:
        """Send the message to the queue that it failed in. UnknownQueue: the queue was deleted."""
        namespace, name = entry.origin.topic
        content = from_record(entry.record)._replace(published_ms=self._timeline.now_ms())  # or it might expire at once
        published = self._deliver(namespace, (name,), content, self._publishing.facts_of(content.header))
        if not published.is_routed:
            raise UnknownQueue(name, namespace)
        return JointTicket(published.tickets) if published.tickets else _NOTHING_KEPT


def _said_of(stored: Stored) -> tuple[bytes, ...]:
    return stored[3][:3]


def _delayed_by(exchange: Exchange) -> str:
    """Stands among the names of queues, of which none has such a one."""
    return f"\0{exchange.name}"
