"""gRPC clients that have sent their settings, by client id. In memory only: a client is forgotten when it terminates,
or when it is silent for `HEARTBEAT_TIMEOUT_MS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimq.clock import Timeline, Timer
from trimq.protocols.contract import Parts, Sink
from trimq.protocols.rocketmq.clients.registry import HEARTBEAT_TIMEOUT_MS, Client, ClientRegistry
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal
from trimq.protocols.rocketmq.grpc.wire.enums import Code

_SCAN_INTERVAL_MS = 10_000


class TelemetryOutlet:
    """Outlet to a client over its current telemetry stream. Drops messages while no stream is open; the broker repeats
    all of them later."""

    def __init__(self) -> None:
        self.sink: Sink | None = None

    def send(self, parts: Parts) -> None:
        if parts and self.sink is not None:
            self.sink(parts)

    @property
    def is_congested(self) -> bool:
        """Also True while no stream is open, since a request would be lost."""
        return self.sink is None or self.sink.is_congested

    def throttle_reading(self, milliseconds: int) -> None:
        """Does nothing: gRPC has flow control of its own."""

    def hold_reading(self) -> None: ...

    def release_reading(self) -> None: ...

    def disable_idle_timeout(self) -> None: ...

    def close(self) -> None:
        self.sink = None

    def abort(self, reason: str = "") -> None:
        self.sink = None


class GrpcClient:
    """`settings` are those that the broker sent to the client."""

    __slots__ = ("client", "outlet", "settings")

    def __init__(self, client: Client, outlet: TelemetryOutlet, settings: Any) -> None:
        self.client = client
        self.outlet = outlet
        self.settings = settings


class GrpcClients:
    def __init__(self, liveness: Timeline, clients: ClientRegistry, limit: int) -> None:
        self._liveness = liveness
        self._clients = clients
        self._limit = limit
        self._by_id: dict[str, GrpcClient] = {}
        self._timer: Timer | None = None
        self._forgotten: list[Callable[[str], None]] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def on_forgotten(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the id of each forgotten client."""
        self._forgotten.append(listener)

    def find(self, client_id: str) -> GrpcClient | None:
        return self._by_id.get(client_id)

    def register(self, client: Client, outlet: TelemetryOutlet, settings: Any) -> GrpcClient:
        """Adds a client, or replaces its settings."""
        if client.id not in self._by_id and len(self._by_id) >= self._limit:
            raise GrpcRefusal(Code.TOO_MANY_REQUESTS, f"limit of {self._limit} gRPC clients is reached")
        known = self._by_id[client.id] = GrpcClient(client, outlet, settings)
        self.touch(known)
        return known

    def touch(self, known: GrpcClient) -> None:
        known.client.seen_ms = self._liveness.now_ms()
        if self._timer is None:
            self._timer = self._liveness.call_at(known.client.seen_ms + _SCAN_INTERVAL_MS, self._drop_silent)

    def forget(self, client_id: str) -> None:
        known = self._by_id.pop(client_id, None)
        if known is not None:
            self._clients.connection_closed(known.outlet)
            for listener in self._forgotten:
                listener(client_id)

    def _drop_silent(self) -> None:
        self._timer = None
        now_ms = self._liveness.now_ms()
        for id, known in list(self._by_id.items()):
            if now_ms - known.client.seen_ms > HEARTBEAT_TIMEOUT_MS:
                self.forget(id)
        if self._by_id:
            self._timer = self._liveness.call_at(now_ms + _SCAN_INTERVAL_MS, self._drop_silent)
