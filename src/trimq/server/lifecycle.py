"""Life of the broker process: event loop, data folder, signals, ready file and exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Mapping

import msgspec

from trimq.clock import system_clock
from trimq.config import Settings, exposed_listeners, is_login_required
from trimq.errors import Damage, StartupError
from trimq.offload import ThreadOffload
from trimq.server.log_output import open_log
from trimq.server.node import THREADS, Node, Platform, describe_error
from trimq.server.offline.administrators import define_first_administrator
from trimq.storage.commit_log.store import LOCK as COMMIT_LOCK
from trimq.storage.io.atomic_file import remove_external_file, replace_external_file
from trimq.storage.io.files import DiskFiles, Files
from trimq.storage.io.folder_lock import FolderLock

log = logging.getLogger(__name__)

Announce = Callable[[Mapping[str, str], bool], None]
"""Called once the broker is ready, with its addresses by listener, and whether a user is defined."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# Limit used if the system sets none.
_MANY_DESCRIPTORS = 100_000

# How long a thread that only computes keeps the event loop waiting after each of the loop's system calls. Measured with
# 50 clients beside one large batch: 16,000 replies a second with a p99 of 16 ms; with Python's 5 ms, 1,700 and 215 ms.
_SWITCH_S = 0.0002

# Listeners, the event loop, running syncs, connections about to be refused, and folders being scanned.
_OTHER_DESCRIPTORS = 96


FirstAdministrator = tuple[str, Callable[[], str]]
"""Name, and a function that returns the password, which is called if there is no administrator."""


def serve(settings: Settings, announce: Announce, administrator: FirstAdministrator | None = None) -> int:
    """Serves until SIGTERM or Ctrl-C, then drains. Returns 0 after a regular stop, 1 if the disk failed. Raises
    StartupError if the broker cannot start. `administrator`: defined first if there is none."""
    open_log(settings.log)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, announce, administrator))
    except Damage as damage:
        raise StartupError(str(damage)) from None
    finally:
        for number in _SIGNALS:  # the loop has removed its handlers; a further signal must not disturb the end
            signal.signal(number, signal.SIG_IGN)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns the factory of uvloop if the extra `speed` is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(settings: Settings, announce: Announce, administrator: FirstAdministrator | None) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        lock = FolderLock(settings.data_dir)
        lock.hold(COMMIT_LOCK)
    except OSError as error:
        raise StartupError(f"the data folder {settings.data_dir} cannot be used: {describe_error(error)}") from None
    sys.setswitchinterval(_SWITCH_S)
    threads = syncs, work, reviews, passwords = [ThreadOffload(name, loop) for name in THREADS]
    descriptors = _raise_descriptor_limit()
    open_files = min(settings.storage.open_files, descriptors // 4)
    files = DiskFiles(settings.data_dir, open_files)
    try:
        _forget_ready_file(settings)
        if administrator is not None:
            _define_first(files, settings, *administrator)
        platform = Platform(files, system_clock(), syncs, work, reviews, passwords, random.SystemRandom())
        node = Node(settings, platform, max_connections=_connection_share(descriptors, open_files))
        addresses = await node.start()
        if settings.tls.certificate is not None:  # otherwise the hang-up of a terminal ends the broker
            loop.add_signal_handler(signal.SIGHUP, node.reload_certificates)
        lock.hold(COMMIT_LOCK)
        _tune_garbage_collection()
        has_users = node.core.authenticator.has_users
        _warn_if_open(settings, has_users)
        _warn_of_plain_passwords(settings, has_users)
        _announce_addresses(settings, addresses, lambda told: announce(told, has_users))
        return await _run(node, stop)
    finally:
        for thread in threads:
            if not thread.stop():
                log.warning(
                    "shutdown: a disk operation did not finish in time; the process ends without waiting for it"
                )
        files.close()
        lock.release()


def _define_first(files: Files, settings: Settings, name: str, password: Callable[[], str]) -> None:
    try:
        is_defined = define_first_administrator(files, name, password)
    except OSError as error:
        raise StartupError(f"the data folder {settings.data_dir} cannot be used: {describe_error(error)}") from None
    if is_defined:
        log.info("security: administrator %s is defined (security.administrator)", name)


def _warn_if_open(settings: Settings, has_users: bool) -> None:
    exposed = exposed_listeners(settings)
    if exposed and not has_users and not is_login_required(settings):
        log.warning(
            "security: every client may do everything, from other machines too (no user is defined, and security.mode "
            "is open for %s)",
            ", ".join(exposed),
        )


def _warn_of_plain_passwords(settings: Settings, has_users: bool) -> None:
    sections = [key.partition(".")[0] for key in exposed_listeners(settings) if key.endswith(".listen")]
    # RocketMQ's clients sign their requests.
    plain = [name for name in sections if name != "rocketmq" and settings.tls.mode_of(name) != "required"]
    if plain and (has_users or is_login_required(settings)):
        log.warning("tls: passwords of clients may travel unencrypted (TLS is not required for %s)", ", ".join(plain))


def _raise_descriptor_limit() -> int:
    """Raises the limit of open descriptors to the maximum, since the usual 1,024 are too few for files and connections.
    Returns the limit. Files get a quarter of it, since each needs a second descriptor for its memory map."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        most = max(now, _MANY_DESCRIPTORS)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # the system does not grant its own maximum
        return now
    return most


def _connection_share(descriptors: int, open_files: int) -> int:
    """Returns the number of descriptors left for connections, so that clients cannot use up those of files."""
    return max(descriptors - 2 * open_files - _OTHER_DESCRIPTORS, 1)


async def _run(node: Node, stop: asyncio.Event) -> int:
    stopped, failed = asyncio.create_task(stop.wait()), asyncio.create_task(node.failed.wait())
    _, pending = await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if node.failure is not None:
        node.abort()
        return 1
    await node.stop()
    return 0 if node.failure is None else 1


def _tune_garbage_collection() -> None:
    """Excludes all present objects from garbage collection: they live as long as the broker, and scanning them causes
    pauses."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()  # `trimq serve` disables it during the start


def _forget_ready_file(settings: Settings) -> None:
    """Removes the ready file of an earlier run, so that it is not mistaken for that of this run."""
    try:
        if settings.ready_file is not None:
            remove_external_file(settings.ready_file)
    except OSError as error:
        raise StartupError(f"the ready file {settings.ready_file} cannot be written: {describe_error(error)}") from None


def _announce_addresses(
    settings: Settings, addresses: Mapping[str, str], announce: Callable[[Mapping[str, str]], None]
) -> None:
    told = {"pid": os.getpid(), **addresses}
    if settings.ready_file is not None:
        try:
            replace_external_file(settings.ready_file, msgspec.json.encode(told))
        except OSError as error:
            raise StartupError(
                f"the ready file {settings.ready_file} cannot be written: {describe_error(error)}"
            ) from None
    announce({name: str(value) for name, value in told.items()})
