"""Attack t16: many idle connections from one address must not shut a listener for others."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from security.attacked import ask, connect, is_closed

from tools.broker import running
from trimq.protocols.kafka.messages.handshakes import ApiVersionsRequest

LIMIT = 30
HELLO = ApiVersionsRequest(client_software_name="x", client_software_version="1")


def test_one_address_cannot_use_up_the_connections_of_a_listener(tmp_path: Path) -> None:
    flags = ["--limits-connections", str(LIMIT + 10), "--limits-connections-per-address", str(LIMIT)]
    with running(tmp_path, flags) as addresses, ExitStack() as opened:
        host, _, port = addresses["kafka"].rpartition(":")
        attacking = [
            opened.enter_context(socket.create_connection((host, int(port)), 20, source_address=("127.0.0.66", 0)))
            for _ in range(2 * LIMIT)
        ]
        refused = [connection for connection in attacking if is_closed(connection, 0.2)]
        assert len(refused) == LIMIT
        honest = opened.enter_context(connect(addresses["kafka"]))
        assert ask(honest, HELLO, 3).error_code == 0
        with urlopen(f"http://{addresses['http']}/metrics", timeout=20) as page:
            (line,) = [
                line
                for line in page.read().decode().splitlines()
                if 'refused_connections_total{listener="kafka"' in line
            ]
        assert float(line.rpartition(" ")[2]) == LIMIT
        for connection in attacking:
            connection.close()
        assert any(answers((host, int(port))) for _ in range(1000)), "the address is never admitted again"


def answers(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, 20, source_address=("127.0.0.66", 0)) as connection:
        try:
            return ask(connection, HELLO, 3).error_code == 0  # type: ignore[no-any-return]
        except (OSError, struct.error):  # its connections are not all closed yet
            return False
