"""The first bytes of a connection: they tell whether the peer encrypts. Then the session, or the layer of TLS in front
of it, has the connection, and nothing is between them and the socket any more."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from trimq.protocols.receive_buffer import copy_into
from trimq.server.connection.certificates import Certificates
from trimq.server.connection.session import Session
from trimq.server.connection.tls_transport import TlsTransport

log = logging.getLogger(__name__)

# TLS: the type of the record that a handshake begins with. No other first byte of what is served here: it would be a
# frame of 369 MB and more, or no letter.
_HANDSHAKE = 0x16
_FIRST_BYTES = 16 * 1024


class TlsDetector(asyncio.BufferedProtocol):
    def __init__(self, session: Session, certificates: Certificates) -> None:
        self._session = session
        self._certificates = certificates
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
        elif self._certificates.is_required:
            log.info("closing the connection of %s: it does not encrypt", self._session.address)
            self._transport.abort()
        else:
            self._transport.set_protocol(self._session)
            copy_into(self._session, first)

    def _encrypt(self, first: memoryview) -> None:
        layer = TlsTransport(self._transport, self._session, self._certificates.context())
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
