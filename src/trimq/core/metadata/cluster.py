"""Nodes of the cluster, and the owner and leader epoch of each stream. With one node, the owner is always this node.
Knows addresses by protocol name, never the wire format in which clients receive them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trimq.core.metadata.durable_map import DurableMap
from trimq.errors import NotOwner, StaleEpoch, UnknownEpoch
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Ticket

_ID_KEY = "cluster id"
_EPOCH_KEY = "leader epoch"

ClusterFact = str | int


class Address(NamedTuple):
    host: str
    port: int


@dataclass(slots=True, frozen=True)
class Node:
    """`addresses`: where clients reach this node, by protocol."""

    id: int
    addresses: Mapping[str, Address] = field(default_factory=dict)
    rack: str | None = None


@dataclass(slots=True, frozen=True)
class NodeChanged:
    """A node joined or changed its addresses."""

    node: Node


@dataclass(slots=True, frozen=True)
class OwnerChanged:
    stream: StreamId
    owner: int
    leader_epoch: int


Change = NodeChanged | OwnerChanged
Listener = Callable[[Change], None]


class _Placement(NamedTuple):
    owner: int
    leader_epoch: int


class Cluster:
    """`id` and the leader epoch are valid after `start`."""

    def __init__(self, table: DurableMap[ClusterFact], me: Node, random_bytes: Callable[[int], bytes]) -> None:
        self._table = table
        self._random_bytes = random_bytes
        self._nodes = {me.id: me}
        self._placements: dict[StreamId, _Placement] = {}  # only streams set by `place`
        self._listeners: list[Listener] = []
        self._my_epoch = -1
        self.my_id = me.id
        self.id = ""

    def start(self) -> Ticket:
        """Increments the leader epoch, as every start does. Nothing may be appended before the ticket's pass is
        durable, or a crash could give two runs the same epoch."""
        known_id = self._table.get(_ID_KEY)
        if isinstance(known_id, str):
            self.id = known_id
        else:
            self.id = new_cluster_id(self._random_bytes)
            self._table.put(_ID_KEY, self.id)
        last_epoch = self._table.get(_EPOCH_KEY)
        self._my_epoch = last_epoch + 1 if isinstance(last_epoch, int) else 0
        return self._table.put(_EPOCH_KEY, self._my_epoch)

    # -- nodes

    @property
    def me(self) -> Node:
        return self._nodes[self.my_id]

    @property
    def controller(self) -> Node:
        """Node that accepts changes of definitions."""
        return self.me

    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    def node(self, id: int) -> Node | None:
        return self._nodes.get(id)

    def coordinator(self, name: str) -> Node:
        """Coordinator of the group or transaction with this name."""
        return self.me

    def announce(self, protocol: str, address: Address) -> None:
        """Sets the address at which clients of `protocol` reach this node, once its listener is bound."""
        addresses = {**self.me.addresses, protocol: address}
        self.join(replace(self.me, addresses=addresses))

    def join(self, node: Node) -> None:
        """Adds a node or updates its addresses."""
        self._nodes[node.id] = node
        self._notify_listeners(NodeChanged(node))

    # -- streams

    def owner(self, stream: StreamId) -> Node:
        placement = self._placements.get(stream)
        return self.me if placement is None else self._nodes[placement.owner]

    def leader_epoch(self, stream: StreamId) -> int:
        """Leader epoch of the current owner. Only grows."""
        placement = self._placements.get(stream) if self._placements else None
        return self._my_epoch if placement is None else placement.leader_epoch

    def require_owner(self, stream: StreamId) -> None:
        """Raises `NotOwner` if another node owns the stream."""
        if self._placements:
            placement = self._placements.get(stream)
            if placement is not None and placement.owner != self.my_id:
                raise NotOwner(placement.owner)

    def require_epoch(self, stream: StreamId, asked: int) -> None:
        """Raises `StaleEpoch` or `UnknownEpoch` unless `asked` is the current leader epoch of the stream."""
        current = self.leader_epoch(stream)
        if asked < current:
            raise StaleEpoch(asked, current)
        if asked > current:
            raise UnknownEpoch(asked, current)

    def place(self, stream: StreamId, owner: int, leader_epoch: int) -> None:
        """Gives a stream another owner, which must be a known node. Never called with a single node."""
        if owner not in self._nodes:
            raise ValueError(f"node {owner} is not in the cluster")
        if leader_epoch <= self.leader_epoch(stream):
            raise ValueError(f"leader epoch {leader_epoch} is not above the current {self.leader_epoch(stream)}")
        self._placements[stream] = _Placement(owner, leader_epoch)
        self._notify_listeners(OwnerChanged(stream, owner, leader_epoch))

    # -- notifications

    def watch(self, listener: Listener) -> None:
        """Calls `listener` after each change."""
        self._listeners.append(listener)

    def _notify_listeners(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)


def new_cluster_id(random_bytes: Callable[[int], bytes]) -> str:
    """Returns a random UUID of version 4 in 22 characters, as Kafka writes it. The first character is never '-', which
    command lines would take for a flag."""
    raw = bytearray(random_bytes(16))
    raw[0] &= 0x7F
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return base64.urlsafe_b64encode(raw)[:22].decode("ascii")
