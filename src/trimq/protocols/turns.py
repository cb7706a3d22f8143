"""Answers that are made over several turns of the event loop, so that a long one delays no other client."""

from __future__ import annotations

from collections.abc import Callable

from trimq.clock import Timeline
from trimq.protocols.contract import IN_ORDER, DeferredReply, Reply


def reply_over_turns(
    timeline: Timeline, work: Callable[[], bool], finish: Callable[[], Reply], lane: object = IN_ORDER
) -> Reply:
    """Calls `work`, which takes about a millisecond, once per turn until it returns False; then answers with `finish`.
    An answer that is complete after the first call is given at once."""
    if not work():
        return finish()
    reply = DeferredReply(lane, resolves_soon=True)

    def go_on() -> None:
        try:
            is_unfinished = work()
            if not is_unfinished:
                reply.resolve_as(finish())
        except Exception as error:
            reply.fail(error)
        else:
            if is_unfinished:
                timeline.call_at(timeline.now_ms(), go_on)

    timeline.call_at(timeline.now_ms(), go_on)
    return reply
