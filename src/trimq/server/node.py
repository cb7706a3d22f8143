"""One running broker: storage, core, front-ends and listeners wired together; start, drain, stop. Runs on whatever
event loop, files, clock and threads it is given."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from trimq.clock import Clock
from trimq.config import Address, Settings
from trimq.core.cluster import Address as ClusterAddress
from trimq.core.opening import Core, open_core
from trimq.metrics import Metrics
from trimq.offload import Offload
from trimq.server.front_ends import FrontEndParts, MakeFrontEnd, Plan, configured_front_ends, told_addresses
from trimq.server.listener import Listener
from trimq.server.session import Progress, Session, SessionLimits, SessionMetrics
from trimq.storage.files import Files
from trimq.storage.flusher import AsyncFlusher, SyncFlusher
from trimq.storage.passes import Passes

log = logging.getLogger(__name__)

# How long a stop waits for connections to take their last answers.
_DRAIN_MS = 5_000


@dataclass(frozen=True, slots=True)
class Doors:
    """The outside world: the only ways to files, time, threads and chance. Syncs have a lane of their own, so that
    slow work never delays an acknowledgement."""

    files: Files
    clock: Clock
    sync_offload: Offload
    work_offload: Offload
    chance: random.Random


class Node:
    def __init__(self, settings: Settings, doors: Doors, plan: Plan = configured_front_ends) -> None:
        self._settings = settings
        self._doors = doors
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._is_aborted = False
        self._progress = Progress()
        self.metrics = Metrics()
        self.passes = Passes(self._call_soon, self._fail)
        self.passes.on_progress(self._passes_moved)
        self._flusher = self._make_flusher()
        self.passes.start(self._flusher)
        self.core: Core
        self.listeners: dict[str, Listener] = {}
        self._session_counters = [
            self.metrics.counters("received_bytes", "Bytes received from clients.", ("listener",)),
            self.metrics.counters("sent_bytes", "Bytes sent to clients.", ("listener",)),
            self.metrics.counters("requests", "Requests taken from clients.", ("listener",)),
        ]
        self.metrics.gauges_from("connections", "Open connections.", ("listener",), self._connections)
        self.is_ready = False
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        self._changed = asyncio.Event()

    def _make_flusher(self) -> SyncFlusher | AsyncFlusher:
        files, offload = self._doors.files, self._doors.sync_offload
        threshold, settle = self._settings.storage.syncfs_threshold, self.passes.settle
        if self._settings.flush == "sync":
            return SyncFlusher(files, offload, threshold, settle, self._fail)
        timeline, interval_ms = self._doors.clock.liveness, self._settings.flush_interval_ms
        return AsyncFlusher(files, offload, threshold, settle, self._fail, timeline, interval_ms)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(self._call_unless_aborted, callback)

    def _call_unless_aborted(self, callback: Callable[[], None]) -> None:
        if not self._is_aborted:
            callback()

    def _passes_moved(self) -> None:
        self._progress.moved(self.passes.written, self.passes.durable)
        self._changed.set()

    def _connections(self) -> list[tuple[tuple[str], int]]:
        return [((name,), listener.connections) for name, listener in self.listeners.items()]

    def _fail(self, error: BaseException) -> None:
        """The disk broke its promise: nothing more is acknowledged, and whoever runs the node ends it."""
        if self.failure is None:
            log.critical("the data folder can no longer be made durable, the broker stops: %s", error)
            self.failure = error
            self.is_ready = False
            self.failed.set()
            self._changed.set()

    # -- start

    async def start(self) -> dict[str, str]:
        """Open what is stored, then accept connections. Gives back the bound address of every listener by its name."""
        doors = self._doors
        self.core = open_core(
            self._settings, doors.files, self.passes, doors.clock, doors.work_offload, doors.chance, self.metrics
        )
        await self.settled()
        for name, (address, make_front_end) in self._plan(self._settings).items():
            self.listeners[name] = await self._bind(name, address, make_front_end)
        bound = {name: Address(listener.host, listener.port) for name, listener in self.listeners.items()}
        for name, told in told_addresses(self._settings, bound).items():
            self.core.cluster.announce(name, ClusterAddress(*told))
        self.core.start()
        for listener in self.listeners.values():
            await listener.serve()
        self.is_ready = True
        return {name: listener.address for name, listener in self.listeners.items()}

    async def _bind(self, name: str, address: Address, make_front_end: MakeFrontEnd) -> Listener:
        settings = self._settings
        front_end = make_front_end(
            FrontEndParts(settings, self.core, self._doors.clock, self.metrics, lambda: self.is_ready)
        )
        limits = SessionLimits(
            settings.limits.pending_requests_per_connection, settings.limits.unsent_bytes_per_connection
        )
        metrics = SessionMetrics(*(family.labelled(name) for family in self._session_counters))

        def make_session(ended: Callable[[Session], None]) -> Session:
            return Session(front_end, self._progress, limits, metrics, self._doors.clock.liveness, ended)

        listener = Listener(name, make_session, settings.limits.connections)
        await listener.start(address.host, address.port)
        return listener

    # -- stop

    async def stop(self) -> None:
        """Refuse what is new, answer what was asked, checkpoint, close. Bounded in time."""
        self.is_ready = False
        for listener in self.listeners.values():
            listener.stop_accepting()
        self.core.stop_writes()
        await self.settled()
        for listener in self.listeners.values():
            listener.close_sessions()
        await self._drained()
        self.core.close()
        await self.settled()

    async def settled(self) -> None:
        """Return when nothing is unwritten or unsynced, or the disk has failed. Hurries what would wait."""
        while not self.passes.is_idle and self.failure is None:
            self._changed.clear()
            self.hurry()
            await self._changed.wait()

    def hurry(self) -> None:
        """Sync now what flush = async would let wait."""
        self._flusher.hurry()

    async def _drained(self) -> None:
        liveness = self._doors.clock.liveness
        timer = liveness.call_at(liveness.now_ms() + _DRAIN_MS, self._abort_sessions)
        for listener in self.listeners.values():
            await listener.closed()
        timer.cancel()

    def _abort_sessions(self) -> None:
        for listener in self.listeners.values():
            listener.abort_sessions()

    def abort(self) -> None:
        """End at once, as a crash would: nothing is answered, written or synced any more."""
        self._is_aborted = True
        self.is_ready = False
        self.core.stop_writes()
        for listener in self.listeners.values():
            listener.stop_accepting()
        self._abort_sessions()
