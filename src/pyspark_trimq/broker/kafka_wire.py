"""Kafka requests and responses that the source needs, in versions without tagged fields, and a connection for them.
Apache Kafka since 2.3 and this broker serve every version used here."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from pyspark_trimq.broker.encryption import untrusted_certificate_error
from pyspark_trimq.broker.login import Login, refused
from pyspark_trimq.broker.retry import RetryPolicy
from pyspark_trimq.mistakes import Mistake, Unreachable

T = TypeVar("T")

_TIMEOUT_S = 60
_MAX_RESPONSE_BYTES = 1 << 30
_CLIENT_ID = b"pyspark_trimq"

FETCH, LIST_OFFSETS = (1, 11), (2, 2)
SASL_HANDSHAKE, SASL_AUTHENTICATE = (17, 1), (36, 0)
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, LIST_GROUPS, DELETE_GROUPS = (8, 2), (9, 2), (10, 0), (16, 0), (42, 0)

EARLIEST, LATEST = -2, -1
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER = 1, 3, 6
TOPIC_NOT_ALLOWED, _UNSUPPORTED_SASL_MECHANISM, _ILLEGAL_SASL_STATE = 29, 33, 34
STALE_METADATA = (5, NOT_LEADER, 74, 76)  # another broker is the leader: refresh the metadata


_ERROR_TEXTS = {
    29: "the user lacks a permission for the topic",
    30: "the user lacks a permission for the group",
    31: "the user lacks a permission for the cluster",
}


class KafkaRefused(Exception):
    """The broker responded with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(_ERROR_TEXTS.get(code, f"Kafka error code {code}"))
        self.code = code


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ResponseReader:
    """Reads the fields of a response one after the other."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._at = 4  # after the correlation id

    def _take(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return int(value)

    def int8(self) -> int:
        return self._take(_INT8)

    def int16(self) -> int:
        return self._take(_INT16)

    def int32(self) -> int:
        return self._take(_INT32)

    def int64(self) -> int:
        return self._take(_INT64)

    def text(self) -> str:
        return bytes(self.take(max(self.int16(), 0))).decode()

    def data(self) -> memoryview:
        return self.take(max(self.int32(), 0))

    def take(self, size: int) -> memoryview:
        self._at += size
        return memoryview(self._data)[self._at - size : self._at]

    def array(self, read: Callable[[], T]) -> list[T]:
        return [read() for _ in range(max(self.int32(), 0))]


_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "bhiq")


def text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return _INT16.pack(len(raw)) + raw


def int32(value: int) -> bytes:
    return _INT32.pack(value)


def array(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return _INT32.pack(len(found)) + b"".join(found)


_FLEXIBLE_VERSIONS = {(3, 10)}


def frame(api: tuple[int, int], body: bytes) -> bytes:
    """Returns a complete request: length, header, body."""
    head = struct.pack(">hhih", *api, 0, len(_CLIENT_ID)) + _CLIENT_ID + (b"\x00" if api in _FLEXIBLE_VERSIONS else b"")
    return _INT32.pack(len(head) + len(body)) + head + body


class BrokerConnection:
    """Connection to one broker; uses TLS if there is a context."""

    def __init__(
        self,
        address: Address,
        retry_policy: RetryPolicy,
        login: Login | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self._login = login
        self._context = context
        self._retry_policy = retry_policy
        self._socket: socket.socket | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, api: tuple[int, int], body: bytes) -> ResponseReader:
        """Sends a request and returns the response. Raises Unreachable if the broker does not respond."""
        request = frame(api, body)
        return self._retry_policy.call(
            lambda: self._exchange(request),
            lambda error: Unreachable(f"the broker at {self.address} does not answer: {error}"),
        )

    def _exchange(self, request: bytes) -> ResponseReader:
        try:
            return self._send_and_receive(request)
        except OSError:
            self.close()
            raise

    def _send_and_receive(self, request: bytes) -> ResponseReader:
        if self._socket is None:
            self._socket = self._connected()
            if self._login is not None:
                self._log_in(self._socket, self._login)
        return self._round_trip(self._socket, request)

    def _connected(self) -> socket.socket:
        """Raises Mistake if the certificate of the broker is not trusted."""
        plain = socket.create_connection(self.address, _TIMEOUT_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is None:
                return plain
            return self._context.wrap_socket(plain, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise untrusted_certificate_error(str(self.address), error) from None
        except ssl.SSLError as error:
            plain.close()
            raise OSError(f"the TLS handshake failed ({error.reason or error})") from None
        except BaseException:
            plain.close()
            raise

    def _round_trip(self, connection: socket.socket, request: bytes) -> ResponseReader:
        connection.sendall(request)
        (size,) = _INT32.unpack(self._receive(connection, 4))
        if not 4 <= size <= _MAX_RESPONSE_BYTES:
            raise OSError(f"invalid response size of {size} bytes: is this a Kafka port?")
        return ResponseReader(self._receive(connection, size))

    def _log_in(self, connection: socket.socket, login: Login) -> None:
        """Raises Mistake if the broker refuses the login."""
        handshake, authenticate = sasl_frames(login)
        error = self._round_trip(connection, handshake).int16()
        if not error:
            error = self._round_trip(connection, authenticate).int16()
        if error:
            self.close()
            raise _login_error(self.address, login, error)

    def _receive(self, connection: socket.socket, size: int) -> bytearray:
        buffer = bytearray(size)
        view = memoryview(buffer)
        got = 0
        while got < size:
            count = connection.recv_into(view[got:])
            if not count:
                raise ConnectionError("the connection was closed")
            got += count
        return buffer


def sasl_frames(login: Login) -> tuple[bytes, bytes]:
    """Returns the two SASL requests that start a connection."""
    token = login.plain()
    return frame(SASL_HANDSHAKE, text("PLAIN")), frame(SASL_AUTHENTICATE, _INT32.pack(len(token)) + token)


def _login_error(address: Address, login: Login, error: int) -> Mistake:
    if error == _ILLEGAL_SASL_STATE:
        return Mistake(f"the broker at {address} does not use logins: leave out the options user and password")
    if error == _UNSUPPORTED_SASL_MECHANISM:
        return Mistake(f"the broker at {address} does not accept SASL PLAIN, the only mechanism supported here")
    return refused(str(address), login)


# -- messages


def list_offsets_request(topic: str, numbers: Iterable[int], time_ms: int, is_committed: bool) -> bytes:
    asked = array(struct.pack(">iq", number, time_ms) for number in numbers)
    return struct.pack(">ib", -1, is_committed) + array([text(topic) + asked])


def read_offsets(response: ResponseReader) -> dict[int, tuple[int, int]]:
    """Returns error code and offset by partition."""
    response.int32()

    def partition() -> tuple[int, int, int]:
        number, error = response.int32(), response.int16()
        response.int64()
        return number, error, response.int64()

    topics = response.array(lambda: (response.text(), response.array(partition)))
    return {number: (error, offset) for _, partitions in topics for number, error, offset in partitions}


class FetchedPartition(NamedTuple):
    error: int
    start: int
    end: int
    aborted: list[tuple[int, int]]
    records: memoryview


def fetch_request(topic: str, number: int, offset: int, max_bytes: int, is_committed: bool) -> bytes:
    wanted = struct.pack(">iiqqi", number, -1, offset, -1, max_bytes)
    head = struct.pack(">iiiibii", -1, 1000, 1, max_bytes, is_committed, 0, -1)
    return head + array([text(topic) + array([wanted])]) + array([]) + text("")


def read_fetched(response: ResponseReader) -> FetchedPartition:
    response.int32()
    error = response.int16()
    response.int32()

    def partition() -> FetchedPartition:
        response.int32()
        code = response.int16()
        end, stable_end, start = response.int64(), response.int64(), response.int64()
        aborted = response.array(lambda: (response.int64(), response.int64()))
        response.int32()
        return FetchedPartition(code, start, stable_end if stable_end >= 0 else end, aborted, response.data())

    topics = response.array(lambda: (response.text(), response.array(partition)))
    if error or not topics or not topics[0][1]:
        raise KafkaRefused(error)
    return topics[0][1][0]


def commit_request(group: str, offsets: Mapping[str, Mapping[int, int]], metadata: str) -> bytes:
    topics = array(
        text(topic) + array(struct.pack(">iq", number, offset) + text(metadata) for number, offset in numbers.items())
        for topic, numbers in offsets.items()
    )
    return text(group) + struct.pack(">i", -1) + text("") + struct.pack(">q", -1) + topics


def read_commit(response: ResponseReader) -> None:
    topics = response.array(lambda: (response.text(), response.array(lambda: (response.int32(), response.int16()))))
    for _, partitions in topics:
        for _, error in partitions:
            if error:
                raise KafkaRefused(error)


def read_offset_metadata(response: ResponseReader) -> set[str]:
    """Returns the metadata texts committed with the offsets of a group."""
    partitions = response.array(
        lambda: (
            response.text(),
            response.array(lambda: (response.int32(), response.int64(), response.text(), response.int16())),
        )
    )
    return {metadata for _, rows in partitions for _, _, metadata, _ in rows}
