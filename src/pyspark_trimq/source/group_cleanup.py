"""A program of its own, run by its path: waits until whoever started it is gone, then sends the requests that it was
given in advance, through stdin in hexadecimal, each after the answer to the one before; encrypted if it is told `tls`:
the certificates to trust come first then (`-`: those of the system). Spark ends the process that plans a query without
a word, so that it cannot say goodbye itself.

Imports nothing of this package: it starts in milliseconds and takes next to no memory."""

from __future__ import annotations

import socket
import sys

_TIMEOUT_S = 10
_ANSWER_BYTES = 4096


def main() -> None:
    host, port, *tls = sys.argv[1:]
    # All until its other end is closed, by whatever.
    given = [bytes.fromhex(part.decode()) for part in sys.stdin.buffer.read().split()]
    plain = socket.create_connection((host, int(port)), _TIMEOUT_S)
    with _encrypted(plain, host, given.pop(0).decode()) if tls else plain as connection:
        for request in given:
            connection.sendall(request)
            connection.recv(_ANSWER_BYTES)


def _encrypted(plain: socket.socket, host: str, ca_certificates: str) -> socket.socket:
    import ssl  # takes as long as all the rest

    context = ssl.create_default_context(cadata=None if ca_certificates == "-" else ca_certificates)
    return context.wrap_socket(plain, server_hostname=host)


if __name__ == "__main__":
    try:
        main()
    except OSError:
        sys.exit(1)  # the broker is gone too, and whoever could be told
