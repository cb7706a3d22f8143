"""One running broker: connects storage, core, front-ends and listeners; start, drain, stop. Runs on the event loop,
files, clock and threads that it is given."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from trimq.clock import Clock
from trimq.config import Address, Settings
from trimq.core.assembly.core import Core, open_core
from trimq.core.metadata.cluster import Address as ClusterAddress
from trimq.errors import StartupError
from trimq.metrics import Metrics
from trimq.offload import Offload
from trimq.protocols.client_counters import CountsOfAll
from trimq.server.connection.buffer_release import BufferReleaser
from trimq.server.connection.certificates import Certificates
from trimq.server.connection.connections import Connections
from trimq.server.connection.connector import Connector
from trimq.server.connection.handshakes import Handshakes
from trimq.server.connection.limits import ConnectionsByAddress, SessionLimits
from trimq.server.connection.listener import AnyListener, Listener, is_free
from trimq.server.connection.pending_replies import PassProgress
from trimq.server.connection.session import Session, SessionMetrics
from trimq.server.front_ends import (
    LAST_TO_STOP,
    FrontEndParts,
    ListenerPlan,
    MakeFrontEnd,
    PlannedListener,
    advertised_addresses,
    commit_log_groups_of,
    configured_front_ends,
    group_lag_of,
)
from trimq.server.gauges import (
    expose_disk,
    expose_lag,
    expose_listeners,
    expose_passes,
    expose_rebalances,
    expose_topics,
)
from trimq.server.timed_offload import TimedOffload
from trimq.storage.group_commit.flusher import AsyncFlusher, SyncFlusher
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import Files
from trimq.storage.io.folder_format import require_format

log = logging.getLogger(__name__)

# How long a stop waits for clients to read their last responses, and for the disk.
_DRAIN_MS = 5_000
_DISK_TIMEOUT_MS = 30_000

# Names of the threads of a platform, in the order of its fields.
THREADS = ("trimq-sync", "trimq-work", "trimq-review", "trimq-password")

# Connections above the limit that are reserved for administration (HTTP).
_KEPT_FREE = 16


@dataclass(frozen=True, slots=True)
class Platform:
    """Access to files, time, threads and the random source. Syncs have their own thread, so that slow work never delays
    an acknowledgement; so have large batches and passwords, so that their senders delay nobody else."""

    files: Files
    clock: Clock
    sync_offload: Offload
    work_offload: Offload
    review_offload: Offload
    password_offload: Offload
    rng: random.Random


class Node:
    def __init__(
        self,
        settings: Settings,
        platform: Platform,
        plan: ListenerPlan = configured_front_ends,
        max_connections: int | None = None,
    ) -> None:
        """`max_connections`: limit for all listeners together, so that enough descriptors remain for files."""
        self._max_connections = max_connections
        self._settings = settings
        self._platform = platform
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._is_aborted = False
        self._progress = PassProgress()
        self._buffer_releaser = BufferReleaser(platform.clock.liveness)
        self.metrics = Metrics()
        self.passes = Passes(self._call_soon, self._fail)
        self.passes.on_progress(self._passes_advanced)
        self._flusher = self._make_flusher()
        self.passes.start(self._flusher)
        self.core: Core
        self.listeners: dict[str, AnyListener] = {}
        self.connectors: list[Connector] = []
        self._session_counters = [
            self.metrics.counters("received_bytes", "Bytes received from clients.", ("listener",)),
            self.metrics.counters("sent_bytes", "Bytes sent to clients.", ("listener",)),
            self.metrics.counters("requests", "Requests received from clients.", ("listener",)),
        ]
        self._refused_connections = self.metrics.counters(
            "refused_connections", "Connections that were closed because of the connection limit.", ("listener",)
        )
        self._counts = CountsOfAll(self.metrics)
        self._certificates = Certificates(settings.tls, platform.clock.message.now_ms)
        expose_listeners(self.metrics, self.listeners)
        expose_passes(self.metrics, self.passes)
        expose_disk(self.metrics, platform.files)
        self.is_ready = False
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        self._changed = asyncio.Event()

    def _make_flusher(self) -> SyncFlusher | AsyncFlusher:
        files = self._platform.files
        rounds = self.metrics.histogram("sync_seconds", "Duration of a sync that makes one or more passes durable.")
        offload = TimedOffload(self._platform.sync_offload, rounds.observe)
        threshold, timeline = self._settings.storage.syncfs_threshold, self._platform.clock.liveness
        if self._settings.flush == "sync":
            return SyncFlusher(files, offload, threshold, self._mark_durable, self._fail, self.passes.turns, timeline)
        interval_ms = self._settings.flush_interval_ms
        return AsyncFlusher(files, offload, threshold, self._mark_durable, self._fail, timeline, interval_ms)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(self._end_pass, callback)

    def _end_pass(self, callback: Callable[[], None]) -> None:
        if self._is_aborted:
            return
        try:
            callback()
        except Exception as error:  # a bug: it is unknown which data was written, so nothing more is acknowledged
            self._fail(error)

    def _mark_durable(self, number: int) -> None:
        try:
            self.passes.mark_durable(number)
        except Exception as error:  # as above
            self._fail(error)

    def _passes_advanced(self) -> None:
        self._progress.advance(self.passes.written, self.passes.durable)
        self._changed.set()

    def _fail(self, error: BaseException) -> None:
        """Records a failure of the disk: nothing more is acknowledged, and the owner of the node ends it."""
        if self.failure is None:
            is_ours = not isinstance(error, OSError)
            log.critical(
                "data folder: writes can no longer be made durable, the broker stops (%s)",
                error or type(error).__name__,
                exc_info=error if is_ours else None,
            )
            self.failure = error
            self.is_ready = False
            self.failed.set()
            self._changed.set()

    # -- start

    async def start(self) -> dict[str, str]:
        """Opens the stored data, then accepts connections. Returns the bound addresses by listener. If it fails, raises
        StartupError and leaves nothing open."""
        try:
            await self._open()
            return await self._listen()
        except BaseException:
            for listener in self.listeners.values():
                listener.stop_accepting()
            raise

    async def _open(self) -> None:
        platform = self._platform
        try:
            require_format(platform.files)
            self.core = open_core(
                self._settings,
                platform.files,
                self.passes,
                platform.clock,
                platform.work_offload,
                platform.rng,
                self.metrics,
                platform.review_offload,
                platform.password_offload,
            )
        except OSError as error:
            raise StartupError(
                f"the data folder {self._settings.data_dir} cannot be used: {describe_error(error)}"
            ) from error
        self._close_ended_logins()
        expose_topics(self.metrics, self.core.topics)
        groups = self.core.broker.groups
        expose_lag(self.metrics, groups, group_lag_of(self.core), commit_log_groups_of(self.core))
        expose_rebalances(self.metrics, groups)
        await self.wait_until_durable()
        if self.failure is not None:
            raise StartupError(
                f"the data folder {self._settings.data_dir} cannot be written: {describe_error(self.failure)}"
            )

    def _close_ended_logins(self) -> None:
        """Closes the connections of a user that is deleted, and those that used an old password."""
        connections, authenticator = Connections(self.listeners), self.core.authenticator
        authenticator.on_removed(lambda name: connections.close_user(name, f"user '{name}' was deleted"))
        if self._settings.security.password_change_closes:
            authenticator.on_password_changed(
                lambda name: connections.close_user(name, f"the password of user '{name}' was changed")
            )

    async def _listen(self) -> dict[str, str]:
        for name, planned in self._plan(self._settings).items():
            if planned.is_outgoing:
                make_session = self._session_maker(name, planned.make, is_outgoing=True)
                liveness = self._platform.clock.liveness
                self.connectors.append(Connector(name, planned.address, make_session, liveness))
                continue
            address = await self._address_below(planned) if planned.below else planned.address
            if address is not None:
                self.listeners[name] = await self._bind(name, address, planned.make)
        bound = {name: Address(listener.host, listener.port) for name, listener in self.listeners.items()}
        for name, told in advertised_addresses(self._settings, bound).items():
            self.core.cluster.announce(name, ClusterAddress(*told))
        self.core.start()
        for listener in self.listeners.values():
            await listener.serve()
        for connector in self.connectors:
            connector.start()
        self.is_ready = True
        return {name: listener.address for name, listener in self.listeners.items()}

    async def _address_below(self, planned: PlannedListener) -> Address | None:
        """Returns None if the port is in use."""
        address = Address(planned.address.host, self.listeners[planned.below].port - 2)
        return address if await is_free(*address) else None

    def _session_maker(
        self, name: str, make_front_end: MakeFrontEnd, is_outgoing: bool = False
    ) -> Callable[[Callable[[Session], None]], Session]:
        settings = self._settings
        platform = self._platform
        parts = FrontEndParts(
            settings,
            self.core,
            platform.clock,
            self.metrics,
            self._counts,
            platform.rng,
            lambda: self.is_ready,
            Connections(self.listeners),
        )
        front_end = make_front_end(parts)
        metrics = SessionMetrics(*(family.labelled(name) for family in self._session_counters))
        limits = SessionLimits(
            settings.limits.pending_requests_per_connection,
            settings.limits.held_requests_per_connection,
            settings.limits.unsent_bytes_per_connection,
            settings.limits.idle_connection_ms,
            (lambda: None) if is_outgoing else self._first_request_ms,
        )

        by_address = None
        if not is_outgoing:
            refused = self._refused_connections.labelled(name)
            by_address = ConnectionsByAddress(settings.limits.connections_per_address, refused)

        def make_session(ended: Callable[[Session], None]) -> Session:
            liveness, releaser = self._platform.clock.liveness, self._buffer_releaser
            return Session(front_end, self._progress, limits, metrics, liveness, releaser, ended, by_address)

        return make_session

    def _first_request_ms(self) -> int | None:
        return self._settings.security.login_timeout_ms if self.core.authenticator.is_login_required else None

    async def _bind(self, name: str, address: Address, make_front_end: MakeFrontEnd) -> AnyListener:
        settings, make_session = self._settings, self._session_maker(name, make_front_end)
        refused = self._refused_connections.labelled(name)
        has_room = partial(self._has_room, _KEPT_FREE if name in LAST_TO_STOP else 0)
        offered, liveness = self._certificates.of_listener(name), self._platform.clock.liveness
        handshakes = Handshakes(liveness, settings.tls.handshake_ms, settings.tls.unfinished_handshakes)
        tls = None if offered is None else (offered, handshakes)
        now_ms = self._platform.clock.message.now_ms
        listener = Listener(name, make_session, settings.limits.connections, refused, tls, has_room, now_ms)
        await listener.start(address.host, address.port)
        return listener

    def reload_certificates(self) -> None:
        """Reads the files of the section `tls` again, for new connections. If they cannot be used, the broker keeps
        what it has, and logs why."""

        def loaded(contexts: Any, error: BaseException | None) -> None:
            if error is None:
                self._certificates.use(contexts)
                log.info("tls: certificates reloaded; new connections use them")
            else:
                log.error("tls: the files were not reloaded, the earlier certificates stay in use (%s)", error)

        self._platform.work_offload(self._certificates.load, loaded)

    def _has_room(self, kept_free: int) -> bool:
        if self._max_connections is None:
            return True
        return sum(listener.connections for listener in self.listeners.values()) < self._max_connections + kept_free

    # -- stop

    async def stop(self) -> None:
        """Refuses new connections and writes, responds to pending requests, saves a checkpoint and closes. Bounded in
        time: `failure` is set if the disk failed or was too slow."""
        self.is_ready = False
        liveness = self._platform.clock.liveness
        timer = liveness.call_at(liveness.now_ms() + _DISK_TIMEOUT_MS, self._disk_timed_out)
        last = [listener for name, listener in self.listeners.items() if name in LAST_TO_STOP]
        first = [listener for listener in self.listeners.values() if listener not in last]
        for connector in self.connectors:  # first: clients must not be sent here any more
            connector.stop()
            connector.close_session()
        for listener in first:
            listener.stop_accepting()
        self.core.stop_writes()
        await self.wait_until_durable()
        await self._drain(first)
        if self.failure is None:  # after a failure, a checkpoint would confirm data that may be lost
            self.core.close()
            await self.wait_until_durable()
            await self._mark_tables()
        timer.cancel()
        for listener in last:
            listener.stop_accepting()
        await self._drain(last)

    async def _mark_tables(self) -> None:
        """Marks the tables as synced; a log that was just created needs two rounds."""
        for _ in range(2):
            if self.failure is None and self.core.tables.mark_synced():
                await self.wait_until_durable()

    def _disk_timed_out(self) -> None:
        self._fail(TimeoutError(f"the disk was still busy {_DISK_TIMEOUT_MS // 1000} s after the stop"))

    async def wait_until_durable(self) -> None:
        """Flushes and waits until all data is written and synced, or the disk has failed."""
        while not self.passes.is_idle and self.failure is None:
            self._changed.clear()
            self.flush_now()
            await self._changed.wait()

    def flush_now(self) -> None:
        """Writes and syncs at once, however long the intervals are."""
        self.passes.end_soon()
        self._flusher.flush_now()

    async def _drain(self, listeners: Sequence[AnyListener]) -> None:
        liveness = self._platform.clock.liveness
        timer = liveness.call_at(liveness.now_ms() + _DRAIN_MS, self._abort_sessions)
        for listener in listeners:
            listener.close_sessions()
        for listener in listeners:
            await listener.closed()
        for connector in self.connectors:
            await connector.closed()
        timer.cancel()

    def _abort_sessions(self) -> None:
        for listener in self.listeners.values():
            listener.abort_sessions()
        for connector in self.connectors:
            connector.abort()

    def abort(self) -> None:
        """Ends at once, like a crash: no more responses, writes or syncs."""
        self._is_aborted = True
        self.is_ready = False
        self.core.stop_writes()
        for connector in self.connectors:
            connector.stop()
        for listener in self.listeners.values():
            listener.stop_accepting()
        self._abort_sessions()


def describe_error(error: BaseException) -> str:
    """Returns the text of a system error without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error) or type(error).__name__
