"""The replies that one connection is still owed: against a list for each lane."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.protocols.contract import Reply
from trimq.server.connection.pending_replies import PendingReplies


def texts(replies: list[Reply]) -> list[bytes]:
    return [b"".join(bytes(part) for part in reply.take()) for reply in replies]


def durable(number: int, text: bytes, lane: object) -> Reply:
    return Reply.when_durable(number, lambda: [text], lane)


def test_a_reply_to_several_requests_counts_as_many() -> None:
    owed = PendingReplies()
    several, one = durable(2, b"several", None), durable(1, b"one", None)
    several.count = 5
    owed.add(several)
    owed.add(one)
    assert len(owed) == 6
    assert texts(owed.take_ready(1, 1)) == [b"one"]
    assert len(owed) == 5
    owed.abandon_all()
    assert len(owed) == 0


asked = st.lists(st.tuples(st.sampled_from([None, 0, 1, "x"]), st.integers(0, 20)), max_size=30)


@given(asked, st.lists(st.integers(0, 25), max_size=8))
def test_each_lane_keeps_its_order_and_nothing_is_lost(asked: list[tuple[object, int]], durables: list[int]) -> None:
    owed = PendingReplies()
    left: dict[object, list[tuple[int, bytes]]] = {}
    for place, (lane, number) in enumerate(asked):
        owed.add(durable(number, b"%d" % place, lane))
        left.setdefault(lane, []).append((number, b"%d" % place))
    assert len(owed) == len(asked)
    for now in [*sorted(durables), 25]:
        taken = texts(owed.take_ready(now, now))
        for lane, waiting in left.items():
            if lane is None:
                ready = [text for number, text in waiting if number <= now]
            else:
                blocked = next((place for place, (number, _) in enumerate(waiting) if number > now), len(waiting))
                ready = [text for _, text in waiting[:blocked]]
            assert [text for text in taken if text in ready] == ready
            left[lane] = [(number, text) for number, text in waiting if text not in ready]
            taken = [text for text in taken if text not in ready]
        assert taken == [], "some left that were not ready"
        assert len(owed) == sum(map(len, left.values()))
    assert len(owed) == 0


def test_the_first_of_a_lane_is_first_again_when_those_before_it_have_left() -> None:
    owed = PendingReplies()
    owed.add(durable(1, b"a", 0))
    assert not owed.is_first(Reply.now([b"b"], 0))
    assert owed.is_first(Reply.now([b"b"], 1))
    assert owed.is_first(Reply.now([b"b"], None))
    owed.take_ready(1, 1)
    assert owed.is_first(Reply.now([b"b"], 0))


def test_whoever_is_hurried_answers_and_the_rest_is_given_up() -> None:
    owed, given_up = PendingReplies(), []

    def later(name: str, lane: object, can_hurry: bool) -> None:
        resolve_now = (lambda: reply.resolve([name.encode()])) if can_hurry else None
        reply = Reply.later(lane, lambda: given_up.append(name), resolve_now)
        owed.add(reply)

    owed.add(durable(1, b"first", 0))
    later("second", 0, True)
    owed.add(durable(1, b"third", 0))
    later("fourth", 0, False)
    owed.add(durable(1, b"fifth", 0))
    later("sixth", 0, False)
    later("a", None, True)
    later("b", None, False)
    later("c", 1, False)
    owed.resolve_now()
    assert given_up == ["fourth", "sixth", "c", "b"]
    assert len(owed) == 4
    assert texts(owed.take_ready(1, 1)) == [b"first", b"second", b"third", b"a"]
    owed.resolve_now()
    owed.abandon_all()
    assert len(given_up) == 4


def test_those_that_wait_for_an_event_are_counted_apart_until_it_comes() -> None:
    owed, woken = PendingReplies(2), []

    def poll() -> Reply:
        reply = Reply.later(None, reject_over_limit=lambda: reply.resolve([b"no"]))
        owed.add(reply, lambda: woken.append(reply))
        return reply

    first, second = poll(), poll()
    owed.add(durable(5, b"a", None))
    assert (owed.count, owed.pending) == (3, 1)
    third = poll()
    assert (woken, owed.pending) == ([third], 2)
    assert texts(owed.take_ready(1, 1)) == [b"no"]
    first.resolve_when_durable(2, lambda: [b"first"])
    assert (owed.count, owed.pending) == (3, 2)
    assert texts(owed.take_ready(2, 2)) == [b"first"]
    assert (owed.count, owed.pending) == (2, 1)
    second.cancel()
    assert texts(owed.take_ready(5, 5)) == [b"a", b""]
    assert (owed.count, owed.pending) == (0, 0)


@pytest.mark.parametrize("way", ["resolve_now", "abandon_all"])
def test_one_that_waits_for_an_event_is_given_up_once(way: str) -> None:
    owed, given_up = PendingReplies(1), []
    reply = Reply.later(None, lambda: given_up.append(1), reject_over_limit=lambda: None)
    owed.add(reply)
    getattr(owed, way)()
    getattr(owed, way)()
    assert (given_up, owed.count, owed.pending) == ([1], 0, 0)


@pytest.mark.parametrize("way", ["resolve_now", "abandon_all"])
def test_one_that_cannot_be_ended_does_not_keep_the_others(way: str, caplog: pytest.LogCaptureFixture) -> None:
    owed, given_up = PendingReplies(), []

    def fail() -> None:
        raise RuntimeError("planted")

    owed.add(Reply.later(None, fail, fail))
    owed.add(Reply.later(None, lambda: given_up.append(1)))
    getattr(owed, way)()
    assert given_up == [1]
    assert len(owed) == 0
    assert "planted" in caplog.text


def test_what_comes_soon_is_waited_for_where_the_rest_is_given_up() -> None:
    owed, given_up = PendingReplies(), []
    replies = [Reply.later(lane, lambda: given_up.append(1)) for lane in (0, 0, None)]
    for reply in replies:
        reply.resolves_soon = reply is not replies[1]
        owed.add(reply)
    owed.resolve_now()
    assert (given_up, len(owed)) == ([1], 2)
    for reply in replies:
        reply.resolve([b"a"])
    assert texts(owed.take_ready(1, 1)) == [b"a", b"a"]
