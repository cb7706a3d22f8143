"""When the replies of one connection leave: it waits for the passes that they wait for, and hands on what is ready.
Knows neither what they say nor how they are sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trimq.protocols.contract import Reply
from trimq.server.connection.durability import PassProgress
from trimq.server.connection.pending_replies import PendingReplies


class ReplyReleaser:
    """`leave` is given replies that may leave now, in the order in which they must, and whether a pass made them ready:
    then this connection is told of that pass once, and there is nothing to wait for that could be sent with them."""

    __slots__ = ("_progress", "_send_ready", "replies")

    def __init__(self, progress: PassProgress, held_limit: int, leave: Callable[[list[Reply], bool], None]) -> None:
        self._progress = progress
        self._send_ready = leave
        self.replies = PendingReplies(held_limit)

    def hold(self, reply: Reply) -> bool:
        """False: nothing keeps it from leaving now."""
        replies, progress = self.replies, self._progress
        is_ready = reply.is_ready(progress.written, progress.durable)
        if is_ready and (not replies.count or replies.is_first(reply)):
            return False
        if reply.is_open:
            replies.add(reply, partial(self._resolved, reply))
            return True
        replies.add(reply, self._release)
        if not is_ready:
            progress.wait(self, *reply.awaited)
        return True

    def _resolved(self, reply: Reply) -> None:
        reply.watch(self._release)  # in place of what leads back to the reply
        if not reply.is_ready(self._progress.written, self._progress.durable):
            self._progress.wait(self, *reply.awaited)
        self._release()

    def _release(self, is_by_pass: bool = False) -> None:
        ready = self.replies.take_ready(self._progress.written, self._progress.durable)
        if ready:
            self._send_ready(ready, is_by_pass)

    def pass_reached(self) -> None:
        self._release(is_by_pass=True)

    def end(self) -> None:
        """The connection is gone. Whoever tells of passes may still know us, and must not keep the connection alive."""
        self.replies.abandon_all()
        self._send_ready = _nowhere


def _nowhere(ready: list[Reply], is_by_pass: bool) -> None: ...
