"""Identity of this broker for RocketMQ clients: broker name, cluster name, advertised addresses."""

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
        """Advertised address of the broker; empty while it does not listen."""
        found = self._cluster.me.addresses.get(BROKER_PROTOCOL)
        return "" if found is None else f"{found.host}:{found.port}"

    @property
    def name_server_port(self) -> int:
        """Port of the name server; 0 while it does not listen."""
        found = self._cluster.me.addresses.get(NAME_SERVER_PROTOCOL)
        return 0 if found is None else found.port

    @property
    def grpc_address(self) -> tuple[str, int]:
        """Advertised gRPC address; ("", 0) while it does not listen."""
        found = self._cluster.me.addresses.get(GRPC_PROTOCOL)
        return ("", 0) if found is None else (found.host, found.port)

    @property
    def store_host(self) -> bytes:
        """Advertised address in the binary form that messages carry. A host name has no such form; 127.0.0.1 takes its
        place."""
        if not self._store_host:
            found = self._cluster.me.addresses.get(BROKER_PROTOCOL)
            if found is None:
                return _NOBODY
            try:
                self._store_host = pack_host(found.host, found.port)
            except ValueError:
                self._store_host = pack_host("127.0.0.1", found.port)
        return self._store_host
