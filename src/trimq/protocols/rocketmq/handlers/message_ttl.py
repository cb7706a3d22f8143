"""Messages that are of use for a time only: as their producer has said, or their topic for those that say nothing."""

from __future__ import annotations

from trimq.core.commit_log.topics import SharedDefinition, SharedTopic
from trimq.formats.rocketmq_unit.ttl import LIMITS, TTL_MS, read_limit
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import Code, Failure

ATTRIBUTE = "trimq.ttl.ms"
"""Of a topic: how long its messages are of use that do not say so themselves."""


def limits_all(definition: SharedDefinition) -> bool:
    return ATTRIBUTE in definition.attributes


def limit_life(context: Context, topic: SharedTopic, properties: dict[str, str]) -> None:
    """Before it is stored, now or later, for `topic`. What is too old is passed over by those who read it."""
    if LIMITS.isdisjoint(properties):
        if not limits_all(topic.definition):
            return
        properties[TTL_MS] = topic.definition.attributes[ATTRIBUTE]
    try:
        for name in LIMITS & properties.keys():
            read_limit(properties[name])
    except ValueError as error:
        raise Failure(Code.MESSAGE_ILLEGAL, f"the message is illegal: {name} is {error}") from None
    context.sharing.let_expire(topic)
