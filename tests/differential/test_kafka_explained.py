"""Explained differences from Kafka are recognised where they are, and explain nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from differential.kafka_explained import EXPLAINED
from differential.sequences import Step, differences


def explained(request: str, ours: Any, theirs: Any, arguments: dict[str, Any] | None = None) -> set[tuple[str, str]]:
    """Path of each difference, with the name of its reason; the name is empty if there is none."""
    found = differences([Step(0, request, arguments or {})], [ours], [theirs])
    return {(each.path, next((reason.name for reason in EXPLAINED if reason.applies(each)), "")) for each in found}


def test_an_error_of_the_server_explains_its_own_element_only() -> None:
    ours = {"results": [{"error_code": 42, "name": "a"}, {"error_code": 3, "name": "b"}]}
    theirs = {"results": [{"error_code": -1, "name": "c"}, {"error_code": 0, "name": "b"}]}
    assert explained("AlterConfigs", ours, theirs, {"resources": []}) == {
        (".results[].error_code", "server-errors"),
        (".results[].error_code", ""),
        (".results[].name", "server-errors"),
    }


def test_an_error_of_the_whole_answer_explains_the_lists_that_are_missing() -> None:
    ours, theirs = {"error_code": 0, "responses": [1]}, {"error_code": -1, "responses": []}
    assert explained("Fetch", ours, theirs) == {
        (".error_code", "server-errors"),
        (".responses.length", "server-errors"),
    }


@pytest.mark.parametrize(("our_code", "name"), [(3, "reasons"), (5, "")])
def test_a_message_is_only_explained_if_both_refuse_with_the_same_code(our_code: int, name: str) -> None:
    ours = {"results": [{"error_code": our_code, "error_message": "<text>"}]}
    theirs = {"results": [{"error_code": 3, "error_message": None}]}
    assert (".results[].error_message", name) in explained("DescribeConfigs", ours, theirs)


def test_only_the_members_and_the_leader_differ_if_another_member_leads() -> None:
    join = Step(0, "JoinGroup", {"group_id": "g", "protocols": []})
    steps = [Step(0, "LeaveGroup", {"group_id": "g"}), join]
    ours = [{}, {"leader": "a", "members": [], "metadata": ["x"]}]
    theirs = [{}, {"leader": "b", "members": ["b"], "metadata": "x"}]
    names = [{reason.name for reason in EXPLAINED if reason.applies(each)} for each in differences(steps, ours, theirs)]
    assert names == [{"leaders"}, {"leaders"}, set()]


def test_batches_of_the_next_segment_follow_those_that_kafka_sends() -> None:
    old, new = {"base": 0, "maxts": 7_200_000}, {"base": 1, "maxts": "now"}

    def compared(ours: list[Any], theirs: list[Any]) -> set[tuple[str, str]]:
        answers = [{"responses": [{"records": {"batches": each, "left": 0}}]} for each in (ours, theirs)]
        return explained("Fetch", *answers)

    path = ".responses[].records.batches.length"
    assert compared([old, new], [old]) == {(path, "segments")}
    assert compared([new, new], [new]) == {(path, "")}
    assert compared([old], [old, new]) == {(path, "")}
