"""Program that marks the group of a streaming query as stopped, or deletes it, after the process that plans the query
has ended. Spark kills that process without notice, so it cannot do so itself.

Arguments: host, port, and `tls` for an encrypted connection. Reads lines from stdin, each with parts in hexadecimal:
with `tls` first the trusted certificates (`-`: those of the system), then the requests. When stdin is closed, it sends
the requests of the last line one after the other, each after the response to the previous one.

Run by its path. Imports nothing of this package, so that it starts in milliseconds and takes little memory."""

from __future__ import annotations

import socket
import sys

_TIMEOUT_S = 10
_ANSWER_BYTES = 4096


def main() -> None:
    host, port, *tls = sys.argv[1:]
    last = b""
    for line in sys.stdin.buffer:  # until the parent process closes the pipe or ends
        if line.endswith(b"\n"):
            last = line
    given = [bytes.fromhex(part.decode()) for part in last.split()]
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
