"""A program: what forks Spark's local Python workers. PySpark's own, with two differences: a worker does not look for
garbage among all modules after each task, and leaves no traceback in the terminal when Spark lets go of it because it
had nothing to do for a minute."""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

_pyspark_worker = daemon.worker
_is_warmed_up = False  # of this process, which is forked for one worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    global _is_warmed_up
    try:
        code = _pyspark_worker(sock, authenticated)
    except BrokenPipeError:  # Spark has closed its end: there is nobody left to tell
        return 1
    if not _is_warmed_up:
        _is_warmed_up = True
        # What the first task has loaded stays. PySpark collects after each task, which took as long as a small one.
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
