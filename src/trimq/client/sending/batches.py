"""Rules of batches: which messages can be sent together in one request."""

from __future__ import annotations

from collections.abc import Sequence

from trimq.client.errors import BadBatch
from trimq.client.messages import Message, Sent

RETRY_PREFIX = "%RETRY%"


def broken_rule(topic: str, message: Message) -> str | None:
    """Returns the rule of batches that a message breaks, if any."""
    if topic.startswith(RETRY_PREFIX):
        return f"topic {topic} is a retry topic, which takes no batches"
    if message.delay is not None or message.deliver_at is not None or message.level is not None:
        return "a delayed message cannot be part of a batch"
    return None


def check_batch(topic: str, messages: Sequence[Message]) -> None:
    """Raises BadBatch for the first message that breaks a rule."""
    for index, message in enumerate(messages):
        rule = broken_rule(topic, message)
        if rule is not None:
            raise BadBatch(index, rule)


def split_batch(sent: Sent, ids: Sequence[str]) -> list[Sent]:
    """Returns the result of each message of a batch, which have consecutive offsets in one queue."""
    offset_ids = sent.offset_id.split(",")
    if len(offset_ids) != len(ids):
        offset_ids = [sent.offset_id] * len(ids)
    return [
        Sent(id, sent.queue, sent.offset + number, sent.status, offset_ids[number]) for number, id in enumerate(ids)
    ]
