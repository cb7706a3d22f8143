"""TLS between a session and its socket: acts as a transport for the session and as a protocol for the socket. Uses
OpenSSL in memory, so that it runs on any event loop, including a simulated one."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from trimq.model import Buffer
from trimq.server.connection.certificates import ListenerTls
from trimq.server.connection.handshakes import Handshake
from trimq.server.connection.send_queue import send_eof
from trimq.server.connection.session import Session

log = logging.getLogger(__name__)

_RECORD_BYTES = 16 * 1024


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    def __init__(self, socket: asyncio.Transport, session: Session, tls: ListenerTls, handshake: Handshake) -> None:
        super().__init__()
        self._socket = socket
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._encrypted = tls.buffer
        self._principal_of = tls.principal_of
        self._handshake = handshake
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_handshake_done = False
        self._is_paused = False
        self._has_sent_close_notify = False
        self._has_received_close_notify = False

    # -- calls of the socket

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._encrypted

    def buffer_updated(self, nbytes: int) -> None:
        self.receive(memoryview(self._encrypted)[:nbytes])

    def receive(self, encrypted: Buffer) -> None:
        if self._has_sent_close_notify:
            return  # sent before the peer received our close_notify
        self._incoming.write(encrypted)
        self._resume()

    def eof_received(self) -> bool:
        return False if self._has_sent_close_notify or not self._is_handshake_done else self._session.eof_received()

    def pause_writing(self) -> None:
        self._session.pause_writing()

    def resume_writing(self) -> None:
        self._session.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._handshake.end()
        self._session.connection_lost(error)

    def _resume(self) -> None:
        try:
            if not self._is_handshake_done:
                self._tls.do_handshake()
                self._is_handshake_done = True
                self._handshake.end()
                if (principal := self._principal_of(self._tls)) is not None:
                    self._session.identify(principal)
            self._hand_over()
        except ssl.SSLWantReadError:
            self._send_encrypted()
        except ssl.SSLError as error:
            log.info("connection of %s: closing (TLS error: %s)", self._session.address, error.reason or error)
            self._send_encrypted()  # the TLS alert
            self._socket.close()
        else:
            self._send_encrypted()

    def _hand_over(self) -> None:
        """Passes decrypted bytes to the session while it reads. SSLWantReadError: there are no more."""
        session = self._session
        while not (self._is_paused or self._has_sent_close_notify or self._has_received_close_notify):
            buffer = session.get_buffer(_RECORD_BYTES)
            try:
                size = cast(int, self._tls.read(len(buffer), cast(bytearray, buffer)))
            except ssl.SSLZeroReturnError:
                size = 0
            if not size:
                self._has_received_close_notify = True
                if not session.eof_received():
                    self.close()
                return
            session.buffer_updated(size)

    def _send_encrypted(self) -> None:
        if (encrypted := self._outgoing.read()) and not self._socket.is_closing():
            self._socket.write(encrypted)

    # -- calls of the session

    def write(self, data: Buffer) -> None:
        if not self._is_handshake_done or self._has_sent_close_notify:
            return  # the peer cannot read it: before the handshake, or after close_notify
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._send_encrypted()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._socket.resume_reading()
            # No further event announces bytes that OpenSSL has already; not in this call, which is inside the session's
            # turn.
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        if not self._is_paused and not self._socket.is_closing():
            self._resume()

    def can_write_eof(self) -> bool:
        return self._socket.can_write_eof()

    def write_eof(self) -> None:
        self._send_close_notify()
        send_eof(self._socket)

    def _send_close_notify(self) -> None:
        if self._is_handshake_done and not self._has_sent_close_notify:
            self._has_sent_close_notify = True
            with suppress(ssl.SSLError):  # does not wait for the close_notify of the peer
                self._tls.unwrap()
            self._send_encrypted()

    def close(self) -> None:
        self._send_close_notify()
        self._socket.close()

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)
