"""Pending replies of a connection: time and order of sending, and released memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.server.connection.pending_replies import PassProgress, PendingReplies


class Desk:
    """One connection: sends ready replies at once, as a session does."""

    def __init__(self, held_limit: int = 1000) -> None:
        self.progress = PassProgress()
        self.sent: list[tuple[bytes, bool]] = []
        self.pending = PendingReplies(self.progress, self._send_ready, held_limit)

    def _send_ready(self, ready: list[Reply], is_by_pass: bool) -> None:
        self.sent += [(b"".join(bytes(part) for part in reply.take()), is_by_pass) for reply in ready]

    def add(self, reply: Reply) -> None:
        if not self.pending.add(reply):
            self._send_ready([reply], False)

    def advance(self, number: int) -> list[bytes]:
        self.progress.advance(number, number)
        return self.heard()

    def heard(self) -> list[bytes]:
        """Returns the replies sent since the last call."""
        texts = [text for text, _ in self.sent]
        self.sent.clear()
        return texts


def durable(number: int, text: bytes, lane: object = 0) -> Reply:
    return Reply.when_durable(number, lambda: [text], lane)


# --- lanes ------------------------------------------------------------------------------------------------------------


def test_a_reply_to_several_requests_counts_as_many() -> None:
    desk = Desk()
    several, one = durable(2, b"several", None), durable(1, b"one", None)
    several.count = 5
    desk.add(several)
    desk.add(one)
    assert len(desk.pending) == 6
    assert desk.advance(1) == [b"one"]
    assert len(desk.pending) == 5
    desk.pending.abandon_all()
    assert len(desk.pending) == 0


asked = st.lists(st.tuples(st.sampled_from([None, 0, 1, "x"]), st.integers(0, 20)), max_size=30)


@given(asked, st.lists(st.integers(0, 25), max_size=8), st.booleans())
def test_each_lane_keeps_its_order_and_nothing_is_lost(
    asked: list[tuple[object, int]], durables: list[int], needs_sync: bool
) -> None:
    desk = Desk()
    left: dict[object, list[tuple[int, bytes]]] = {}
    for place, (lane, number) in enumerate(asked):
        text = b"%d" % place
        reply = Reply(lane, None, lambda text=text: [text], number, needs_sync)
        if desk.pending.add(reply):
            left.setdefault(lane, []).append((number, text))
        else:
            assert number == 0
            assert lane is None or lane not in left
    assert len(desk.pending) == sum(map(len, left.values()))
    for now in [*sorted(durables), 25]:
        taken = desk.advance(now)
        for lane, waiting in left.items():
            if lane is None:
                ready = [text for number, text in waiting if number <= now]
            else:
                blocked = next((place for place, (number, _) in enumerate(waiting) if number > now), len(waiting))
                ready = [text for _, text in waiting[:blocked]]
            assert [text for text in taken if text in ready] == ready
            left[lane] = [(number, text) for number, text in waiting if text not in ready]
            taken = [text for text in taken if text not in ready]
        assert taken == [], "replies were sent before they were ready"
        assert len(desk.pending) == sum(map(len, left.values()))
    assert len(desk.pending) == 0
    assert len(desk.progress) == 0


def test_the_first_of_a_lane_is_first_again_when_those_before_it_have_left() -> None:
    desk = Desk()
    desk.add(durable(1, b"a", 0))
    assert not desk.pending.add(Reply.now([b"b"], 1))
    assert not desk.pending.add(Reply.now([b"b"], None))
    assert desk.pending.add(Reply.now([b"b"], 0))
    assert desk.advance(1) == [b"a", b"b"]
    assert not desk.pending.add(Reply.now([b"b"], 0))


def test_a_reply_that_is_ready_and_first_is_not_held() -> None:
    desk = Desk()
    desk.progress.advance(3, 2)
    assert not desk.pending.add(Reply.now([b"a"], 0))
    assert not desk.pending.add(durable(2, b"b"))
    assert desk.pending.add(durable(3, b"c"))
    assert desk.pending.add(Reply.now([b"d"], 0))
    desk.progress.advance(3, 3)
    assert desk.sent == [(b"c", True), (b"d", True)]


# --- deferred replies -------------------------------------------------------------------------------------------------


def test_replies_that_can_be_resolved_at_once_are_and_the_rest_is_abandoned() -> None:
    desk, given_up = Desk(), []

    def later(name: str, lane: object, can_resolve: bool) -> None:
        resolve_now = (lambda: reply.resolve([name.encode()])) if can_resolve else None
        reply = DeferredReply(lane, lambda: given_up.append(name), resolve_now)
        desk.add(reply)

    desk.add(durable(1, b"first", 0))
    later("second", 0, True)
    desk.add(durable(1, b"third", 0))
    later("fourth", 0, False)
    desk.add(durable(1, b"fifth", 0))
    later("sixth", 0, False)
    later("a", None, True)
    later("b", None, False)
    later("c", 1, False)
    desk.pending.resolve_now()
    assert given_up == ["fourth", "sixth", "c", "b"]
    assert desk.heard() == [b"a"]
    assert len(desk.pending) == 3
    assert desk.advance(1) == [b"first", b"second", b"third"]
    desk.pending.resolve_now()
    desk.pending.abandon_all()
    assert len(given_up) == 4


def test_those_that_wait_for_an_event_are_counted_apart_until_it_comes() -> None:
    desk = Desk(held_limit=2)

    def poll() -> DeferredReply:
        reply = DeferredReply(None, on_reject_over_limit=lambda: reply.resolve([b"no"]))
        desk.add(reply)
        return reply

    first, second = poll(), poll()
    desk.add(durable(5, b"a", None))
    assert (desk.pending.count, desk.pending.pending) == (3, 1)
    poll()
    assert desk.heard() == [b"no"]
    assert (desk.pending.count, desk.pending.pending) == (3, 1)
    first.resolve_when_durable(2, lambda: [b"first"])
    assert (desk.pending.count, desk.pending.pending) == (3, 2)
    assert desk.advance(2) == [b"first"]
    assert (desk.pending.count, desk.pending.pending) == (2, 1)
    second.cancel()
    assert desk.heard() == [b""]
    assert desk.advance(5) == [b"a"]
    assert (desk.pending.count, desk.pending.pending) == (0, 0)


@pytest.mark.parametrize("way", ["resolve_now", "abandon_all"])
def test_one_that_waits_for_an_event_is_given_up_once(way: str) -> None:
    desk, given_up = Desk(held_limit=1), []
    reply = DeferredReply(None, lambda: given_up.append(1), on_reject_over_limit=lambda: None)
    desk.add(reply)
    getattr(desk.pending, way)()
    getattr(desk.pending, way)()
    assert (given_up, desk.pending.count, desk.pending.pending) == ([1], 0, 0)
    reply.resolve([b"too late"])
    assert desk.sent == []


@pytest.mark.parametrize("way", ["resolve_now", "abandon_all"])
def test_one_that_cannot_be_ended_does_not_keep_the_others(way: str, caplog: pytest.LogCaptureFixture) -> None:
    desk, given_up = Desk(), []

    def fail() -> None:
        raise RuntimeError("planted")

    desk.add(DeferredReply(None, fail, fail))
    desk.add(DeferredReply(None, lambda: given_up.append(1)))
    getattr(desk.pending, way)()
    assert given_up == [1]
    assert len(desk.pending) == 0
    assert "planted" in caplog.text


def test_replies_that_resolve_soon_are_waited_for_when_the_rest_is_abandoned() -> None:
    desk, given_up = Desk(), []
    replies = [DeferredReply(lane, lambda: given_up.append(1)) for lane in (0, 0, None)]
    for reply in replies:
        reply.resolves_soon = reply is not replies[1]
        desk.add(reply)
    desk.pending.resolve_now()
    assert (given_up, len(desk.pending)) == ([1], 2)
    for reply in replies:
        reply.resolve([b"a"])
    assert desk.heard() == [b"a", b"a"]


def test_a_resolved_reply_is_sent_without_a_pass() -> None:
    desk = Desk()
    reply = DeferredReply(0)
    desk.add(reply)
    reply.resolve([b"a"])
    assert desk.sent == [(b"a", False)]


def test_one_that_waits_for_a_pass_leaves_when_it_is_resolved_early() -> None:
    desk = Desk()
    reply = durable(1, b"a")
    desk.add(reply)
    reply.resolve([b"late"])
    assert desk.sent == [(b"late", False)]
    assert desk.advance(1) == [b"late"]


# --- passes -----------------------------------------------------------------------------------------------------------


def test_a_pass_that_is_reached_is_not_waited_for() -> None:
    desk = Desk()
    desk.progress.advance(5, 5)
    first, second = DeferredReply(0), DeferredReply(None)
    desk.add(first)
    desk.add(durable(4, b"behind it"))
    desk.add(second)
    second.resolve_when_durable(0, lambda: [b"b"])
    assert len(desk.progress) == 0
    first.resolve_when_durable(6, lambda: [b"a"])
    assert len(desk.progress) == 1
    desk.progress.advance(6, 6)
    assert desk.sent == [(b"b", False), (b"a", True), (b"behind it", True)]


@pytest.mark.parametrize("needs_sync", [True, False])
def test_replies_that_wait_for_one_pass_wait_once_and_leave_together(needs_sync: bool) -> None:
    desk = Desk()
    for number, text in ((2, b"a"), (2, b"b"), (3, b"c"), (2, b"d")):
        desk.add(Reply(None, None, lambda text=text: [text], number, needs_sync))
    assert len(desk.progress) == 2
    assert desk.advance(2) == [b"a", b"b", b"d"]
    assert desk.advance(3) == [b"c"]


def test_of_one_pass_replies_without_sync_are_sent_first() -> None:
    desk = Desk()
    desk.add(Reply.when_durable(2, lambda: [b"synced"], None))
    desk.add(Reply(None, None, lambda: [b"written"], 2, needs_sync=False))
    desk.progress.advance(2, 1)
    assert desk.heard() == [b"written"]
    desk.progress.advance(2, 2)
    assert desk.heard() == [b"synced"]


class Waiter:
    def __init__(self, name: str, reached: list[str]) -> None:
        self.name = name
        self.reached = reached

    def pass_reached(self) -> None:
        self.reached.append(self.name)


def test_each_waiter_is_notified_once_in_the_order_of_waiting() -> None:
    progress, reached = PassProgress(), []
    first, second, third = (Waiter(name, reached) for name in "abc")
    for waiter in (first, second, first, third):
        progress.wait(waiter, 4)
    assert len(progress) == 3
    progress.advance(5, 4)
    assert (progress.written, progress.durable) == (5, 4)
    assert reached == ["a", "b", "c"]
    progress.advance(6, 6)
    assert reached == ["a", "b", "c"]
    assert len(progress) == 0


def test_no_waiter_is_notified_before_its_pass_is_reached() -> None:
    progress, reached = PassProgress(), []
    progress.wait(Waiter("durable", reached), 5)
    progress.wait(Waiter("written", reached), 5, needs_sync=False)
    progress.wait(Waiter("later", reached), 7)
    progress.advance(4, 4)
    assert reached == []
    progress.advance(6, 4)
    assert reached == ["written"]
    progress.advance(6, 6)
    assert reached == ["written", "durable"]
    progress.advance(7, 7)
    assert reached == ["written", "durable", "later"]


def test_a_waiter_for_two_passes_is_notified_of_each_or_of_both_at_once() -> None:
    progress, reached = PassProgress(), []
    waiter = Waiter("a", reached)
    for number in (1, 2, 3):
        progress.wait(waiter, number)
    progress.advance(1, 1)
    assert reached == ["a"]
    progress.advance(3, 3)
    assert reached == ["a", "a"]


# --- released memory --------------------------------------------------------------------------------------------------


class Body(bytearray):
    """Bytes that can be weakly referenced."""

    __slots__ = ("__weakref__",)


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", ["behind another", "deferred", "deferred to a pass", "held"])
@pytest.mark.usefixtures("without_collector")
def test_nothing_keeps_the_bytes_of_a_reply_that_has_left(kind: str) -> None:
    desk = Desk()
    body = Body(b"body")
    gone = weakref.ref(body)

    def reply_of(body: Body) -> None:
        parts: Parts = [body]
        if kind == "behind another":
            desk.add(durable(1, b"first"))
            desk.add(Reply.now(parts, 0))
            return
        reply = DeferredReply(
            None if kind == "held" else 0, on_reject_over_limit=(lambda: None) if kind == "held" else None
        )
        desk.add(reply)
        if kind == "deferred to a pass":
            reply.resolve_when_durable(1, lambda: parts)
        else:
            reply.resolve(parts)

    reply_of(body)
    del body
    desk.progress.advance(1, 1)
    assert desk.sent[-1][0] == b"body"
    assert gone() is None


@pytest.mark.usefixtures("without_collector")
def test_pass_progress_does_not_keep_a_lost_connection_alive() -> None:
    desk = Desk()
    progress, gone = desk.progress, weakref.ref(desk)
    desk.add(durable(1, b"too late"))
    desk.pending.end()
    del desk
    assert gone() is None
    progress.advance(1, 1)
    assert len(progress) == 0
