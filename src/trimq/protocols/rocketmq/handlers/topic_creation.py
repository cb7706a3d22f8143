"""Defers commands for a topic that was just created, perhaps by the command itself, until the creation is durable.
Otherwise a message could be acknowledged and then lost, because the creation of its topic is refused."""

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
    """Unexpected error: the connection is closed, as it would be without the wait."""
    log.error("connection closed: a command failed after its topic was created", exc_info=error)

    def build() -> Parts:
        raise error

    return Reply.when_durable(0, build, UNORDERED)


def after_topic_creation(
    context: Context, topic: CommitLogTopic, retry: Callable[[], Reply], refuse: Callable[[Refusal], Reply]
) -> Reply | None:
    """Returns None if the creation of the topic is durable. Otherwise returns a reply that resolves as `retry` when it
    is durable, or as `refuse` when it is refused."""
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

    context.commit_log.messages.on_durable(creation, lambda _: resume())
    return reply
