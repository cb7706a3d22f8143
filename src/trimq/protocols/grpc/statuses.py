"""gRPC status codes, and the encoded headers and trailers of answers. Knows no stream."""

from __future__ import annotations

from enum import IntEnum

from trimq.protocols.grpc.hpack import encode

ENCODINGS = ("identity", "deflate", "gzip")


class Status(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallRejected(Exception):
    """Call that ends with a status before it reaches the front-end."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


_FOUND = b"\x88"  # :status 200, as its index in the static table
_LONGEST_REASON = 1000

HEADERS = _FOUND + encode([("content-type", b"application/grpc")])
OK_TRAILERS = encode([("grpc-status", b"0")])


def trailers(status: Status, reason: str) -> bytes:
    return encode([("grpc-status", b"%d" % status), ("grpc-message", _percent_encoded(reason))])


def trailers_only(status: Status, reason: str) -> bytes:
    """Encodes an answer that consists of trailers only."""
    told = HEADERS + trailers(status, reason)
    if status is Status.UNIMPLEMENTED:
        told += encode([("grpc-accept-encoding", ",".join(ENCODINGS).encode())])
    return told


def http_error_headers(http_status: int) -> bytes:
    """Encodes an HTTP error for a request that is not gRPC."""
    return encode([(":status", b"%d" % http_status)])


def _percent_encoded(text: str) -> bytes:
    raw = text[:_LONGEST_REASON].encode("utf-8", "replace")
    return b"".join(b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte for byte in raw)
