from __future__ import annotations

import base64
import random
from uuid import UUID

import pytest
from doubles import PassRunner

from trimq.core.metadata.cluster import (
    Address,
    Change,
    Cluster,
    ClusterFact,
    Node,
    NodeChanged,
    OwnerChanged,
    new_cluster_id,
)
from trimq.errors import NotOwner, StaleEpoch, UnknownEpoch
from trimq.model import StreamId
from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

STREAM = StreamId(UUID(int=7), 0)
OTHER = StreamId(UUID(int=7), 1)


def started(files: Files, seed: int = 0) -> Cluster:
    runner = PassRunner(files)
    value_type: type[ClusterFact] = ClusterFact  # type: ignore[assignment]
    table = open_table(files, "meta", "cluster", runner.passes, value_type, runner.offload)
    cluster = Cluster(table, Node(1), random.Random(seed).randbytes)
    cluster.start()
    runner.settle()
    return cluster


def test_a_single_node_owns_and_coordinates_everything() -> None:
    cluster = started(MemoryFiles())
    assert cluster.nodes() == [Node(1)]
    assert cluster.owner(STREAM) is cluster.me
    assert cluster.controller is cluster.me
    assert cluster.coordinator("any group") is cluster.me
    assert cluster.node(2) is None
    cluster.require_owner(STREAM)


def test_the_cluster_id_is_stored_and_the_epoch_rises_at_each_start() -> None:
    files = MemoryFiles()
    first = started(files, seed=1)
    second = started(files, seed=2)
    assert second.id == first.id
    assert [first.leader_epoch(STREAM), second.leader_epoch(STREAM)] == [0, 1]
    assert started(files).leader_epoch(OTHER) == 2


def test_two_clusters_have_two_ids() -> None:
    assert started(MemoryFiles(), seed=1).id != started(MemoryFiles(), seed=2).id


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xF8, 0xFB, 0xFF])
def test_a_cluster_id_is_a_uuid_in_22_characters_that_never_looks_like_a_flag(byte: int) -> None:
    id = new_cluster_id(lambda size: bytes([byte]) * size)
    assert len(id) == 22
    assert not id.startswith("-")
    assert UUID(bytes=base64.urlsafe_b64decode(id + "==")).version == 4


def test_addresses_are_announced_once_they_are_known() -> None:
    cluster = started(MemoryFiles())
    feed: list[Change] = []
    cluster.watch(feed.append)
    cluster.announce("kafka", Address("127.0.0.1", 9092))
    cluster.announce("amqp", Address("127.0.0.1", 5672))
    assert cluster.me.addresses == {"kafka": ("127.0.0.1", 9092), "amqp": ("127.0.0.1", 5672)}
    assert feed[-1] == NodeChanged(cluster.me)
    assert len(feed) == 2


def test_a_stream_of_another_node_is_refused_with_its_owner() -> None:
    cluster = started(MemoryFiles())
    feed: list[Change] = []
    cluster.watch(feed.append)
    cluster.join(Node(2))
    cluster.place(STREAM, 2, 5)
    with pytest.raises(NotOwner) as caught:
        cluster.require_owner(STREAM)
    assert caught.value.node == 2
    assert cluster.owner(STREAM) == Node(2)
    assert cluster.leader_epoch(STREAM) == 5
    assert feed == [NodeChanged(Node(2)), OwnerChanged(STREAM, 2, 5)]
    cluster.require_owner(OTHER)
    assert cluster.leader_epoch(OTHER) == 0
    cluster.place(STREAM, 1, 6)
    cluster.require_owner(STREAM)
    assert cluster.leader_epoch(STREAM) == 6


def test_placing_a_stream_needs_a_known_owner_and_a_higher_epoch() -> None:
    cluster = started(MemoryFiles())
    with pytest.raises(ValueError, match="node 2"):
        cluster.place(STREAM, 2, 5)
    with pytest.raises(ValueError, match="epoch 0"):
        cluster.place(STREAM, 1, 0)


def test_a_wrong_leader_epoch_is_refused_as_old_or_unknown() -> None:
    files = MemoryFiles()
    started(files)
    cluster = started(files)
    cluster.require_epoch(STREAM, 1)
    with pytest.raises(StaleEpoch):
        cluster.require_epoch(STREAM, 0)
    with pytest.raises(UnknownEpoch):
        cluster.require_epoch(STREAM, 2)
