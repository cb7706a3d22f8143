"""A program of its own, run by its path: waits until whoever started it is gone, then sends the requests that it was
given in advance, through stdin in hexadecimal, each after the answer to the one before. Spark ends the process that
plans a query without a word, so that it cannot say goodbye itself.

Imports nothing of this package: it starts in milliseconds and takes next to no memory."""

from __future__ import annotations

import socket
import sys

_TIMEOUT_S = 10
_ANSWER_BYTES = 4096


def main() -> None:
    host, port = sys.argv[1:]
    requests = sys.stdin.buffer.read().split()  # all until its other end is closed, by whatever
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        for request in requests:
            connection.sendall(bytes.fromhex(request.decode()))
            connection.recv(_ANSWER_BYTES)


if __name__ == "__main__":
    try:
        main()
    except OSError:
        sys.exit(1)  # the broker is gone too, and whoever could be told
