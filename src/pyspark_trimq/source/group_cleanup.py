"""Program that deletes the group of a streaming query after the process that plans the query has ended. Spark kills
that process without notice, so it cannot delete the group itself.

Arguments: host, port, and `tls` for an encrypted connection. Reads from stdin, in hexadecimal, one per line: with `tls`
first the trusted certificates (`-`: those of the system), then the requests. When stdin is closed, it sends them one
after the other, each after the response to the previous one.

Run by its path. Imports nothing of this package, so that it starts in milliseconds and takes little memory."""

from __future__ import annotations

import socket
import sys

_TIMEOUT_S = 10
_ANSWER_BYTES = 4096


def main() -> None:
    host, port, *tls = sys.argv[1:]
    # Blocks until the parent process closes the pipe or ends.
    given = [bytes.fromhex(part.decode()) for part in sys.stdin.buffer.read().split()]
    plain = socket.create_connection((host, int(port)), _TIMEOUT_S)
    with _encrypted(plain, host, given.pop(0).decode()) if tls else plain as connection:
        for request in given:
            connection.sendall(request)
            connection.recv(_ANSWER_BYTES)


def _encrypted(plain: socket.socket, host: str, ca_certificates: str) -> socket.socket:
    import ssl  # imported on demand: takes as long as the rest of the program

    context = ssl.create_default_context(cadata=None if ca_certificates == "-" else ca_certificates)
    return context.wrap_socket(plain, server_hostname=host)


if __name__ == "__main__":
    try:
        main()
    except OSError:
        sys.exit(1)  # the broker does not respond, and nobody reads our output
