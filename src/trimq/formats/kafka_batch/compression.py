"""Codecs of record batches. Never expands beyond the given limit; knows nothing of batches."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from trimq.model import Buffer


class Codec(IntEnum):
    """Number in bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BadCompression(ValueError):
    """The compressed bytes cannot be expanded."""


class UnknownCodec(BadCompression):
    """No codec has this number."""


class ExpandsTooFar(BadCompression):
    """The bytes would expand beyond the limit: a compression bomb, or a limit too low."""


_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3

# Framing of the Java snappy library: magic, version 1, oldest compatible version 1, then length-prefixed blocks.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

# Snappy's densest element, 3 bytes, stands for 64: a larger declared size is false.
_SNAPPY_MAX_RATIO = 22

# LZ4 frame: magic, then flags: version in bits 6 and 7, independent blocks in 5, a dictionary in 0, 1 reserved.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_READ_FLAGS = 0b1110_0011
_LZ4_KNOWN_FLAGS = 0b0110_0000

_FIRST_GUESS_BYTES = 64 * 1024

# A larger output grows by pieces of this size: clearing 128 MiB at once would keep other threads waiting for 80 ms.
_GROWTH_BYTES = 1024 * 1024
# Error text of the expander for a full output; a test fails if a release changes it.
_OUTPUT_IS_FULL = "failed to write whole buffer"

_Expander = Callable[[Buffer, bytearray], int]
_EXPANDERS: dict[int, _Expander] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compresses `data` in a form that every Kafka client can read. Snappy has no levels; None uses the codec's
    default."""
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
    raise UnknownCodec(f"unknown compression codec {codec}")


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # The Java client rejects frames with dependent blocks.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(data if type(data) is bytes else bytes(data))  # accepts only bytes
    return bytes(compressor.finish())


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress(codec: int, buffer: Buffer, limit: int) -> bytes:
    """Expands `buffer` to at most `limit` bytes. Raises ExpandsTooFar beyond that, without allocating more."""
    return bytes(decompress_once(codec, buffer, limit))


def decompress_once(codec: int, buffer: Buffer, limit: int) -> bytes | bytearray:
    """Same as `decompress`, without the last copy: for bytes that are only scanned."""
    if codec == Codec.NONE:
        if len(buffer) > limit:
            raise ExpandsTooFar(f"{len(buffer)} bytes exceed the limit of {limit}")
        return bytes(buffer)
    if codec == Codec.SNAPPY:
        return _expand_snappy(memoryview(buffer), limit)
    expander = _EXPANDERS.get(codec)
    if expander is None:
        raise UnknownCodec(f"unknown compression codec {codec}")
    if codec == Codec.LZ4:
        _check_lz4_frame(buffer)
    return _expand(expander, buffer, limit)


def _check_lz4_frame(buffer: Buffer) -> None:
    """Rejects frames that the expander can read but the Java client cannot, as Apache Kafka does: they would stop every
    consumer."""
    if bytes(buffer[: len(_LZ4_MAGIC)]) != _LZ4_MAGIC or len(buffer) == len(_LZ4_MAGIC):
        raise BadCompression("the compressed records are not an LZ4 frame")
    flags = buffer[len(_LZ4_MAGIC)]
    if flags & _LZ4_READ_FLAGS != _LZ4_KNOWN_FLAGS:
        raise BadCompression(
            f"unsupported LZ4 frame with flags {flags:#04x}: its blocks depend on each other or on a dictionary, or "
            "its version is unknown"
        )


def _expand(expander: _Expander, buffer: Buffer, limit: int) -> bytearray:
    """Expands into an output that grows up to the limit. Ignores declared sizes, since the sender controls them."""
    room = min(4 * len(buffer) + _FIRST_GUESS_BYTES, limit)
    while True:
        output = bytearray(room) if room <= _GROWTH_BYTES else _zeros(room)
        try:
            size = expander(buffer, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise BadCompression(f"the compressed records cannot be read: {error}") from error
            if room >= limit:
                raise ExpandsTooFar(f"the compressed records exceed the limit of {limit} bytes") from None
            room = min(4 * room, limit)
        else:
            del output[size:]
            return output


def _zeros(count: int) -> bytearray:
    output, piece = bytearray(), bytes(_GROWTH_BYTES)
    while len(output) < count:
        output += piece[: count - len(output)]
    return output


def _expand_snappy(view: memoryview, limit: int) -> bytes:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _expand_snappy_block(view, limit)
    parts = []
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise BadCompression("the snappy header is truncated")
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise BadCompression("a snappy block is truncated")
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
