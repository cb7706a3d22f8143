"""Group commit: makes passes durable in sync rounds, one after the other. Passes batch up while a round runs, and for a
few loop turns after it, so there is no timer. Knows files and folders, never their contents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

from trimq.clock import Timeline, Timer
from trimq.offload import Offload
from trimq.storage.io.files import File, Files, is_out_of_descriptors

log = logging.getLogger(__name__)


class Dirty:
    """Files written since the last round, and folders in which names were added or removed."""

    __slots__ = ("files", "folders", "should_preallocate", "size_bytes")

    def __init__(self) -> None:
        self.files: set[File] = set()
        self.folders: set[str] = set()
        self.size_bytes = 0
        """Bytes written to journals."""
        self.should_preallocate = False
        """Set if a file that the current pass extends should be extended by more than the pass needs."""

    def __len__(self) -> int:
        return len(self.files) + len(self.folders)

    def merge(self, other: Dirty) -> None:
        self.files |= other.files
        self.folders |= other.folders


OnDurable = Callable[[int], None]
OnFailure = Callable[[BaseException], None]


# A round waits for at most this many loop turns that bring more data, and never longer than this. One turn brings most
# of the gain for synchronous clients; each further one delays the first client's response.
_MAX_GATHER_TURNS = 4
_MAX_GATHER_MS = 2

# With this much data a sync pays for itself, so the disk should not wait for the loop.
_SYNC_AT_ONCE_BYTES = 256 * 1024


class Flusher(Protocol):
    on_disk: int
    """Number of the last pass that survives a power cut, which may be behind the last acknowledged pass."""

    preallocates_up_to_writers: int
    """A pass with at most this many writers syncs faster if their files do not grow with it."""

    @property
    def dirty(self) -> Dirty:
        """Collects the files that passes write, until the next round."""

    def flush(self, number: int) -> None:
        """Takes over pass `number`, which is written. The flusher acknowledges the pass when its promise (disk or page
        cache) holds."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is dirty and no round is running."""

    def flush_now(self) -> None:
        """Starts the next round now, because the broker is about to stop."""


class _SyncRounds:
    """Syncs dirty files in back-to-back rounds, off the event loop."""

    def __init__(self, files: Files, offload: Offload, syncfs_threshold: int, failed: OnFailure) -> None:
        self._files = files
        self._offload = offload
        self._syncfs_threshold = syncfs_threshold
        self._failed = failed
        self._has_warned_no_descriptors = False
        self.dirty = Dirty()
        self.number = 0
        """Number of the last pass whose writes are in `dirty` or in the running round."""
        self.is_running = False
        self.synced: OnDurable = lambda number: None

    @property
    def has_work(self) -> bool:
        return len(self.dirty) > 0

    def start(self) -> None:
        number, dirty = self.number, self.dirty
        self.dirty = Dirty()
        self.is_running = True
        # Off the loop: a sync on it would block every connection for as long as the disk takes.
        try:
            work = self._prepare(dirty)
        except OSError as error:
            self._finish(number, error)
        else:
            self._offload(work, lambda _, error: self._finish(number, error))

    def _prepare(self, dirty: Dirty) -> Callable[[], None]:
        if len(dirty) > self._syncfs_threshold:
            return self._files.sync_all
        syncs = []
        for file in sorted(dirty.files, key=_name):  # same order on every run, so that simulations replay
            try:
                syncs.append(file.begin_sync())
            except FileNotFoundError:
                continue  # removed since it was written
            except OSError as error:
                if not is_out_of_descriptors(error):
                    raise
                self._warn_no_descriptors(file.name, error)
                return lambda: self._sync_all_after(syncs)
        return lambda: self._sync(syncs, sorted(dirty.folders))

    def _warn_no_descriptors(self, name: str, error: OSError) -> None:
        if not self._has_warned_no_descriptors:  # logged once, not for every round
            self._has_warned_no_descriptors = True
            log.warning(
                "%s: cannot open file for sync (%s); syncing the whole file system instead. Raise the limit of open"
                " files (ulimit -n)",
                name,
                error.strerror,
            )

    def _sync_all_after(self, syncs: Iterable[Callable[[], None]]) -> None:
        for sync in syncs:  # these hold descriptors already
            sync()
        self._files.sync_all()

    def _sync(self, syncs: Iterable[Callable[[], None]], folders: Iterable[str]) -> None:
        for sync in syncs:
            sync()
        for folder in folders:
            with suppress(FileNotFoundError):  # removed since it changed
                self._files.sync_folder(folder)

    def _finish(self, number: int, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)  # `is_running` stays True: no later round may confirm data that this one lost
        else:
            self.is_running = False
            self.synced(number)


class LoopTurns(NamedTuple):
    """Hooks into the turns of the event loop."""

    call_soon: Callable[[Callable[[], None]], object]
    """Calls back in the next turn."""
    is_collecting: Callable[[], bool]
    """Returns whether the current turn has collected data that is not written yet."""


class SyncFlusher:
    """Acknowledges a pass when its bytes are on disk. If passes follow each other closely, a round started for the
    first would leave all others to the next round, and each round costs a sync. So the round waits while each loop turn
    brings more data. A single pass is synced at once."""

    def __init__(
        self,
        files: Files,
        offload: Offload,
        syncfs_threshold: int,
        durable: OnDurable,
        failed: OnFailure,
        turns: LoopTurns,
        timeline: Timeline,
    ) -> None:
        self._rounds = _SyncRounds(files, offload, syncfs_threshold, failed)
        self._rounds.synced = self._synced
        self._turns = turns
        self._timeline = timeline
        self._durable = durable
        self._has_concurrent_passes = False
        """True if the last round covered several passes, or a pass was written while it was running."""
        self._is_gathering = False
        self._gathered_bytes = 0
        self._gathers_until_ms = 0
        self._turns_left = 0
        self._last_round = 0
        self.on_disk = 0
        self.preallocates_up_to_writers = syncfs_threshold  # sync_all waits for the file system's journal in any case

    @property
    def dirty(self) -> Dirty:
        return self._rounds.dirty

    @property
    def is_idle(self) -> bool:
        return not self._rounds.is_running and not self._is_gathering

    def flush(self, number: int) -> None:
        self._rounds.number = number
        if not self._rounds.is_running and not self._is_gathering:
            self._begin()

    def _begin(self) -> None:
        if self._has_concurrent_passes and self._rounds.dirty.size_bytes < _SYNC_AT_ONCE_BYTES:
            self._is_gathering = True
            self._gathers_until_ms = self._timeline.now_ms() + _MAX_GATHER_MS
            self._turns_left = _MAX_GATHER_TURNS
            self._gather()
        else:
            self._start()

    def _gather(self) -> None:
        self._gathered_bytes = self._rounds.dirty.size_bytes
        self._turns.call_soon(self._gather_or_start)

    def _gather_or_start(self) -> None:
        size_bytes = self._rounds.dirty.size_bytes
        brought_more = size_bytes > self._gathered_bytes or self._turns.is_collecting()
        may_wait = self._turns_left > 0 and self._timeline.now_ms() < self._gathers_until_ms
        if brought_more and may_wait and size_bytes < _SYNC_AT_ONCE_BYTES:
            self._turns_left -= 1
            self._gather()
        else:
            self._is_gathering = False
            self._start()

    def _start(self) -> None:
        self._has_concurrent_passes = self._rounds.number > self._last_round + 1
        self._last_round = self._rounds.number
        self._rounds.start()

    def _synced(self, number: int) -> None:
        self.on_disk = number
        if self._rounds.number > number:
            self._has_concurrent_passes = True
            self._begin()
        self._durable(number)

    def flush_now(self) -> None:
        """Does nothing: rounds start without a timer."""


class AsyncFlusher:
    """Acknowledges a pass once it is in the page cache; dirty files are synced within the interval."""

    preallocates_up_to_writers = 0

    def __init__(
        self,
        files: Files,
        offload: Offload,
        syncfs_threshold: int,
        durable: OnDurable,
        failed: OnFailure,
        timeline: Timeline,
        interval_ms: int,
    ) -> None:
        self._rounds = _SyncRounds(files, offload, syncfs_threshold, failed)
        self._rounds.synced = self._synced
        self._durable = durable
        self._timeline = timeline
        self._interval_ms = interval_ms
        self._timer: Timer | None = None
        self.on_disk = 0

    @property
    def dirty(self) -> Dirty:
        return self._rounds.dirty

    @property
    def is_idle(self) -> bool:
        return not self._rounds.is_running and not self._rounds.has_work

    def flush(self, number: int) -> None:
        self._rounds.number = number
        if self.is_idle:
            self.on_disk = number  # the pass wrote nothing
        elif self._timer is None and not self._rounds.is_running:
            self._wait()
        self._durable(number)

    def _wait(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        if not self._rounds.is_running:
            self._rounds.start()

    def _synced(self, number: int) -> None:
        self.on_disk = number
        if self._rounds.has_work and self._timer is None:
            self._wait()
        self._durable(number)  # acknowledged before, but callers may wait for the flusher to be idle

    def flush_now(self) -> None:
        """Starts the next round now, because the broker is about to stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._due()


def _name(file: File) -> str:
    return file.name
