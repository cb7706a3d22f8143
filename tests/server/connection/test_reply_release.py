"""When the replies of one connection leave, and what is left of them then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from trimq.protocols.contract import Parts, Reply
from trimq.server.connection.durability import PassProgress
from trimq.server.connection.reply_release import ReplyReleaser


class Desk:
    def __init__(self) -> None:
        self.progress = PassProgress()
        self.left: list[tuple[bytes, bool]] = []
        self.releases = ReplyReleaser(self.progress, 1000, self._send_ready)

    def _send_ready(self, ready: list[Reply], is_by_pass: bool) -> None:
        self.left += [(b"".join(bytes(part) for part in reply.take()), is_by_pass) for reply in ready]


class Body(bytearray):
    """Bytes that can be watched."""

    __slots__ = ("__weakref__",)


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def durable(number: int, text: bytes, lane: object = 0) -> Reply:
    return Reply.when_durable(number, lambda: [text], lane)


def test_what_is_ready_and_first_is_not_held() -> None:
    desk = Desk()
    desk.progress.advance(3, 2)
    assert not desk.releases.hold(Reply.now([b"a"], 0))
    assert not desk.releases.hold(durable(2, b"b"))
    assert desk.releases.hold(durable(3, b"c"))
    assert desk.releases.hold(Reply.now([b"d"], 0))
    desk.progress.advance(3, 3)
    assert desk.left == [(b"c", True), (b"d", True)]


def test_what_was_resolved_leaves_without_a_pass() -> None:
    desk = Desk()
    reply = Reply.later(0)
    desk.releases.hold(reply)
    reply.resolve([b"a"])
    assert desk.left == [(b"a", False)]


def test_nobody_waits_for_a_pass_that_is_reached() -> None:
    desk = Desk()
    desk.progress.advance(5, 5)
    first, second = Reply.later(0), Reply.later(None)
    desk.releases.hold(first)
    desk.releases.hold(durable(4, b"behind it"))
    desk.releases.hold(second)
    second.resolve_when_durable(0, lambda: [b"b"])
    assert len(desk.progress) == 0
    first.resolve_when_durable(6, lambda: [b"a"])
    assert len(desk.progress) == 1
    desk.progress.advance(6, 6)
    assert desk.left == [(b"b", False), (b"a", True), (b"behind it", True)]


@pytest.mark.parametrize("kind", ["behind another", "deferred", "deferred to a pass", "held"])
@pytest.mark.usefixtures("without_collector")
def test_nothing_keeps_the_bytes_of_a_reply_that_has_left(kind: str) -> None:
    desk = Desk()
    body = Body(b"body")
    gone = weakref.ref(body)

    def reply_of(body: Body) -> None:
        parts: Parts = [body]
        if kind == "behind another":
            desk.releases.hold(durable(1, b"first"))
            desk.releases.hold(Reply.now(parts, 0))
            return
        reply = Reply.later(None if kind == "held" else 0, reject_over_limit=(lambda: None) if kind == "held" else None)
        desk.releases.hold(reply)
        if kind == "deferred to a pass":
            reply.resolve_when_durable(1, lambda: parts)
        else:
            reply.resolve(parts)

    reply_of(body)
    del body
    desk.progress.advance(1, 1)
    assert desk.left[-1][0] == b"body"
    assert gone() is None


@pytest.mark.usefixtures("without_collector")
def test_whoever_tells_of_passes_does_not_keep_a_connection_that_is_gone() -> None:
    desk = Desk()
    progress, gone = desk.progress, weakref.ref(desk)
    desk.releases.hold(durable(1, b"too late"))
    desk.releases.end()
    del desk
    assert gone() is None
    progress.advance(1, 1)
    assert len(progress) == 0
