"""Program that forks Spark's local Python workers: PySpark's daemon with two differences. The garbage collector skips
all modules loaded by the first task, and a worker prints no traceback when Spark stops it after a minute of
idleness."""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

_pyspark_worker = daemon.worker
_is_warmed_up = False  # per process: the daemon forks one process per worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    global _is_warmed_up
    try:
        code = _pyspark_worker(sock, authenticated)
    except BrokenPipeError:  # Spark closed the socket: it no longer needs this worker
        return 1
    if not _is_warmed_up:
        _is_warmed_up = True
        # Modules loaded by the first task stay loaded. PySpark runs a full collection after each task; over all modules
        # it took as long as a small task.
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
