"""External brokers that have registered with the name server, and their topics. Soft state: a broker is removed after
its heartbeat time-out and when its connection closes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from trimq.clock import Timeline, Timer
from trimq.core.commit_log.topics import WRITABLE
from trimq.protocols.contract import SessionControl
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.registrations import DataVersion, QueueData, Registration

HEARTBEAT_TIMEOUT_MS = 120_000
_SCAN_INTERVAL_MS = 1_000
MASTER = 0


class RegisteredBroker(NamedTuple):
    """Identity of a broker. Several brokers may share a name, each with its own id; the master has 0."""

    cluster: str
    name: str
    address: str
    id: int


@dataclass(slots=True)
class _LiveBroker:
    registrant: RegisteredBroker
    outlet: SessionControl
    ha_address: str
    timeout_ms: int
    version: DataVersion
    seen_ms: int


@dataclass(slots=True)
class BrokerData:
    """All brokers of one name, by id."""

    cluster: str
    name: str
    acts_as_master: bool = False
    addresses: dict[int, str] = field(default_factory=dict)


class BrokerRegistry:
    def __init__(self, liveness: Timeline, max_brokers: int, max_topics: int) -> None:
        self._liveness = liveness
        self._max_brokers = max_brokers
        self._max_topics = max_topics
        self._brokers: dict[str, BrokerData] = {}
        self._live: dict[tuple[str, str], _LiveBroker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._timer: Timer | None = None

    # -- queries

    def brokers(self) -> Iterator[BrokerData]:
        return iter(self._brokers.values())

    def broker(self, name: str) -> BrokerData | None:
        return self._brokers.get(name)

    def topics(self) -> Iterator[tuple[str, dict[str, QueueData]]]:
        return iter(self._topics.items())

    def topic(self, name: str) -> dict[str, QueueData]:
        """Queues of the topic by broker name."""
        return self._topics.get(name, {})

    def version(self, cluster: str, address: str) -> DataVersion | None:
        found = self._live.get((cluster, address))
        return None if found is None else found.version

    def master(self, name: str) -> tuple[str, str] | None:
        """Address of the master and its HA address for slaves."""
        known = self._brokers.get(name)
        address = None if known is None else known.addresses.get(MASTER)
        found = None if known is None or address is None else self._live.get((known.cluster, address))
        return None if found is None else (found.registrant.address, found.ha_address)

    # -- registration

    def register(
        self,
        registrant: RegisteredBroker,
        outlet: SessionControl,
        ha_address: str,
        registration: Registration,
        timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
        acts_as_master: bool | None = None,
    ) -> None:
        """Handles the first or a repeated registration of a broker. `acts_as_master`: whether the slave with the lowest
        id takes the place of a lost master, read-only. None: an old version, whose slaves register no topics."""
        known = self._brokers.get(registrant.name)
        live = self._live.get((registrant.cluster, registrant.address))
        self._require_room(live is None, registration)
        if len(registration.topics) == 1 and (known is None or registrant.id not in known.addresses):
            raise RemotingRefusal(
                ResponseCode.SYSTEM_ERROR, "register broker failed: single-topic registration of an unknown broker"
            )
        if known is None:
            known = self._brokers[registrant.name] = BrokerData(registrant.cluster, registrant.name)
        known.acts_as_master = bool(acts_as_master)
        for number in [number for number, address in known.addresses.items() if address == registrant.address]:
            del known.addresses[number]  # its id changes when it becomes the master
        known.addresses[registrant.id] = registrant.address
        is_news = live is None or live.version != registration.version or live.registrant.id != registrant.id
        is_first_slave = acts_as_master is not None and registrant.id == min(known.addresses)
        if is_news and (registrant.id == MASTER or is_first_slave):
            self._update_topics(registrant, registration, registrant.id == MASTER or not acts_as_master)
        now_ms = self._liveness.now_ms()
        entry = _LiveBroker(registrant, outlet, ha_address, timeout_ms, registration.version, now_ms)
        self._live[registrant.cluster, registrant.address] = entry
        if self._timer is None:
            self._timer = self._liveness.call_at(now_ms + _SCAN_INTERVAL_MS, self._drop_timed_out)

    def _require_room(self, is_new: bool, registration: Registration) -> None:
        if is_new and len(self._live) >= self._max_brokers:
            raise RemotingRefusal(
                ResponseCode.SYSTEM_BUSY,
                f"{self._max_brokers} brokers are registered already, see rocketmq.registered_brokers",
            )
        if len(self._topics.keys() | registration.topics.keys()) > self._max_topics:
            raise RemotingRefusal(
                ResponseCode.SYSTEM_BUSY,
                f"more than {self._max_topics} registered topics, see rocketmq.registered_topics",
            )

    def _update_topics(self, registrant: RegisteredBroker, registration: Registration, is_writable: bool) -> None:
        """Adds or changes topics. Topics missing from the registration are kept: consumers may still read them."""
        for name, queues in registration.topics.items():
            if not is_writable:
                queues = queues._replace(permissions=queues.permissions & ~WRITABLE)
            self._topics.setdefault(name, {})[registrant.name] = queues

    def put_topic(self, topic: str, registration: dict[str, QueueData]) -> None:
        """Registers a topic for the given brokers; without brokers, does nothing."""
        self._require_room(False, Registration({topic: QueueData(0, 0, 0)}, DataVersion()))
        if registration:
            self._topics.setdefault(topic, {}).update(registration)

    def record_heartbeat(self, cluster: str, address: str) -> None:
        found = self._live.get((cluster, address))
        if found is not None:
            found.seen_ms = self._liveness.now_ms()

    # -- changes

    def set_writable(self, broker: str, is_writable: bool) -> int:
        """Changes the write permission of all topics of a broker. Returns the number of topics."""
        count = 0
        for known in self._topics.values():
            queues = known.get(broker)
            if queues is not None:
                bits = queues.permissions | WRITABLE if is_writable else queues.permissions & ~WRITABLE
                known[broker] = queues._replace(permissions=bits)
                count += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Deletes a topic from one cluster; None: from all."""
        known = self._topics.get(topic, {})
        for name in list(known):
            broker = self._brokers.get(name)
            if cluster is None or (broker is not None and broker.cluster == cluster):
                del known[name]
        if not known:
            self._topics.pop(topic, None)

    # -- removal

    def unregister(self, cluster: str, address: str) -> None:
        entry = self._live.pop((cluster, address), None)
        if entry is None:
            return
        registrant = entry.registrant
        known = self._brokers.get(registrant.name)
        if known is None or known.addresses.get(registrant.id) != registrant.address:
            return
        del known.addresses[registrant.id]
        if known.addresses:
            if known.acts_as_master and MASTER not in known.addresses:
                self.set_writable(registrant.name, False)  # the slave that takes its place can only be read
            return
        del self._brokers[registrant.name]
        for topic in [topic for topic, brokers in self._topics.items() if registrant.name in brokers]:
            del self._topics[topic][registrant.name]
            if not self._topics[topic]:
                del self._topics[topic]

    def connection_closed(self, outlet: SessionControl) -> None:
        for key in [key for key, entry in self._live.items() if entry.outlet is outlet]:
            self.unregister(*key)

    def _drop_timed_out(self) -> None:
        self._timer = None
        now_ms = self._liveness.now_ms()
        for key, entry in list(self._live.items()):
            if now_ms - entry.seen_ms > entry.timeout_ms:
                self.unregister(*key)
        if self._live:
            self._timer = self._liveness.call_at(now_ms + _SCAN_INTERVAL_MS, self._drop_timed_out)
