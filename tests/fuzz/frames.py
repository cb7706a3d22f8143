"""Frames of client streams: each port's way to cut a stream into whole frames, to open a frame for a change of its
content, and to close it again with the right lengths."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from google_crc32c import value as crc32c

from trimq.errors import ProtocolError
from trimq.protocols.grpc.hpack import HeaderDecoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_CONTENT_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


@dataclass(frozen=True)
class Format:
    """`open` returns head and content of a frame, `close` a frame of both. `kinds` tells what each frame of a stream
    asks for; `is_stateful` streams mean something only from their beginning."""

    cut: Callable[[bytes], list[bytes]]
    open: Callable[[bytes], tuple[bytes, bytes]]
    close: Callable[[bytes, bytes], bytes]
    kinds: Callable[[list[bytes]], list[Hashable]]
    is_stateful: bool


# --- Kafka and RocketMQ remoting: a length of four bytes --------------------------------------------------------------


def _cut_by_length(stream: bytes) -> list[bytes]:
    frames, at = [], 0
    while at + 4 <= len(stream):
        end = at + 4 + int.from_bytes(stream[at : at + 4], "big")
        if end > len(stream):
            break
        frames.append(stream[at:end])
        at = end
    return frames


def _open_kafka(frame: bytes) -> tuple[bytes, bytes]:
    return b"", frame[4:]


def _close_kafka(head: bytes, content: bytes) -> bytes:
    content = _mend_checksums(content)
    return len(content).to_bytes(4, "big") + content


def _mend_checksums(content: bytes) -> bytes:
    """Makes the checksums of record batches right, wherever something looks like a batch of version 2."""
    if content[:2] != b"\x00\x00":
        return content
    mended = bytearray(content)
    for found in re.finditer(rb"\x02", content):
        begin = found.start() - 16
        if begin < 0:
            continue
        length = int.from_bytes(content[begin + 8 : begin + 12], "big")
        end = begin + 12 + length
        if length >= 49 and end <= len(content):
            mended[begin + 17 : begin + 21] = crc32c(bytes(mended[begin + 21 : end])).to_bytes(4, "big")
    return bytes(mended)


def _kinds_of_kafka(frames: list[bytes]) -> list[Hashable]:
    return [frame[4:8] for frame in frames]


def _open_remoting(frame: bytes) -> tuple[bytes, bytes]:
    """The head is the serialization with the header, the content the body; without a body it is the other way round."""
    size = int.from_bytes(frame[5:8], "big")
    if len(frame) == 8 + size:
        return frame[4:5], frame[8:]
    return frame[4:5] + frame[8 : 8 + size], frame[8 + size :]


def _close_remoting(head: bytes, content: bytes) -> bytes:
    header, body = (head[1:], content) if len(head) > 1 else (content, b"")
    word = head[:1] + len(header).to_bytes(3, "big")
    return (4 + len(header) + len(body)).to_bytes(4, "big") + word + header + body


def _kinds_of_remoting(frames: list[bytes]) -> list[Hashable]:
    return [_remoting_code(frame) for frame in frames]


def _remoting_code(frame: bytes) -> Hashable:
    if frame[4:5] == b"\x01":
        return "binary", frame[8:10]
    found = re.search(rb'"code": ?(\d+)', frame)
    return "json", found and found.group(1)


# --- AMQP -------------------------------------------------------------------------------------------------------------


def _cut_amqp(stream: bytes) -> list[bytes]:
    frames, at = [stream[:8]], 8
    while at + 7 <= len(stream):
        end = at + 8 + int.from_bytes(stream[at + 3 : at + 7], "big")
        if end > len(stream):
            break
        frames.append(stream[at:end])
        at = end
    return frames


def _open_amqp(frame: bytes) -> tuple[bytes, bytes]:
    """The greeting, and a frame without its end, are content alone."""
    return (frame[:3], frame[7:-1]) if len(frame) >= 8 and frame[-1] == 0xCE else (b"", frame)


def _close_amqp(head: bytes, content: bytes) -> bytes:
    return head + len(content).to_bytes(4, "big") + content + b"\xce" if head else content


def _kinds_of_amqp(frames: list[bytes]) -> list[Hashable]:
    return [frame[7:11] if frame[0] == 1 else frame[:1] for frame in frames]


# --- HTTP/2 with gRPC -------------------------------------------------------------------------------------------------


def _cut_http_2(stream: bytes) -> list[bytes]:
    frames, at = [stream[: len(PREFACE)]], len(PREFACE)
    while at + 9 <= len(stream):
        end = at + 9 + int.from_bytes(stream[at : at + 3], "big")
        if end > len(stream):
            break
        frames.append(stream[at:end])
        at = end
    return frames


def _is_message(frame: bytes) -> bool:
    """Whether this is a DATA frame with one whole gRPC message, not compressed."""
    return len(frame) >= 14 and frame[3] == 0 and not frame[4] & 8 and frame[9] == 0


def _open_http_2(frame: bytes) -> tuple[bytes, bytes]:
    if frame == PREFACE:
        return b"", frame
    if _is_message(frame):
        return frame[3:9] + b"\x00", frame[14:]
    return frame[3:9], frame[9:]


def _close_http_2(head: bytes, content: bytes) -> bytes:
    if not head:
        return content
    if len(head) == 7:
        content = b"\x00" + len(content).to_bytes(4, "big") + content
    return (len(content) & 0xFFFFFF).to_bytes(3, "big") + head[:6] + content


def _kinds_of_http_2(frames: list[bytes]) -> list[Hashable]:
    return list(_walk_http_2(frames))


def _walk_http_2(frames: list[bytes]) -> Iterator[Hashable]:
    decoder, paths = HeaderDecoder(1 << 16), {}
    for frame in frames:
        number = frame[5:9]
        if frame != PREFACE and frame[3] == 1:
            try:
                fields = dict(decoder.decode(frame[9:]).fields)
            except (ProtocolError, struct.error, IndexError):
                fields = {}
            paths[number] = fields.get(":path", b"")
        yield frame[3], paths.get(number, b"")


# --- HTTP/1.1 ---------------------------------------------------------------------------------------------------------


def _cut_http(stream: bytes) -> list[bytes]:
    frames, at = [], 0
    while (end := stream.find(b"\r\n\r\n", at)) >= 0:
        length = _CONTENT_LENGTH.search(stream[at : end + 2])
        end += 4 + (int(length.group(1)) if length else 0)
        frames.append(stream[at:end])
        at = end
    return frames


def _open_http(frame: bytes) -> tuple[bytes, bytes]:
    """Without a body the content is the request itself."""
    head, _, body = frame.partition(b"\r\n\r\n")
    return (head, body) if body else (b"", frame)


def _close_http(head: bytes, content: bytes) -> bytes:
    if not head:
        return content
    return _CONTENT_LENGTH.sub(b"\r\nContent-Length: %d" % len(content), head) + b"\r\n\r\n" + content


def _kinds_of_http(frames: list[bytes]) -> list[Hashable]:
    return [re.sub(rb"[?/][^/ ]*( HTTP.*)?$", b"", frame.partition(b"\r\n")[0]) for frame in frames]


KAFKA = Format(_cut_by_length, _open_kafka, _close_kafka, _kinds_of_kafka, False)
REMOTING = Format(_cut_by_length, _open_remoting, _close_remoting, _kinds_of_remoting, False)
AMQP = Format(_cut_amqp, _open_amqp, _close_amqp, _kinds_of_amqp, True)
GRPC = Format(_cut_http_2, _open_http_2, _close_http_2, _kinds_of_http_2, True)
HTTP = Format(_cut_http, _open_http, _close_http, _kinds_of_http, False)

FORMATS = {
    "kafka": KAFKA,
    "rocketmq": REMOTING,
    "rocketmq_broker": REMOTING,
    "rocketmq_grpc": GRPC,
    "amqp": AMQP,
    "http": HTTP,
}
"""By the name of the listener in the broker's ready file."""
