"""The codecs of record batches. Expands never beyond the limit that it is given; knows nothing of batches."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from trimq.model import Buffer


class Codec(IntEnum):
    """The number that a batch's attributes carry in bits 0 to 2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BadCompression(ValueError):
    """The compressed bytes cannot be expanded."""


class UnknownCodec(BadCompression):
    """The number belongs to no codec."""


class ExpandsTooFar(BadCompression):
    """The bytes would expand beyond the limit: a compression bomb, or a limit too low."""


_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3

# The framing of the Java snappy library: magic, version 1, oldest compatible version 1, then length-prefixed blocks.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

# Snappy's densest element, 3 bytes, stands for 64: whoever declares more than that lies.
_SNAPPY_MAX_RATIO = 22

# An LZ4 frame: magic, then flags: version in bits 6 and 7, independent blocks in 5, a dictionary in 0, nothing in 1.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_READ_FLAGS = 0b1110_0011
_LZ4_KNOWN_FLAGS = 0b0110_0000

_FIRST_GUESS_BYTES = 64 * 1024
# What the expander says when its output is full; a test fails when a release of it says otherwise.
_OUTPUT_IS_FULL = "failed to write whole buffer"

_Expander = Callable[[Buffer, bytearray], int]
_EXPANDERS: dict[int, _Expander] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the form that every Kafka client can read. Snappy has no levels; None leaves it to the codec."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if level is None else level))
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise UnknownCodec(f"there is no codec {codec}")


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # The Java client refuses frames whose blocks depend on each other.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(data if type(data) is bytes else bytes(data))  # takes nothing else
    return bytes(compressor.finish())


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress(codec: int, buffer: Buffer, limit: int) -> bytes:
    """What `buffer` expands to, at most `limit` bytes; beyond that ExpandsTooFar, having allocated no more."""
    if codec == Codec.NONE:
        if len(buffer) > limit:
            raise ExpandsTooFar(f"{len(buffer)} bytes exceed the limit of {limit}")
        return bytes(buffer)
    if codec == Codec.SNAPPY:
        return _expand_snappy(memoryview(buffer), limit)
    expander = _EXPANDERS.get(codec)
    if expander is None:
        raise UnknownCodec(f"there is no codec {codec}")
    if codec == Codec.LZ4:
        _check_lz4_frame(buffer)
    return _expand(expander, buffer, limit)


def _check_lz4_frame(buffer: Buffer) -> None:
    """What the expander could read and the Java client cannot is refused, as by Kafka: it would stop every consumer."""
    if bytes(buffer[: len(_LZ4_MAGIC)]) != _LZ4_MAGIC or len(buffer) == len(_LZ4_MAGIC):
        raise BadCompression("the compressed records are no LZ4 frame")
    flags = buffer[len(_LZ4_MAGIC)]
    if flags & _LZ4_READ_FLAGS != _LZ4_KNOWN_FLAGS:
        raise BadCompression(
            f"an LZ4 frame with flags {flags:#04x}: its blocks depend on each other or on a dictionary, or it is of "
            "another version"
        )


def _expand(expander: _Expander, buffer: Buffer, limit: int) -> bytes:
    """Expand into an output that grows up to the limit. Declared sizes are not believed: they are the sender's."""
    room = min(4 * len(buffer) + _FIRST_GUESS_BYTES, limit)
    while True:
        output = bytearray(room)
        try:
            size = expander(buffer, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise BadCompression(f"the compressed records cannot be read: {error}") from error
            if room >= limit:
                raise ExpandsTooFar(f"the compressed records exceed the limit of {limit} bytes") from None
            room = min(4 * room, limit)
        else:
            return bytes(memoryview(output)[:size])


def _expand_snappy(view: memoryview, limit: int) -> bytes:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _expand_snappy_block(view, limit)
    parts = []
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise BadCompression("the snappy header is cut short")
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise BadCompression("a snappy block is cut short")
        (size,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 < size <= len(view) - position:
            raise BadCompression(f"a snappy block of {size} bytes does not fit")
        block = _expand_snappy_block(view[position : position + size], limit)
        limit -= len(block)
        position += size
        parts.append(block)
    return b"".join(parts)


def _expand_snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
        if declared > limit:
            raise ExpandsTooFar(f"a snappy block of {declared} bytes exceeds the limit by {declared - limit}")
        if declared > _SNAPPY_MAX_RATIO * len(block):
            raise BadCompression(f"a snappy block of {len(block)} bytes cannot hold {declared}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BadCompression(f"the compressed records cannot be read: {error}") from error
