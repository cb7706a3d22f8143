from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import tracemalloc

import cramjam
import pytest

from trimq.formats.kafka_batch.compression import (
    BadCompression,
    Codec,
    ExpandsTooFar,
    UnknownCodec,
    compress,
    decompress,
)

MIB = 1024 * 1024
COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "dense": os.urandom(100_000),
    "sparse": bytes(3 * MIB),
    "one snappy block": b"ab" * 16 * 1024,
    "one byte more": b"ab" * 16 * 1024 + b"c",
}
# Payloads that Apache Kafka accepted and returned: three records of 200 letters.
GENUINE = {
    Codec.SNAPPY: (
        "82534e4150505900000000010000000100000045f504209e0300000001900361fe0100fe0100fe01000d012800a00300"
        "d00f0201900362fe0100fe0100fe01000d0101d218a01f0401900363fe0100fe0100fe01000d010000"
    ),
    Codec.LZ4: (
        "04224d186840750200000000000031300000009f9e03000000019003610100b4bf00a00300d00f02019003620100b400"
        "d2007fa01f04019003630100b050636363630000000000"
    ),
    Codec.ZSTD: (
        "28b52ffd6075015d0100e09e030000000190036100a00300d00f0201900362a01f0401900363000400449cac6a2c4004942752e008"
    ),
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_compressed_bytes_are_decompressed_unchanged(codec: Codec, content: bytes) -> None:
    assert decompress(codec, compress(codec, content), len(content)) == content


@pytest.mark.parametrize("codec", Codec)
def test_views_are_accepted(codec: Codec) -> None:
    packed = compress(codec, memoryview(b"..letters..")[2:9])
    assert decompress(codec, memoryview(b"." + packed)[1:], 100) == b"letters"
    assert decompress(codec, bytearray(packed), 100) == b"letters"


@pytest.mark.parametrize("codec", GENUINE)
def test_payloads_of_other_clients_are_read(codec: Codec) -> None:
    expanded = decompress(codec, bytes.fromhex(GENUINE[codec]), 1000)
    assert len(expanded) == 629
    for letter in b"abc":
        assert bytes([letter]) * 200 in expanded


def test_gzip_is_compatible_with_the_standard_library() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"letters"), 7) == b"letters"
    assert decompress(Codec.GZIP, gzip.compress(b"let") + gzip.compress(b"ters"), 7) == b"letters"
    assert gzip.decompress(compress(Codec.GZIP, b"letters")) == b"letters"


def test_snappy_without_framing_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"letters" * 10)), 70) == b"letters" * 10


def test_snappy_is_framed_as_the_java_client_does_it() -> None:
    packed = compress(Codec.SNAPPY, bytes(40_000))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (first,) = struct.unpack_from(">i", packed, 16)
    (second,) = struct.unpack_from(">i", packed, 20 + first)
    assert 24 + first + second == len(packed)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32 * 1024


def test_lz4_blocks_are_independent_because_the_java_client_reads_no_others() -> None:
    packed = compress(Codec.LZ4, bytes(200_000))
    assert packed[:4] == bytes.fromhex("04224d18")
    version, is_independent = packed[4] >> 6, packed[4] >> 5 & 1
    assert (version, is_independent) == (1, 1)


@pytest.mark.parametrize("is_linked", [False, True])
def test_an_lz4_frame_that_the_java_client_cannot_read_is_refused(is_linked: bool) -> None:
    compressor = cramjam.lz4.Compressor(block_linked=is_linked)
    compressor.compress(b"letters" * 1000)
    packed = bytes(compressor.finish())
    if is_linked:
        with pytest.raises(BadCompression, match="depend"):
            decompress(Codec.LZ4, packed, MIB)
    else:
        assert decompress(Codec.LZ4, packed, MIB) == b"letters" * 1000


@pytest.mark.parametrize("flags", [0b0110_0001, 0b0110_0010, 0b0010_0000, 0b1010_0000])
def test_an_lz4_frame_with_a_dictionary_or_of_another_version_is_refused(flags: int) -> None:
    packed = bytearray(compress(Codec.LZ4, b"letters" * 1000))
    packed[4] = flags
    with pytest.raises(BadCompression, match="frame"):
        decompress(Codec.LZ4, packed, MIB)


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    content = b"letters" * 100_000
    packed = compress(codec, content)
    assert decompress(codec, packed, len(content)) == content
    with pytest.raises(ExpandsTooFar):
        decompress(codec, packed, len(content) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("limit", [0, 1, 1000, MIB])
def test_a_compression_bomb_is_stopped_at_the_limit(codec: Codec, limit: int) -> None:
    packed = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(ExpandsTooFar):
            decompress(codec, packed, limit)
        assert tracemalloc.get_traced_memory()[1] < limit + MIB
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory in kilobytes")
@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_compression_bomb_uses_no_memory_outside_of_python_either(codec: Codec) -> None:
    program = f"""
import resource, sys
from trimq.formats.kafka_batch.compression import ExpandsTooFar, decompress
packed = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress({int(codec)}, packed, {MIB})
except ExpandsTooFar:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    packed = compress(codec, bytes(256 * MIB))
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=packed,
        capture_output=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert int(done.stdout) < 32 * 1024


def test_a_snappy_block_that_declares_more_than_it_can_hold_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadCompression, match="cannot hold"):
            decompress(Codec.SNAPPY, b"\xff\xff\xff\x7f\x00a", 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncated_changed_or_missing_bytes_are_refused(codec: Codec) -> None:
    packed = compress(codec, b"letters" * 1000)
    for bad in (b"", packed[:-1], packed[: len(packed) // 2], b"garbage", b"\x00" * 30, b"\xff" * 30):
        with pytest.raises(BadCompression):
            decompress(codec, bad, MIB)


@pytest.mark.parametrize("size", [-1, 0, 8, 1 << 30])
def test_a_snappy_block_that_does_not_fit_is_refused(size: int) -> None:
    packed = compress(Codec.SNAPPY, b"x")
    with pytest.raises(BadCompression):
        decompress(Codec.SNAPPY, packed[:16] + struct.pack(">i", size) + packed[20:], MIB)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_an_unknown_codec_is_refused_both_ways(codec: int) -> None:
    with pytest.raises(UnknownCodec):
        compress(codec, b"x")
    with pytest.raises(UnknownCodec):
        decompress(codec, b"x", 10)
