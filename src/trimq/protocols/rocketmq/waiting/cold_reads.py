"""Requests for messages that are on disk only: these are read into memory off the event loop, so that nobody else waits
for the disk, and then the request is answered as if they had been there."""

from __future__ import annotations

from collections.abc import Callable

from trimq.core.api.commit_log import CommitLogApi
from trimq.errors import ColdRead, DamagedSegment, Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.rocketmq.wire.replies import UNORDERED

# Where memory is so short that what was read is gone before it is used, the loop reads for itself in the end.
MAX_COLD_RETRIES = 3


def reply_after_cold_read(
    commit_log_api: CommitLogApi, cold: ColdRead, answer: Callable[[], Reply], refuse: Callable[[Refusal], Parts]
) -> Reply:
    """A reply that will be what `answer` gives then, or what `refuse` makes of why it cannot be given."""
    return _ColdReadReply(commit_log_api, cold, answer, refuse).reply


class _ColdReadReply:
    def __init__(
        self,
        commit_log_api: CommitLogApi,
        cold: ColdRead,
        answer: Callable[[], Reply],
        refuse: Callable[[Refusal], Parts],
    ) -> None:
        self._cold = cold
        self._answer = answer
        self._refuse = refuse
        self._is_wanted = True
        self.reply = DeferredReply(UNORDERED, on_abandon=self._forget, resolves_soon=True)
        commit_log_api.warm(cold, self._loaded)

    def _forget(self) -> None:
        """The connection is gone."""
        self._is_wanted = False

    def _loaded(self, error: BaseException | None) -> None:
        if not self._is_wanted:
            return
        self.reply.resolves_soon = False  # the answer may be one that waits
        try:
            if error is not None:
                # What the disk does not give would end the whole process if it were read from the mapped file.
                raise DamagedSegment(self._cold.file, self._cold.position)
            self.reply.resolve_as(self._answer())
        except Refusal as refusal:
            self.reply.resolve(self._refuse(refusal))
        except Exception as failure:
            self.reply.fail(failure)
