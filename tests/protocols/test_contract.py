"""Replies and when they are ready."""

from __future__ import annotations

import pytest

from trimq.protocols.contract import IN_ORDER, Reply

READY = [
    (Reply.now([b"a"]), 0, 0, True),
    (Reply.when_durable(3, lambda: [b"a"]), 9, 2, False),
    (Reply.when_durable(3, lambda: [b"a"]), 3, 3, True),
    (Reply.when_written(3, lambda: [b"a"]), 2, 2, False),
    (Reply.when_written(3, lambda: [b"a"]), 3, 0, True),
    (Reply.later(), 9, 9, False),
]


@pytest.mark.parametrize(("reply", "written", "durable", "ready"), READY)
def test_a_reply_is_ready_when_what_it_waits_for_has_come(
    reply: Reply, written: int, durable: int, ready: bool
) -> None:
    assert reply.is_ready(written, durable) is ready


def test_what_a_reply_waits_for() -> None:
    assert not Reply.now([b"a"]).waits_for_pass
    assert Reply.when_durable(3, lambda: [b"a"]).waits_for_pass
    assert Reply.when_written(3, lambda: [b"a"]).waits_for_pass
    assert not Reply.later().waits_for_pass


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
    reply = Reply.later("lane", lambda: called.append("abandon"), lambda: called.append("hurry"))
    reply.watch(lambda: called.append("wake"))
    assert reply.lane == "lane"
    assert reply.abandon is not None
    assert reply.resolve_now is not None
    if later:
        reply.resolve_when_durable(4, lambda: [b"a"])
    else:
        reply.resolve([b"a"])
    assert called == ["wake"]
    assert reply.abandon is None
    assert reply.resolve_now is None
    assert reply.is_ready(3, 3) is not later
    assert reply.is_ready(4, 4)
    assert reply.take() == [b"a"]


def test_a_reply_that_nobody_watches_can_be_resolved() -> None:
    reply = Reply.later()
    reply.resolve([b"a"])
    assert reply.is_ready(0, 0)
    assert reply.lane == IN_ORDER


def test_what_carries_a_reply_gets_what_makes_it_when_it_is_taken() -> None:
    for reply in (Reply.now([b"a"]), Reply.when_durable(1, lambda: [b"a"])):
        reply.wrap(lambda build: [b"<", *build(), b">"])
        assert reply.take() == [b"<", b"a", b">"]


def test_a_cancelled_reply_is_given_up_once_and_ready_with_nothing() -> None:
    called: list[str] = []
    reply = Reply.later(None, lambda: called.append("abandon"), lambda: called.append("hurry"))
    reply.watch(lambda: called.append("wake"))
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
