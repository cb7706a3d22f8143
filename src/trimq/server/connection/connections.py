"""Open connections of all listeners: lists them, and closes one by its name. Knows no protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimq.protocols.contract import OpenConnection
from trimq.server.connection.listener import AnyListener
from trimq.server.connection.session import Session


class Connections:
    """`listeners` may change: the node adds them as it starts."""

    def __init__(self, listeners: Mapping[str, AnyListener]) -> None:
        self._listeners = listeners

    def all(self) -> list[OpenConnection]:
        return [connection for connection, _ in self._open()]

    def close(self, name: str, reason: str) -> bool:
        """Closes a connection, with the reason if its protocol can tell it. Returns False if there is no such
        connection."""
        for connection, session in self._open():
            if connection.name == name:
                session.force_close(reason)
                return True
        return False

    def close_user(self, user: str, reason: str) -> None:
        """Closes all connections of a user."""
        for connection, session in list(self._open()):
            if connection.details.user == user:
                session.force_close(reason)

    def _open(self) -> Iterator[tuple[OpenConnection, Session]]:
        for listener_name, listener in self._listeners.items():
            for session, connected_ms in listener.sessions():
                details = session.describe()
                if details is not None:
                    name = f"{session.address} -> {session.local_address}"
                    yield OpenConnection(name, listener_name, session.address, connected_ms, details), session
