from __future__ import annotations

import pytest

from trimq.protocols.kafka.messages.fetch import FetchPartition, PartitionData
from trimq.protocols.kafka.messages.produce import ProduceRequest, ProduceResponse
from trimq.protocols.kafka.messages.schema import (
    NO_ID,
    Struct,
    array,
    includes,
    int32,
    nullable_struct,
    string,
    struct,
    version_range,
)


@pytest.mark.parametrize(
    ("versions", "first", "last"),
    [("0+", 0, 32767), ("3+", 3, 32767), ("2-5", 2, 5), ("7", 7, 7), ("none", 1, 0)],
)
def test_a_range_of_versions_is_read(versions: str, first: int, last: int) -> None:
    assert version_range(versions) == (first, last)


@pytest.mark.parametrize(("version", "included"), [(1, False), (2, True), (5, True), (6, False)])
def test_both_ends_of_a_range_are_included(version: int, included: bool) -> None:
    assert includes("2-5", version) is included


def test_no_version_is_in_the_range_called_none() -> None:
    assert not any(includes("none", version) for version in range(-1, 20))


def test_fields_that_are_not_given_have_the_defaults_of_the_protocol() -> None:
    partition = FetchPartition()
    assert partition.current_leader_epoch == -1
    assert partition.high_watermark == 2**63 - 1
    assert partition.replica_directory_id == NO_ID
    assert PartitionData().current_leader is None
    assert ProduceRequest().transactional_id is None


def test_two_messages_never_share_a_list() -> None:
    first, second = ProduceResponse(), ProduceResponse()
    first.responses.append(None)  # type: ignore[arg-type]
    assert second.responses == []


class Inner(Struct):
    number: int = int32(default=5)


class Outer(Struct):
    name: str = string()
    inner: Inner = struct(Inner)
    perhaps: Inner | None = nullable_struct(Inner)
    all: list[Inner] = array(Inner)


def test_a_struct_that_cannot_be_null_is_there_by_default_and_one_that_can_is_not() -> None:
    outer = Outer()
    assert outer.inner == Inner(number=5)
    assert outer.perhaps is None
    assert Outer().inner is not outer.inner


def test_structs_compare_and_print_by_value() -> None:
    assert Outer(name="a", all=[Inner(number=1)]) == Outer(name="a", all=[Inner(number=1)])
    assert Outer(name="a") != Outer(name="b")
    assert repr(Inner()) == "Inner(number=5)"


def test_the_description_is_kept_in_the_order_of_the_wire() -> None:
    assert [field.name for field in Outer.FIELDS] == ["name", "inner", "perhaps", "all"]
