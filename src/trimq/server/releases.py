"""When the replies of one connection leave: it waits for the passes that they wait for, and hands on what is ready.
Knows neither what they say nor how they are sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trimq.protocols.contract import Reply
from trimq.server.owed_replies import OwedReplies
from trimq.server.progress import Progress


class Releases:
    """`leave` is given replies that may leave now, in the order in which they must, and whether a pass made them ready:
    then these are all that waited for it."""

    __slots__ = ("_leave", "_progress", "owed")

    def __init__(self, progress: Progress, held_limit: int, leave: Callable[[list[Reply], bool], None]) -> None:
        self._progress = progress
        self._leave = leave
        self.owed = OwedReplies(held_limit)

    def hold(self, reply: Reply) -> bool:
        """False: nothing keeps it from leaving now."""
        owed, progress = self.owed, self._progress
        if (not owed.count or owed.is_first(reply)) and reply.is_ready(progress.written, progress.durable):
            return False
        if reply.waits_for_pass:
            owed.add(reply, self._release)
            progress.wait(self, *reply.awaited)
        else:
            owed.add(reply, partial(self._resolved, reply))
        return True

    def _resolved(self, reply: Reply) -> None:
        reply.watch(self._release)  # in place of what leads back to the reply
        if reply.waits_for_pass:
            self._progress.wait(self, *reply.awaited)
        self._release()

    def _release(self, is_by_pass: bool = False) -> None:
        ready = self.owed.take_ready(self._progress.written, self._progress.durable)
        if ready:
            self._leave(ready, is_by_pass)

    def passed(self) -> None:
        self._release(is_by_pass=True)

    def end(self) -> None:
        """The connection is gone."""
        self._progress.forget(self)
        self.owed.abandon_all()
