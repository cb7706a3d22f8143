"""Comparison and shrinking, without a broker."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from differential.runs import Comparison
from differential.sequences import Explained, Step, differences, first_unexplained, until_last


class Counter:
    """Broker that counts additions per connection. With `limit`, it refuses to count further."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit

    def run(self, steps: Sequence[Step]) -> list[Any]:
        total = 0
        answers: list[Any] = []
        for step in steps:
            if step.request == "add" and total != self.limit:
                total += 1
            answers.append({"total": [total]} if step.request == "read" else {})
        return answers


def generate(source: random.Random) -> list[Step]:
    return [Step(0, source.choice(["add", "read", "wait"])) for _ in range(20)]


@pytest.mark.parametrize(
    ("ours", "theirs", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [".a"]),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, [".a[].b"]),
        ({"a": [1]}, {"a": [1, 2]}, [".a.length"]),
        ({}, {"a": None}, [".a"]),
        ("closed", {"a": 1}, [""]),
    ],
)
def test_each_leaf_that_differs_is_found(ours: Any, theirs: Any, paths: list[str]) -> None:
    step = Step(0, "read")
    assert [each.path for each in differences([step], [ours], [theirs])] == paths


def test_equal_brokers_have_no_difference() -> None:
    comparison = Comparison(Counter(), Counter(), ())
    report = comparison.run(generate, first_seed=0, seconds=60, max_sequences=20)
    comparison.close()
    assert report.findings == []
    assert (report.sequences, report.steps) == (20, 400)


def test_a_difference_is_shrunk_to_the_steps_that_show_it() -> None:
    comparison = Comparison(Counter(limit=2), Counter(), ())
    report = comparison.run(generate, first_seed=0, seconds=60, max_sequences=20)
    comparison.close()
    shortest = min(report.findings, key=lambda finding: len(finding.steps))
    assert [step.request for step in shortest.steps] == ["add", "add", "add", "read"]
    assert shortest.difference.signature == "read.total[]: 2 instead of 3"


def test_an_explained_difference_is_no_finding_and_is_counted_as_seen() -> None:
    explained = Explained("limit-of-two", lambda each: each.path == ".total[]")
    comparison = Comparison(Counter(limit=2), Counter(), (explained,))
    report = comparison.run(generate, first_seed=0, seconds=60, max_sequences=20)
    comparison.close()
    assert report.findings == []
    assert report.seen == {"limit-of-two"}


def test_differences_behind_an_explained_one_are_found() -> None:
    steps = [Step(0, "read"), Step(0, "list")]
    explained = Explained("read", lambda each: each.step.request == "read")
    found = first_unexplained(differences(steps, [1, 1], [2, 2]), [explained])
    assert found is not None
    assert found.step.request == "list"


def test_nothing_is_compared_behind_an_explained_difference_that_is_the_last() -> None:
    steps = [Step(0, "read"), Step(0, "list"), Step(0, "read")]
    found = list(differences(steps, [1, {"a": 1, "b": 1}, 1], [2, {"a": 2, "b": 2}, 2]))
    last = Explained("list", lambda each: each.path == ".b", is_last=True)
    assert [each.position for each in until_last(found, (last,))] == [0, 1, 1]
    assert len(until_last(found, ())) == 4
