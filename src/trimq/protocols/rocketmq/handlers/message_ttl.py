"""Messages that are of use for a time only: as their producer has said, or their topic for those that say nothing."""

from __future__ import annotations

from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.formats.rocketmq_unit.ttl import EXPIRY_PROPERTIES, TTL_MS, parse_milliseconds
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode

ATTRIBUTE = "trimq.ttl.ms"
"""Of a topic: how long its messages are of use that do not say so themselves."""


def has_default_ttl(definition: CommitLogTopicDefinition) -> bool:
    return ATTRIBUTE in definition.attributes


def apply_ttl(context: Context, topic: CommitLogTopic, properties: dict[str, str]) -> None:
    """Before it is stored, now or later, for `topic`. What is too old is passed over by those who read it."""
    if EXPIRY_PROPERTIES.isdisjoint(properties):
        if not has_default_ttl(topic.definition):
            return
        properties[TTL_MS] = topic.definition.attributes[ATTRIBUTE]
    try:
        for name in EXPIRY_PROPERTIES & properties.keys():
            parse_milliseconds(properties[name])
    except ValueError as error:
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {name} is {error}") from None
    context.commit_log_api.enable_ttl(topic)
