"""Replies: when they are ready."""

from __future__ import annotations

import pytest

from trimq.protocols.contract import IN_ORDER, DeferredReply, Reply


class Watcher:
    def __init__(self, called: list[str]) -> None:
        self._called = called

    def reply_resolved(self, reply: Reply) -> None:
        self._called.append("wake")


READY = [
    (Reply.now([b"a"]), 0, 0, True),
    (Reply.when_durable(3, lambda: [b"a"]), 9, 2, False),
    (Reply.when_durable(3, lambda: [b"a"]), 3, 3, True),
    (Reply(0, None, lambda: [b"a"], 3, needs_sync=False), 2, 2, False),
    (Reply(0, None, lambda: [b"a"], 3, needs_sync=False), 3, 0, True),
    (DeferredReply(), 9, 9, False),
]


@pytest.mark.parametrize(("reply", "written", "durable", "ready"), READY)
def test_a_reply_is_ready_when_its_pass_is_reached(reply: Reply, written: int, durable: int, ready: bool) -> None:
    assert reply.is_ready(written, durable) is ready


def test_the_pass_and_event_of_a_reply() -> None:
    assert not Reply.now([b"a"]).waits_for_pass
    assert Reply.when_durable(3, lambda: [b"a"]).waits_for_pass
    assert Reply(0, None, lambda: [b"a"], 3, needs_sync=False).waits_for_pass
    assert not DeferredReply().waits_for_pass


def test_an_answer_is_made_when_it_is_taken() -> None:
    made: list[int] = []
    reply = Reply.when_durable(1, lambda: [b"%d" % (made.append(1) or 7)])
    assert reply.is_ready(1, 1)
    assert made == []
    assert reply.take() == [b"7"]
    assert made == [1]


@pytest.mark.parametrize("later", [False, True])
def test_a_resolved_reply_wakes_its_watcher_and_is_neither_hurried_nor_given_up(later: bool) -> None:
    called: list[str] = []
    reply = DeferredReply("lane", lambda: called.append("abandon"), lambda: called.append("hurry"))
    reply.watcher = Watcher(called)
    assert reply.lane == "lane"
    assert reply.on_abandon is not None
    assert reply.on_resolve_now is not None
    if later:
        reply.resolve_when_durable(4, lambda: [b"a"])
    else:
        reply.resolve([b"a"])
    assert called == ["wake"]
    assert reply.on_abandon is None
    assert reply.on_resolve_now is None
    assert reply.is_ready(3, 3) is not later
    assert reply.is_ready(4, 4)
    assert reply.take() == [b"a"]


def test_a_reply_without_a_watcher_can_be_resolved() -> None:
    reply = DeferredReply()
    reply.resolve([b"a"])
    assert reply.is_ready(0, 0)
    assert reply.lane == IN_ORDER


def test_a_wrapper_of_a_reply_gets_its_builder_when_it_is_taken() -> None:
    for reply in (Reply.now([b"a"]), Reply.when_durable(1, lambda: [b"a"])):
        reply.wrap(lambda build: [b"<", *build(), b">"])
        assert reply.take() == [b"<", b"a", b">"]


def test_a_reply_that_is_wrapped_twice_is_wrapped_in_that_order() -> None:
    reply = Reply.now([b"a"])
    reply.wrap(lambda build: [b"<", *build(), b">"])
    reply.wrap(lambda build: [b"(", *build(), b")"])
    assert reply.take() == [b"(", b"<", b"a", b">", b")"]


def test_a_cancelled_reply_is_given_up_once_and_ready_with_nothing() -> None:
    called: list[str] = []
    reply = DeferredReply(None, lambda: called.append("abandon"), lambda: called.append("hurry"))
    reply.watcher = Watcher(called)
    assert reply.is_open
    reply.cancel()
    reply.cancel()
    assert called == ["abandon", "wake"]
    assert not reply.is_open
    assert reply.take() == ()


def test_a_cancelled_reply_that_waits_for_a_pass_is_ready_with_it() -> None:
    reply = Reply.when_durable(3, lambda: [b"a"])
    reply.cancel()
    assert not reply.is_ready(2, 2)
    assert reply.is_ready(3, 3)


def test_a_reply_that_waits_for_a_pass_can_be_resolved_before_it() -> None:
    called: list[str] = []
    reply = Reply.when_durable(3, lambda: [b"a"])
    reply.watcher = Watcher(called)
    reply.resolve([b"late"])
    assert called == ["wake"]
    assert reply.is_ready(0, 0)
    assert reply.take() == [b"late"]


def test_a_cancelled_reply_stays_ready_when_its_owner_resolves_it_with_a_pass() -> None:
    reply = DeferredReply(None)
    reply.cancel()
    reply.resolve_when_durable(5, lambda: [b"a"])
    assert reply.is_ready(0, 0)
    assert reply.take() == ()


@pytest.mark.parametrize("how", ["bytes", "pass", "another"])
def test_a_reply_that_is_resolved_as_an_open_one_is_ready_when_that_is(how: str) -> None:
    called: list[str] = []
    reply, other = DeferredReply("lane"), DeferredReply(None, lambda: called.append("abandon"))
    reply.watcher = Watcher(called)
    reply.resolve_as(other)
    assert reply.is_open
    assert called == []
    if how == "bytes":
        other.resolve([b"a"])
    elif how == "pass":
        other.resolve_when_durable(2, lambda: [b"a"])
    else:
        other.resolve_as(Reply(None, None, lambda: [b"a"], 2, needs_sync=False))
    assert (called, reply.lane) == (["wake"], "lane")
    assert reply.is_ready(1, 0) is (how == "bytes")
    assert reply.is_ready(2, 0) is (how != "pass")
    assert reply.is_ready(2, 2)
    assert reply.take() == [b"a"]
