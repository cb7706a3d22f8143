"""Searches that may take longer than one turn of the event loop. A search whose first step finds the result is answered
at once. Of the others, one runs one step per turn, so that they do not block connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from trimq.clock import Timeline, Timer
from trimq.errors import NotRunning, Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode

log = logging.getLogger(__name__)

Steps = Iterator[Parts | None]
"""Yields None after each step but the last, then the response."""

Refuse = Callable[[Refusal], Parts]


class IncrementalSearches:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._waiting: dict[Reply, tuple[Steps, Refuse]] = {}
        """Round robin: the next to run is first."""
        self._timer: Timer | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        """Number of unfinished searches."""
        return len(self._waiting)

    def begin(self, steps: Steps, refuse: Refuse) -> Reply:
        """Starts a search. `refuse` encodes the response to a refusal in a later step; a refusal in the first step is
        raised."""
        parts = next(steps)
        if parts is not None:
            return Reply.now(parts, None)
        if self._is_stopped:
            raise NotRunning
        # It resolves soon: a stop refuses it.
        reply = DeferredReply(None, on_abandon=lambda: self._end(reply), resolves_soon=True)
        self._waiting[reply] = steps, refuse
        self._arm()
        return reply

    def stop(self) -> None:
        self._is_stopped = True
        for reply, (_, refuse) in list(self._waiting.items()):
            self._end(reply)
            reply.resolve(refuse(NotRunning()))

    def _end(self, reply: Reply) -> None:
        self._waiting.pop(reply, None)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = self._timeline.call_at(self._timeline.now_ms(), self._run_step)

    def _run_step(self) -> None:
        self._timer = None
        reply = next(iter(self._waiting))
        steps, refuse = self._waiting.pop(reply)
        try:
            parts = next(steps)
        except Refusal as refusal:
            parts = refuse(refusal)
        except OSError as error:
            log.warning("search: aborted (read failed: %s)", error)
            parts = refuse(
                RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"search failed, messages could not be read: {error}")
            )
        if parts is None:
            self._waiting[reply] = steps, refuse
        else:
            reply.resolve(parts)
        self._arm()
