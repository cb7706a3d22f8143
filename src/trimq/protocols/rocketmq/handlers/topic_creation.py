"""Commands that need a topic which was made a moment ago, perhaps by themselves: they go on when it is durable that
there is this topic. A message that was acknowledged before would be nobody's if the topic were refused."""

from __future__ import annotations

import logging
from collections.abc import Callable

from trimq.core.commit_log.topics import CommitLogTopic
from trimq.errors import Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.replies import UNORDERED

log = logging.getLogger(__name__)


def _failed(error: Exception) -> Reply:
    """A bug: its connection ends, as it would have if nothing had been waited for."""
    log.error("a command that waited for its topic failed unexpectedly", exc_info=error)

    def build() -> Parts:
        raise error

    return Reply.when_durable(0, build, UNORDERED)


def after_topic_creation(
    context: Context, topic: CommitLogTopic, retry: Callable[[], Reply], refuse: Callable[[Refusal], Reply]
) -> Reply | None:
    """An answer that comes later, of `retry` or of `refuse`. None: nothing has to be waited for."""
    creation = topic.creation
    if creation is None:
        return None
    reply = DeferredReply(UNORDERED)

    def resume() -> None:
        try:
            made = retry() if creation.refusal is None else refuse(creation.refusal)
        except Refusal as refusal:
            made = refuse(refusal)
        except Exception as error:
            made = _failed(error)
        reply.resolve_as(made)

    context.commit_log_api.on_durable(creation, lambda _: resume())
    return reply
