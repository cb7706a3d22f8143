"""Who this broker is to RocketMQ clients: its name, its cluster, and the address that they are told."""

from __future__ import annotations

from trimq.config import Settings
from trimq.core.metadata.cluster import Cluster
from trimq.formats.rocketmq_unit.hosts import pack_host

NAME_SERVER_PROTOCOL = "rocketmq"
BROKER_PROTOCOL = "rocketmq_broker"
GRPC_PROTOCOL = "rocketmq_grpc"

_NOBODY = pack_host("127.0.0.1", 0)


class Identity:
    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.cluster_name = settings.rocketmq.cluster_name
        self.broker_name = settings.rocketmq.broker_name
        self._cluster = cluster
        self._store_host = b""

    @property
    def address(self) -> str:
        """Where clients send to and pull from; empty while nothing listens there."""
        found = self._cluster.me.addresses.get(BROKER_PROTOCOL)
        return "" if found is None else f"{found.host}:{found.port}"

    @property
    def name_server_port(self) -> int:
        """Where the name server listens; 0 while it does not."""
        found = self._cluster.me.addresses.get(NAME_SERVER_PROTOCOL)
        return 0 if found is None else found.port

    @property
    def grpc_address(self) -> tuple[str, int]:
        """Where clients that speak gRPC find it; nowhere while nothing listens there."""
        found = self._cluster.me.addresses.get(GRPC_PROTOCOL)
        return ("", 0) if found is None else (found.host, found.port)

    @property
    def store_host(self) -> bytes:
        """The address as messages carry it. One that is a name, and no number, cannot be carried."""
        if not self._store_host:
            found = self._cluster.me.addresses.get(BROKER_PROTOCOL)
            if found is None:
                return _NOBODY
            try:
                self._store_host = pack_host(found.host, found.port)
            except ValueError:
                self._store_host = pack_host("127.0.0.1", found.port)
        return self._store_host
