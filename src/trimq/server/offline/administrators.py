"""Defines an administrator in the data folder of a stopped broker: the first one, or one whose password is lost."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from trimq.clock import ManualTime
from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.access import Access
from trimq.core.security.audit_log import AuditLog
from trimq.core.security.scram_credentials import ScramCredentials, credentials_of_password
from trimq.errors import StartupError
from trimq.metrics import Metrics
from trimq.model import SYSTEM
from trimq.offload import Done, Work
from trimq.storage.group_commit.flusher import SyncFlusher
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import DiskFiles, Files
from trimq.storage.io.folder_format import require_format
from trimq.storage.io.folder_lock import FolderLock
from trimq.storage.tables.tables import Tables

_SYNCFS_THRESHOLD = 2


def define_administrator(data_dir: str, name: str, password: str) -> bool:
    """Creates the user, or gives it this password and all rights. Returns whether it is new. Locks out brokers
    meanwhile; raises StartupError if one is running."""
    try:
        lock = FolderLock(data_dir)
    except OSError as error:
        raise StartupError(f"the data folder {data_dir} cannot be used: {error.strerror}") from None
    files = DiskFiles(data_dir)
    try:
        require_format(files)
        with_users = _OpenedUsers(files)
        is_new = all(user.name != name for user in with_users.access.users())
        with_users.define(name, password)
        return is_new
    except OSError as error:
        raise StartupError(f"the data folder {data_dir} cannot be written: {error.strerror}") from None
    finally:
        files.close()
        lock.release()


def define_first_administrator(files: Files, name: str, password: Callable[[], str]) -> bool:
    """Defines the administrator unless there is one. Returns whether it was defined. For the start of a broker, before
    it opens its folder, which the caller has locked."""
    require_format(files)
    opened = _OpenedUsers(files)
    if any(user.is_administrator for user in opened.access.users()):
        return False
    opened.define(name, password())
    return True


class _OpenedUsers:
    """Users of a folder, in the table that the broker has them in; written and synced without an event loop."""

    def __init__(self, files: Files) -> None:
        self._soon: deque[Callable[[], None]] = deque()
        self._failures: list[BaseException] = []
        passes = Passes(self._soon.append, self._failures.append)
        done, failed = passes.mark_durable, self._failures.append
        passes.start(SyncFlusher(files, self._offload, _SYNCFS_THRESHOLD, done, failed, passes.turns, ManualTime(0)))
        self._tables = Tables(files, passes, self._offload)
        catalogue = Catalogue(self._tables.open("catalogue", Definition))
        random_bytes = random.SystemRandom().randbytes
        self.access = Access(catalogue, random_bytes, AuditLog(Metrics(), ManualTime(0), 0))
        self._scram = ScramCredentials(catalogue, random_bytes)

    def define(self, name: str, password: str) -> None:
        tickets = [self.access.define_user(name, password, is_administrator=True)]
        # They replace those of the old password, which would still log in.
        derived = credentials_of_password(name, password, self.access.new_salt())
        tickets += [self._scram.put(credential) for credential in derived]
        self._settle()
        for ticket in tickets:
            if ticket.refusal is not None:
                raise StartupError(f"the user {name} could not be stored: {ticket.refusal}")
        while self._tables.mark_synced():
            self._settle()
        self.access.audit.changed(SYSTEM, "define", "user", name, administrator=True)

    def _offload(self, work: Work, done: Done) -> None:
        self._soon.append(lambda: _run(work, done))

    def _settle(self) -> None:
        while self._soon:
            self._soon.popleft()()
        if self._failures:
            raise self._failures[0]


def _run(work: Work, done: Done) -> None:
    result: object = None
    error: BaseException | None = None
    try:
        result = work()
    except OSError as caught:
        error = caught
    done(result, error)
