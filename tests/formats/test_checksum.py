from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from trimq.formats import checksum

KNOWN = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
]


def load_again(monkeypatch: pytest.MonkeyPatch, *, with_views: bool) -> ModuleType:
    """Loads the module with or without the optional package."""
    if not with_views:
        monkeypatch.setitem(sys.modules, "crc32c", None)
    spec = importlib.util.spec_from_file_location("checksum_loaded_again", checksum.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=[True, False], ids=["crc32c", "google_crc32c"])
def crc32c(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    module = load_again(monkeypatch, with_views=request.param)
    assert (module.crc32c is module.crc32c_of_copy) is not request.param
    return module.crc32c


@pytest.mark.parametrize(("data", "expected"), KNOWN)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_known_values_are_computed_for_every_kind_of_buffer(
    crc32c: Callable[..., int], kind: Callable[[bytes], object], data: bytes, expected: int
) -> None:
    assert crc32c(kind(data)) == expected


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_checksum_continues_from_the_bytes_before(
    crc32c: Callable[..., int], kind: Callable[[bytes], object]
) -> None:
    assert crc32c(kind(b"56789"), crc32c(kind(b"1234"))) == 0xE3069283


def test_a_slice_of_a_view_is_accepted(crc32c: Callable[..., int]) -> None:
    assert crc32c(memoryview(b"..123456789..")[2:11]) == 0xE3069283
