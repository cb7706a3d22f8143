"""Time to live of messages: set by the producer, or else by the default of the topic."""

from __future__ import annotations

from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.formats.rocketmq_unit.ttl import EXPIRY_PROPERTIES, TTL_MS, parse_milliseconds
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode

ATTRIBUTE = "trimq.ttl.ms"
"""Topic attribute: TTL in milliseconds of messages without a TTL of their own."""


def has_default_ttl(definition: CommitLogTopicDefinition) -> bool:
    return ATTRIBUTE in definition.attributes


def apply_ttl(context: Context, topic: CommitLogTopic, properties: dict[str, str]) -> None:
    """Adds the default TTL of `topic` and validates the TTL properties. Call before the message is stored or delayed;
    readers skip expired messages."""
    if EXPIRY_PROPERTIES.isdisjoint(properties):
        if not has_default_ttl(topic.definition):
            return
        properties[TTL_MS] = topic.definition.attributes[ATTRIBUTE]
    try:
        for name in EXPIRY_PROPERTIES & properties.keys():
            parse_milliseconds(properties[name])
    except ValueError as error:
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {name} is {error}") from None
    context.commit_log.topics.enable_ttl(topic)
