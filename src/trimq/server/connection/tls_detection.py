"""Detects TLS by the first byte of a connection. Then hands the connection to the session, or to a `TlsTransport` in
front of it, and costs nothing for later bytes. Knows no protocol."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from trimq.server.connection.certificates import ListenerCertificate
from trimq.server.connection.session import Session
from trimq.server.connection.tls_transport import TlsTransport
from trimq.wire.receive_buffer import copy_into

log = logging.getLogger(__name__)

# TLS record type of a handshake. No protocol served here begins with this byte: it would be a frame of 369 MB or more,
# or not a letter.
_HANDSHAKE = 0x16
_FIRST_BYTES = 16 * 1024


class TlsDetector(asyncio.BufferedProtocol):
    def __init__(self, session: Session, certificate: ListenerCertificate) -> None:
        self._session = session
        self._certificate = certificate
        self._transport: asyncio.Transport
        self._first = bytearray(_FIRST_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._session.connection_made(transport)

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._first

    def buffer_updated(self, nbytes: int) -> None:
        first = memoryview(self._first)[:nbytes]
        if first[0] == _HANDSHAKE:
            self._encrypt(first)
        elif self._certificate.is_required:
            log.info(
                "connection of %s: closing (TLS is required, and the client does not use it)", self._session.address
            )
            self._transport.abort()
        else:
            self._transport.set_protocol(self._session)
            copy_into(self._session, first)

    def _encrypt(self, first: memoryview) -> None:
        layer = TlsTransport(self._transport, self._session, self._certificate.context())
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
        self._session.connection_lost(error)
