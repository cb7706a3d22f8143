"""Who is here: the clients that have sent a heartbeat, the groups that they produce and consume in, and what each group
subscribes to. Soft state: it is gone with the connections."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field

from trimq.clock import Timeline, Timer
from trimq.protocols.contract import Outlet
from trimq.protocols.rocketmq.clients.notifications import REMOTING, Dialect
from trimq.protocols.rocketmq.clients.subscriptions import Subscription

log = logging.getLogger(__name__)

SILENCE_MS = 120_000
_LOOK_MS = 10_000

BROADCASTING = "BROADCASTING"


@dataclass(slots=True, eq=False)
class Client:
    """One connection of one client."""

    id: str
    address: str
    language: str
    version: int
    outlet: Outlet
    seen_ms: int = 0
    dialect: Dialect = REMOTING
    release: str = ""
    """Its version in words, of one that has no number for it."""

    @property
    def told_version(self) -> str:
        return self.release or str(self.version)


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    name: str
    consume_type: str | None = None
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"
    is_told_of_members: bool = True
    members: dict[Outlet, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    said: dict[Outlet, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """What each member subscribes to by its own word. All should say the same: the latest of them counts for all."""

    @property
    def is_divided(self) -> bool:
        return len(set(self.said.values())) > 1

    def note_word(self, client: Client, subscriptions: Iterable[Subscription]) -> None:
        """A member that says something else than the others is told of in the log, once for each word."""
        word = frozenset((each.topic, each.expression) for each in subscriptions)
        if self.said.get(client.outlet) == word:
            return
        self.said[client.outlet] = word
        if self.is_divided:
            odd = in_words({pair for each in self.said.values() for pair in each ^ word})
            log.warning(
                "group %s: member %s subscribes to %s, not all others do: %s",
                self.name[:200],
                client.id[:200],
                ", ".join(in_words(word))[:500],
                ", ".join(odd)[:500],
            )

    @property
    def client_ids(self) -> list[str]:
        return [member.id for member in self.members.values()]

    def subscribe(self, subscriptions: Iterable[Subscription]) -> bool:
        """The latest word of any member counts. Whether the set of topics has changed."""
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        before = set(self.subscriptions)
        for topic, subscription in wanted.items():
            known = self.subscriptions.get(topic)
            if known is None or subscription.version > known.version:
                self.subscriptions[topic] = subscription
        for topic in before - set(wanted):
            del self.subscriptions[topic]
        return before != set(self.subscriptions)


@dataclass(slots=True, eq=False)
class _Presence:
    """What one connection has said: the groups that it consumes in, and those that it produces in, each under an id."""

    consumed: dict[str, None] = field(default_factory=dict)
    produced: dict[str, str] = field(default_factory=dict)
    ids: Counter[str] = field(default_factory=Counter)


def in_words(word: Iterable[tuple[str, str]]) -> list[str]:
    return sorted(f"{topic} {expression}" for topic, expression in word)


class Clients:
    def __init__(self, liveness: Timeline, next_opaque: Callable[[], int]) -> None:
        self._liveness = liveness
        self.next_opaque = next_opaque
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Outlet, Client]] = {}
        self._producers_by_id: dict[str, Client] = {}
        self._present: dict[Outlet, _Presence] = {}
        self._fingerprints: dict[Outlet, int] = {}
        self._timer: Timer | None = None

    def group(self, name: str) -> ConsumerGroup | None:
        return self._consumers.get(name)

    def groups(self) -> Iterator[ConsumerGroup]:
        return iter(self._consumers.values())

    def producers(self, group: str) -> list[Client]:
        return list(self._producers.get(group, {}).values())

    def producer(self, id: str) -> Client | None:
        """The client of this id that produces, if it can be sent commands."""
        found = self._producers_by_id.get(id)
        return found if found is not None and found.dialect is REMOTING else None

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    def groups_with(self, outlet: Outlet, produced: Set[str], consumed: Set[str]) -> int:
        """In how many groups a connection is once it is in these, too; one in which it does both counts twice."""
        known = self._present.get(outlet) or _Presence()
        return len(known.produced.keys() | produced) + len(known.consumed.keys() | consumed)

    def note_fingerprint(self, outlet: Outlet, fingerprint: int, is_without_topics: bool) -> bool:
        """Whether a client should send all that it subscribes to: it has no fingerprint, or sends only that and it is
        not the one that is known."""
        if not fingerprint:
            return True
        if is_without_topics:
            return self._fingerprints.get(outlet) != fingerprint
        self._fingerprints[outlet] = fingerprint
        return False

    # -- coming

    def produce(self, client: Client, group: str) -> None:
        self._seen(client)
        self._forget_id(client.outlet, group)
        present = self._present.setdefault(client.outlet, _Presence())
        present.produced[group] = client.id
        present.ids[client.id] += 1
        self._producers.setdefault(group, {})[client.outlet] = client
        self._producers_by_id[client.id] = client

    def consume(self, client: Client, group: ConsumerGroup, subscriptions: Iterable[Subscription] | None) -> bool:
        """A heartbeat of a member; `group` carries what it says of the group, `subscriptions` is None if it says
        nothing of them. Whether the topics have changed."""
        self._seen(client)
        known = self._consumers.setdefault(group.name, group)
        known.consume_type, known.message_model = group.consume_type, group.message_model
        known.consume_from, known.is_told_of_members = group.consume_from, group.is_told_of_members
        is_new = client.outlet not in known.members
        self._present.setdefault(client.outlet, _Presence()).consumed[group.name] = None
        known.members[client.outlet] = client
        told = None if subscriptions is None else list(subscriptions)
        if told is not None:
            known.note_word(client, told)
        is_changed = told is not None and known.subscribe(told)
        if is_new or is_changed:
            self._tell(known)
        return is_changed

    def _seen(self, client: Client) -> None:
        client.seen_ms = self._liveness.now_ms()
        if self._timer is None:
            self._timer = self._liveness.call_at(client.seen_ms + _LOOK_MS, self._drop_silent)

    # -- going

    def leave(self, outlet: Outlet, group: str) -> None:
        """One group, as a consumer."""
        known = self._consumers.get(group)
        if known is None or known.members.pop(outlet, None) is None:
            return
        del self._present[outlet].consumed[group]
        self._forget_if_idle(outlet)
        known.said.pop(outlet, None)
        if known.members:
            self._tell(known)
        else:
            del self._consumers[group]

    def leave_producers(self, outlet: Outlet, group: str) -> None:
        known = self._producers.get(group, {})
        if known.pop(outlet, None) is None:
            return
        if not known:
            del self._producers[group]
        self._forget_id(outlet, group)
        self._forget_if_idle(outlet)

    def _forget_id(self, outlet: Outlet, group: str) -> None:
        """The connection is not in the group under the id that it had there. Nobody is found by an id that has no
        group left."""
        present = self._present.get(outlet)
        id = None if present is None else present.produced.pop(group, None)
        if present is None or id is None:
            return
        present.ids[id] -= 1
        if present.ids[id] == 0:
            del present.ids[id]
            found = self._producers_by_id.get(id)
            if found is not None and found.outlet is outlet:
                del self._producers_by_id[id]

    def _forget_if_idle(self, outlet: Outlet) -> None:
        present = self._present[outlet]
        if not present.consumed and not present.produced:
            del self._present[outlet]

    def gone(self, outlet: Outlet) -> None:
        """The connection is gone, or nobody has heard of it for long."""
        self._fingerprints.pop(outlet, None)
        present = self._present.get(outlet)
        if present is None:
            return
        for group in list(present.consumed):
            self.leave(outlet, group)
        for group in list(present.produced):
            self.leave_producers(outlet, group)

    def _drop_silent(self) -> None:
        self._timer = None
        now_ms = self._liveness.now_ms()
        known = {client for group in self._consumers.values() for client in group.members.values()}
        known |= {client for producers in self._producers.values() for client in producers.values()}
        for client in known:
            if now_ms - client.seen_ms > SILENCE_MS:
                self.gone(client.outlet)
        if known:
            self._timer = self._liveness.call_at(now_ms + _LOOK_MS, self._drop_silent)

    # -- telling

    def _tell(self, group: ConsumerGroup) -> None:
        """Members divide the queues among themselves: each hears at once that there are others now."""
        if group.message_model == BROADCASTING or not group.is_told_of_members:
            return
        for member in group.members.values():
            member.outlet.send(member.dialect.members_changed(group.name, self.next_opaque()))
