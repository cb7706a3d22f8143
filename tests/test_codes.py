"""Every refusal of the broker's API has a code in every protocol."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import trimq.errors
import trimq.protocols
from trimq.errors import Refusal

FOLDERS = [path.parent for folder in trimq.protocols.__path__ for path in Path(folder).glob("*/__init__.py")]

# Transports of other front-ends, which see no refusals.
CARRIERS = {"grpc"}
CODES = {
    "amqp": "trimq.protocols.amqp.wire.codes",
    "kafka": "trimq.protocols.kafka.names.codes",
    "rocketmq": "trimq.protocols.rocketmq.wire.codes",
}
FRONT_ENDS = sorted(folder.name for folder in FOLDERS if folder.name not in CARRIERS)


def shared_refusals() -> list[type[Refusal]]:
    """The refusals of trimq.errors; refusals of a single protocol are defined, with their codes, in that protocol."""
    members = inspect.getmembers(trimq.errors, inspect.isclass)
    return [found for _, found in members if issubclass(found, Refusal) and found is not Refusal]


def missing(codes: ModuleType) -> list[str]:
    return [refusal.__name__ for refusal in shared_refusals() if refusal not in codes.CODES]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_front_end_has_a_code_for_every_refusal(front_end: str) -> None:
    codes = importlib.import_module(CODES[front_end])
    assert missing(codes) == []


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_front_end_has_codes_for_refusals_only(front_end: str) -> None:
    codes = importlib.import_module(CODES[front_end])
    assert [key for key in codes.CODES if not (isinstance(key, type) and issubclass(key, Refusal))] == []


@pytest.mark.parametrize(
    "folder", [folder for folder in FOLDERS if folder.name in CARRIERS], ids=lambda each: each.name
)
def test_a_transport_has_no_refusals(folder: Path) -> None:
    assert [path.name for path in folder.rglob("*.py") if "Refusal" in path.read_text()] == []


def test_the_front_ends_are_found() -> None:
    assert "kafka" in FRONT_ENDS
    assert trimq.errors.DiskFull in shared_refusals()


def test_a_missing_code_is_found() -> None:
    codes = ModuleType("codes")
    codes.CODES = dict.fromkeys(shared_refusals(), 1)
    del codes.CODES[trimq.errors.DiskFull]
    assert missing(codes) == ["DiskFull"]
