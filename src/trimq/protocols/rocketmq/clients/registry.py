"""Clients that have sent a heartbeat, their producer and consumer groups, and the subscriptions of each group. Soft
state: it ends with the connections."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field

from trimq.clock import Timeline, Timer
from trimq.model import Caller
from trimq.protocols.contract import SessionControl
from trimq.protocols.rocketmq.clients.notifications import REMOTING, Dialect
from trimq.protocols.rocketmq.clients.subscriptions import Subscription

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_MS = 120_000
_SCAN_INTERVAL_MS = 10_000

BROADCASTING = "BROADCASTING"


@dataclass(slots=True, eq=False)
class Client:
    """One connection of one client."""

    id: str
    address: str
    language: str
    version: int
    outlet: SessionControl
    caller: Caller
    seen_ms: int = 0
    dialect: Dialect = REMOTING
    release: str = ""
    """Version text of a client without a version number."""

    @property
    def version_text(self) -> str:
        return self.release or str(self.version)


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    name: str
    consume_type: str | None = None
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"
    is_told_of_members: bool = True
    members: dict[SessionControl, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    member_subscriptions: dict[SessionControl, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """Subscription reported by each member. All should be equal; the latest one applies to the whole group."""

    @property
    def is_inconsistent(self) -> bool:
        return len(set(self.member_subscriptions.values())) > 1

    def record_subscriptions(self, client: Client, subscriptions: Iterable[Subscription]) -> None:
        """Records the subscription of a member. Logs a subscription that differs from the others, once per change."""
        own_subscriptions = frozenset((each.topic, each.expression) for each in subscriptions)
        if self.member_subscriptions.get(client.outlet) == own_subscriptions:
            return
        self.member_subscriptions[client.outlet] = own_subscriptions
        if self.is_inconsistent:
            odd = subscription_texts(
                {pair for each in self.member_subscriptions.values() for pair in each ^ own_subscriptions}
            )
            log.warning(
                "group %s: member %s subscribes to %s, unlike other members (differences: %s)",
                self.name[:200],
                client.id[:200],
                ", ".join(subscription_texts(own_subscriptions))[:500],
                ", ".join(odd)[:500],
            )

    @property
    def client_ids(self) -> list[str]:
        return [member.id for member in self.members.values()]

    def subscribe(self, subscriptions: Iterable[Subscription]) -> bool:
        """Applies the latest subscription of any member. Returns whether the set of topics changed."""
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
class _ConnectionGroups:
    """Groups in which one connection consumes, and those in which it produces, each with its client id there."""

    consumed: dict[str, None] = field(default_factory=dict)
    produced: dict[str, str] = field(default_factory=dict)
    ids: Counter[str] = field(default_factory=Counter)


def subscription_texts(own_subscriptions: Iterable[tuple[str, str]]) -> list[str]:
    return sorted(f"{topic} {expression}" for topic, expression in own_subscriptions)


class ClientRegistry:
    def __init__(self, liveness: Timeline, next_opaque: Callable[[], int]) -> None:
        self._liveness = liveness
        self.next_opaque = next_opaque
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[SessionControl, Client]] = {}
        self._producers_by_id: dict[str, Client] = {}
        self._connections: dict[SessionControl, _ConnectionGroups] = {}
        self._fingerprints: dict[SessionControl, int] = {}
        self._timer: Timer | None = None

    def group(self, name: str) -> ConsumerGroup | None:
        return self._consumers.get(name)

    def groups(self) -> Iterator[ConsumerGroup]:
        return iter(self._consumers.values())

    def producers(self, group: str) -> list[Client]:
        return list(self._producers.get(group, {}).values())

    def producer(self, id: str) -> Client | None:
        """Returns the producer with this id, if it uses remoting and so can be sent commands."""
        found = self._producers_by_id.get(id)
        return found if found is not None and found.dialect is REMOTING else None

    def heartbeat_age_ms(self, client: Client) -> int:
        return self._liveness.now_ms() - client.seen_ms

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    def groups_with(self, outlet: SessionControl, produced: Set[str], consumed: Set[str]) -> int:
        """Number of groups of the connection including these; a group in which it both produces and consumes counts
        twice."""
        known = self._connections.get(outlet) or _ConnectionGroups()
        return len(known.produced.keys() | produced) + len(known.consumed.keys() | consumed)

    def note_fingerprint(self, outlet: SessionControl, fingerprint: int, is_without_topics: bool) -> bool:
        """Whether the client must send its full subscription: it sent no fingerprint, or only a fingerprint that
        differs from the known one."""
        if not fingerprint:
            return True
        if is_without_topics:
            return self._fingerprints.get(outlet) != fingerprint
        self._fingerprints[outlet] = fingerprint
        return False

    # -- heartbeats

    def add_producer(self, client: Client, group: str) -> None:
        self._touch(client)
        self._forget_id(client.outlet, group)
        present = self._connections.setdefault(client.outlet, _ConnectionGroups())
        present.produced[group] = client.id
        present.ids[client.id] += 1
        self._producers.setdefault(group, {})[client.outlet] = client
        self._producers_by_id[client.id] = client

    def add_consumer(self, client: Client, group: ConsumerGroup, subscriptions: Iterable[Subscription] | None) -> bool:
        """Handles the heartbeat of a member. `group` has the group's settings as reported by this member;
        `subscriptions` is None if it reported none. Returns whether the topics changed."""
        self._touch(client)
        known = self._consumers.setdefault(group.name, group)
        known.consume_type, known.message_model = group.consume_type, group.message_model
        known.consume_from, known.is_told_of_members = group.consume_from, group.is_told_of_members
        is_new = client.outlet not in known.members
        self._connections.setdefault(client.outlet, _ConnectionGroups()).consumed[group.name] = None
        known.members[client.outlet] = client
        given = None if subscriptions is None else list(subscriptions)
        if given is not None:
            known.record_subscriptions(client, given)
        is_changed = given is not None and known.subscribe(given)
        if is_new or is_changed:
            self._notify_members(known)
        return is_changed

    def _touch(self, client: Client) -> None:
        client.seen_ms = self._liveness.now_ms()
        if self._timer is None:
            self._timer = self._liveness.call_at(client.seen_ms + _SCAN_INTERVAL_MS, self._drop_silent)

    # -- removal

    def remove_consumer(self, outlet: SessionControl, group: str) -> None:
        """Removes the connection from one group as a consumer."""
        known = self._consumers.get(group)
        if known is None or known.members.pop(outlet, None) is None:
            return
        del self._connections[outlet].consumed[group]
        self._forget_if_idle(outlet)
        known.member_subscriptions.pop(outlet, None)
        if known.members:
            self._notify_members(known)
        else:
            del self._consumers[group]

    def remove_producer(self, outlet: SessionControl, group: str) -> None:
        known = self._producers.get(group, {})
        if known.pop(outlet, None) is None:
            return
        if not known:
            del self._producers[group]
        self._forget_id(outlet, group)
        self._forget_if_idle(outlet)

    def _forget_id(self, outlet: SessionControl, group: str) -> None:
        """Removes the connection's client id in this group. An id with no group left is no longer found."""
        present = self._connections.get(outlet)
        id = None if present is None else present.produced.pop(group, None)
        if present is None or id is None:
            return
        present.ids[id] -= 1
        if present.ids[id] == 0:
            del present.ids[id]
            found = self._producers_by_id.get(id)
            if found is not None and found.outlet is outlet:
                del self._producers_by_id[id]

    def _forget_if_idle(self, outlet: SessionControl) -> None:
        present = self._connections[outlet]
        if not present.consumed and not present.produced:
            del self._connections[outlet]

    def connection_closed(self, outlet: SessionControl) -> None:
        """Removes a connection that was closed or has sent no heartbeat for too long."""
        self._fingerprints.pop(outlet, None)
        present = self._connections.get(outlet)
        if present is None:
            return
        for group in list(present.consumed):
            self.remove_consumer(outlet, group)
        for group in list(present.produced):
            self.remove_producer(outlet, group)

    def _drop_silent(self) -> None:
        self._timer = None
        now_ms = self._liveness.now_ms()
        known = {client for group in self._consumers.values() for client in group.members.values()}
        known |= {client for producers in self._producers.values() for client in producers.values()}
        for client in known:
            if now_ms - client.seen_ms > HEARTBEAT_TIMEOUT_MS:
                self.connection_closed(client.outlet)
        if known:
            self._timer = self._liveness.call_at(now_ms + _SCAN_INTERVAL_MS, self._drop_silent)

    # -- notifications

    def _notify_members(self, group: ConsumerGroup) -> None:
        """Notifies the members, which divide the queues among themselves, at once of any change."""
        if group.message_model == BROADCASTING or not group.is_told_of_members:
            return
        for member in group.members.values():
            member.outlet.send(member.dialect.members_changed(group.name, self.next_opaque()))
