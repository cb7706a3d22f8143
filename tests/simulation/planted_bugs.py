"""Bugs that the simulation must find when they are put into the real code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trimq.storage.flusher import Dirty, SyncFlusher, _Rounds
from trimq.storage.journal import Journal

Plant = Callable[[pytest.MonkeyPatch], None]


def flushers_wait_removed(patch: pytest.MonkeyPatch) -> None:
    """A pass is acknowledged once it is written."""
    flush = SyncFlusher.flush

    def flush_and_acknowledge(self: Any, number: int, dirty: Dirty) -> None:
        flush(self, number, dirty)
        self._durable(number)

    patch.setattr(SyncFlusher, "flush", flush_and_acknowledge)
    patch.setattr(SyncFlusher, "_synced", lambda self, number: self._newest > number and self._rounds.start())


def folder_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The names of new files are left to chance."""
    sync = _Rounds._sync
    patch.setattr(_Rounds, "_sync", lambda self, syncs, folders: sync(self, syncs, ()))


def tail_not_cut(patch: pytest.MonkeyPatch) -> None:
    """Recovery leaves the torn end of a segment where it is."""
    patch.setattr(Journal, "truncate", lambda self, segment, size, companions: None)


def failed_sync_ignored(patch: pytest.MonkeyPatch) -> None:
    """A sync that failed counts like one that did not."""
    finish = _Rounds._finish
    patch.setattr(_Rounds, "_finish", lambda self, number, error: finish(self, number, None))


def undone_pass_left_in_file(patch: pytest.MonkeyPatch) -> None:
    """A write that fell short is not cut off again."""

    def forget(self: Any, refusal: Any, *_: Any) -> None:
        ticket, chunks = self._ticket, self._chunks
        self._forget_pass()
        ticket.refusal = refusal
        for chunk in chunks:
            chunk.segment.size = chunk.segment.file.size()
        self._owner.pass_undone()

    patch.setattr(Journal, "undo_pass", forget)


STORAGE_BUGS: dict[str, Plant] = {
    "the flusher's wait is removed": flushers_wait_removed,
    "a folder is not synced": folder_not_synced,
    "the tail is not cut": tail_not_cut,
    "a failed sync is ignored": failed_sync_ignored,
    "an undone pass stays in the file": undone_pass_left_in_file,
}
