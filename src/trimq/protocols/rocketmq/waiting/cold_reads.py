"""Replies to requests for cold data: loads it off the event loop, so that no other client waits for the disk, and then
answers the request from memory."""

from __future__ import annotations

from collections.abc import Callable

from trimq.core.cold_reads import ColdReadRetry
from trimq.errors import ColdRead, DamagedSegment, Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.rocketmq.wire.replies import UNORDERED


def reply_after_cold_read(
    retry: ColdReadRetry, cold: ColdRead, answer: Callable[[], Reply], refuse: Callable[[Refusal], Parts]
) -> Reply:
    """Returns a reply that becomes the reply of `answer` when the data is loaded, or the parts of `refuse` after a
    refusal."""
    return _ColdReadReply(retry, cold, answer, refuse).reply


class _ColdReadReply:
    def __init__(
        self, retry: ColdReadRetry, cold: ColdRead, answer: Callable[[], Reply], refuse: Callable[[Refusal], Parts]
    ) -> None:
        self._answer = answer
        self._refuse = refuse
        self._is_wanted = True
        self.reply = DeferredReply(UNORDERED, on_abandon=self._forget, resolves_soon=True)
        retry.load(cold, self._loaded)

    def _forget(self) -> None:
        """Called when the connection is closed."""
        self._is_wanted = False

    def _loaded(self, damage: DamagedSegment | None) -> None:
        if not self._is_wanted:
            return
        self.reply.resolves_soon = False  # the answer may itself be a long poll
        try:
            if damage is not None:
                raise damage
            self.reply.resolve_as(self._answer())
        except Refusal as refusal:
            self.reply.resolve(self._refuse(refusal))
        except Exception as failure:
            self.reply.fail(failure)
