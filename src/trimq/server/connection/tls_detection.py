"""Detects TLS by the first byte of a connection. Then hands the connection to the session, or to a `TlsTransport` in
front of it, and costs nothing for later bytes. Knows no protocol."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from trimq.core.security.login_delays import source_of
from trimq.server.connection.certificates import ListenerTls
from trimq.server.connection.handshakes import Handshake, Handshakes
from trimq.server.connection.session import Session
from trimq.server.connection.tls_transport import TlsTransport
from trimq.wire.receive_buffer import copy_into

log = logging.getLogger(__name__)

# TLS record type of a handshake. No protocol served here begins with this byte: it would be a frame of 369 MB or more,
# or not a letter.
_HANDSHAKE = 0x16


class TlsDetector(asyncio.BufferedProtocol):
    def __init__(self, session: Session, tls: ListenerTls, handshakes: Handshakes) -> None:
        self._session = session
        self._tls = tls
        self._handshakes = handshakes
        self._handshake: Handshake | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._session.connection_made(transport)
        if self._tls.is_required and not transport.is_closing():
            self._begin()

    def _begin(self) -> Handshake:
        if self._handshake is None:
            self._handshake = self._handshakes.begin(source_of(self._session.address), self._session.abort)
        return self._handshake

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._tls.buffer

    def buffer_updated(self, nbytes: int) -> None:
        first = memoryview(self._tls.buffer)[:nbytes]
        if first[0] == _HANDSHAKE:
            self._encrypt(first)
        elif self._tls.is_required:
            log.info(
                "connection of %s: closing (TLS is required, and the client does not use it)", self._session.address
            )
            self._transport.abort()
        else:
            self._transport.set_protocol(self._session)
            copy_into(self._session, first)

    def _encrypt(self, first: memoryview) -> None:
        layer = TlsTransport(self._transport, self._session, self._tls, self._begin())
        self._transport.set_protocol(layer)
        self._session.use(layer)
        layer.receive(first)

    def eof_received(self) -> bool:
        return self._session.eof_received()

    def pause_writing(self) -> None:
        self._session.pause_writing()

    def resume_writing(self) -> None:
        self._session.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self._handshake is not None:
            self._handshake.end()
        self._session.connection_lost(error)
