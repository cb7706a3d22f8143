from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.core.groups.assignors import ASSIGNORS, Assignments, AssignorMember, assign_range, assign_uniform
from trimq.model import StreamId

TOPICS = [UUID(int=number) for number in range(1, 5)]


def applicant(
    name: str, topics: list[UUID], previous: list[StreamId] | None = None, instance: str | None = None
) -> AssignorMember:
    return AssignorMember(name, instance, frozenset(topics), frozenset(previous or ()))


def numbers(shares: Assignments, name: str, topic: UUID) -> list[int]:
    return sorted(stream.number for stream in shares[name] if stream.topic == topic)


def streams(topic: UUID, *indexes: int) -> list[StreamId]:
    return [StreamId(topic, index) for index in indexes]


def test_range_assigns_consecutive_streams_of_each_topic() -> None:
    one, two = TOPICS[:2]
    shares = assign_range([applicant("m1", [one, two]), applicant("m2", [one, two])], {one: 3, two: 2})
    assert (numbers(shares, "m1", one), numbers(shares, "m1", two)) == ([0, 1], [0])
    assert (numbers(shares, "m2", one), numbers(shares, "m2", two)) == ([2], [1])


def test_range_puts_static_members_first() -> None:
    topic = TOPICS[0]
    shares = assign_range([applicant("a", [topic]), applicant("z", [topic], instance="i")], {topic: 3})
    assert numbers(shares, "z", topic) == [0, 1]


def test_uniform_keeps_assigned_streams_when_a_member_joins() -> None:
    topic = TOPICS[0]
    members = [applicant("a", [topic], streams(topic, 0, 1, 2)), applicant("b", [topic])]
    shares = assign_uniform(members, {topic: 3})
    assert numbers(shares, "a", topic) == [0, 1]
    assert numbers(shares, "b", topic) == [2]


def test_uniform_gives_streams_of_a_leaving_member_to_the_others() -> None:
    topic = TOPICS[0]
    members = [applicant("a", [topic], streams(topic, 4)), applicant("b", [topic], streams(topic, 1, 2))]
    shares = assign_uniform(members, {topic: 6})
    assert set(streams(topic, 4)) <= shares["a"]
    assert set(streams(topic, 1, 2)) <= shares["b"]
    assert [len(share) for share in shares.values()] == [3, 3]


def test_uniform_balances_members_with_different_subscriptions() -> None:
    one, two = TOPICS[:2]
    shares = assign_uniform([applicant("a", [one, two], streams(one, 0, 1)), applicant("b", [one])], {one: 2, two: 2})
    assert numbers(shares, "a", two) == [0, 1]
    assert numbers(shares, "b", one) == [0, 1]


MEMBERS = st.lists(
    st.tuples(st.sets(st.sampled_from(TOPICS)), st.sets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 6)))),
    max_size=6,
)
SIZES = st.fixed_dictionaries({}, optional={topic: st.integers(1, 7) for topic in TOPICS})


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=MEMBERS, sizes=SIZES)
def test_each_stream_has_one_owner_that_subscribes_to_it(name: str, members: list, sizes: dict[UUID, int]) -> None:
    applicants = [
        AssignorMember(f"m{number}", None, frozenset(topics), frozenset(StreamId(*each) for each in previous))
        for number, (topics, previous) in enumerate(members)
    ]
    shares = ASSIGNORS[name](applicants, sizes)
    assert shares == ASSIGNORS[name](list(applicants), sizes)
    wanted = {topic for each in applicants for topic in each.topics}
    expected = {StreamId(topic, index) for topic, count in sizes.items() if topic in wanted for index in range(count)}
    given_out = [stream for share in shares.values() for stream in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == expected
    assert set(shares) == {each.name for each in applicants}
    for each in applicants:
        assert {stream.topic for stream in shares[each.name]} <= each.topics


@given(count=st.integers(1, 6), sizes=SIZES, previous=st.lists(st.integers(0, 5), max_size=28))
def test_uniform_assignments_of_equal_subscriptions_differ_by_one_at_most_and_move_no_more_than_needed(
    count: int, sizes: dict[UUID, int], previous: list[int]
) -> None:
    everything = [StreamId(topic, index) for topic, size in sizes.items() for index in range(size)]
    owners = {stream: owner for stream, owner in zip(everything, previous, strict=False) if owner < count}
    applicants = [
        AssignorMember(
            f"m{number}", None, frozenset(TOPICS), frozenset(s for s, owner in owners.items() if owner == number)
        )
        for number in range(count)
    ]
    shares = assign_uniform(applicants, sizes)
    lengths = [len(share) for share in shares.values()]
    assert max(lengths) - min(lengths) <= 1
    for each in applicants:
        kept = shares[each.name] & each.previous
        assert len(kept) >= min(len(each.previous), min(lengths))
