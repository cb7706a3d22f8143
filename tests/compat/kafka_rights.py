"""The matrix of Kafka rights over a socket, for a genuine Kafka and for TriMQ: which cells differ from the table."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from protocols.kafka.frames import request_frame
from protocols.kafka.rights_matrix import (
    CODES,
    NAMES,
    OPERATIONS,
    ROWS,
    TYPES,
    Need,
    Row,
    build,
    error_codes,
    holds,
    names,
)

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from trimq.protocols.kafka.messages.classic_groups import FindCoordinatorRequest
from trimq.protocols.kafka.messages.group_offsets import OffsetCommitRequest
from trimq.protocols.kafka.messages.handshakes import SaslAuthenticateRequest, SaslHandshakeRequest
from trimq.protocols.kafka.messages.produce import ProduceRequest
from trimq.protocols.kafka.messages.schema import RequestMessage
from trimq.protocols.kafka.messages.topics import CreateTopicsRequest
from trimq.protocols.kafka.messages.transactions import InitProducerIdRequest
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.apis import APIS, response_class

PATIENCE_S = 30
_API_VERSIONS = 18
_ANY = {
    **dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1),
    **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
}
_BATCH = [{"name": "orders", "partition_data": [{"index": 0, "records": bytearray(from_records([Record(b"0")]))}]}]
_OFFSETS = [{"name": "orders", "partitions": [{"committed_offset": 1, "committed_metadata": ""}]}]
_TOPIC = [{"name": "orders", "num_partitions": 1, "replication_factor": 1}]


class Wire:
    """Connections of users to one broker. A password is the user's name with 's."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets.values():
            each.close()

    def ask(self, user: str, message: RequestMessage, version: int | None = None) -> Any:
        if user not in self._sockets:
            self._sockets[user] = socket.create_connection(self._address, PATIENCE_S)
            assert not self._exchange(user, SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
            token = f"\0{user}\0{user}'s".encode()
            assert not self._exchange(user, SaslAuthenticateRequest(auth_bytes=token), 2).error_code
        return self._exchange(user, message, version)

    def _exchange(self, user: str, message: RequestMessage, version: int | None) -> Any:
        api = APIS[message.API_KEY]
        version = api.max_version if version is None else version
        connection = self._sockets[user]
        connection.sendall(request_frame(message, version))
        (size,) = struct.unpack(">i", _receive(connection, 4))
        frame = _receive(connection, size)
        is_flexible = version >= api.flexible_from and api.key != _API_VERSIONS
        return codec.decode(response_class(api.key), version, frame, 5 if is_flexible else 4)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        assert piece, "the broker closed the connection"
        received += piece
    return received


class RightsRun:
    """One run of the matrix. `root` is a super user, `alice` has the rights of each cell."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        for type, key in ((0, "billing"), (1, "tx")):  # this creates the internal topics of a genuine Kafka
            find = build(FindCoordinatorRequest, {"key_type": type, "coordinator_keys": [key]})
            self._until(lambda find=find: not error_codes(wire.ask("root", find)) - {0})
        for what in ("topic", "group"):
            self._restore(what)
        request = build(InitProducerIdRequest, {"transactional_id": "tx", "transaction_timeout_ms": 1000})
        self._until(lambda: not wire.ask("root", request, 1).error_code)

    def differences(self) -> Iterator[str]:
        """Yields one line per cell that differs from the table of rights."""
        for single in (None, *product(OPERATIONS, NAMES)):
            granted = [] if single is None else [single]
            self.set_entries(granted)
            for row in ROWS:
                yield from self._check(row, granted)
        for row in ROWS:
            for way in row.ways:
                if len(way) > 1:
                    self.set_entries(way)
                    yield from self._check(row, list(way))
                    for need in way:
                        self.set_entries(way, [need])
                        if self._refused(row) is None:
                            yield f"{row.id}: allowed in spite of a denial of {need}"

    def set_entries(self, allowed: Iterable[Need], denied: Iterable[Need] = ()) -> None:
        self._wire.ask("root", build(DeleteAclsRequest, {"filters": [_ANY]}))
        creations = [
            {
                "resource_type": TYPES[kind],
                "resource_name": NAMES[kind],
                "resource_pattern_type": 3,
                "principal": "User:alice",
                "host": "*",
                "operation": OPERATIONS[operation],
                "permission_type": permission,
            }
            for needs, permission in ((allowed, 3), (denied, 2))
            for operation, kind in needs
        ]
        results = self._wire.ask("root", build(CreateAclsRequest, {"creations": creations})).results
        assert not any(result.error_code for result in results)
        expected = {(each["resource_type"], each["operation"], each["permission_type"]) for each in creations}
        self._until(lambda: self._entries() == expected)  # a genuine Kafka applies them a moment later

    def _entries(self) -> set[tuple[int, int, int]]:
        found = self._wire.ask("root", build(DescribeAclsRequest, _ANY))
        return {
            (resource.resource_type, acl.operation, acl.permission_type)
            for resource in found.resources
            for acl in resource.acls
        }

    def _check(self, row: Row, granted: list[Need]) -> Iterator[str]:
        is_allowed = any(all(any(holds(one, need) for one in granted) for need in way) for way in row.ways)
        refused = self._refused(row)
        if is_allowed and refused is not None:
            yield f"{row.id}: refused with {sorted(refused)} to {granted}"
        elif not is_allowed and refused is None:
            yield f"{row.id}: allowed to {granted}"
        elif refused is not None and not row.seen:
            missing = [kind for way in row.ways for op, kind in way if not any(holds(g, (op, kind)) for g in granted)]
            if not refused <= ({CODES[kind] for kind in missing} or {CODES["cluster"]}):
                yield f"{row.id}: refused with {sorted(refused)}, not with the code of what is missing, to {granted}"

    def _refused(self, row: Row) -> set[int] | None:
        response = self._wire.ask("alice", row.request(), row.version)
        refused = error_codes(response) & set(CODES.values())
        if row.seen and not refused:
            refused = set() if row.seen in names(response) else {0}
        if refused:
            return refused
        if row.restore:
            self._restore(row.restore)
        return None

    def _restore(self, what: str) -> None:
        ask = self._wire.ask
        if what == "topic":
            create = build(CreateTopicsRequest, {"topics": _TOPIC, "timeout_ms": 5000})
            self._until(lambda: ask("root", create).topics[0].error_code in (0, 36))
            produce = build(ProduceRequest, {"acks": -1, "timeout_ms": 5000, "topic_data": _BATCH})
            self._until(lambda: not error_codes(ask("root", produce, 12)) - {0})
        commit = build(OffsetCommitRequest, {"group_id": "billing", "topics": _OFFSETS})
        self._until(lambda: not error_codes(ask("root", commit, 9)) - {0})

    @staticmethod
    def _until(is_done: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_done():
            assert time.monotonic() < deadline, "the broker did not get ready in time"
            time.sleep(0.01)
