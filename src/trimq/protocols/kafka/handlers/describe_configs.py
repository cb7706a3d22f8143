"""DescribeConfigs, versions 1 to 4: returns the settings of topics, groups and this broker; without keys, all of them.

Not served: settings of loggers and client metrics (answered with an empty list).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trimq.core.partitions.dynamic_settings import Level
from trimq.core.security.resources import BROKER, Action
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from trimq.protocols.kafka.names.broker_configs import describe_broker, describe_cluster_defaults
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.names.config_resources import ResourceType
from trimq.protocols.kafka.names.group_configs import describe_group
from trimq.protocols.kafka.names.internal_topics import INTERNAL, SETTINGS
from trimq.protocols.kafka.names.topic_configs import DescribedConfig, describe
from trimq.protocols.kafka.wire.connection import Request, encode_response

_TYPES = frozenset(ResourceType)
_NAMED = (ResourceType.BROKER_LOGGER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)
# Times that a resource is described: otherwise a small request could cause a response of any size.
_MAX_REPEATS = 10


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeConfigsRequest)
    results = []
    counts: Counter[tuple[int, str]] = Counter()
    has_unknown_type = any(each.resource_type not in _TYPES for each in message.resources)
    for asked in message.resources:
        result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        counts[asked.resource_type, asked.resource_name] += 1
        try:
            if has_unknown_type:
                raise KafkaRefusal(Code.INVALID_REQUEST, "the request has a resource of an unknown type")
            if counts[asked.resource_type, asked.resource_name] > _MAX_REPEATS:
                raise KafkaRefusal(Code.INVALID_REQUEST, f"the resource is listed more than {_MAX_REPEATS} times")
            found = _describe(context, asked)
            result.configs = [
                _encode_config(each, message.include_synonyms, message.include_documentation)
                for each in found
                if not asked.configuration_keys or each.name in asked.configuration_keys
            ]
        except Refusal as refusal:
            result.error_code, result.error_message = code_of(refusal), str(refusal)
        results.append(result)
    return Reply.now(encode_response(request, DescribeConfigsResponse(results=results)))


def _describe(context: Context, asked: DescribeConfigsResource) -> Iterable[DescribedConfig]:
    if not asked.resource_name and asked.resource_type in _NAMED:
        raise KafkaRefusal(Code.INVALID_REQUEST, "the name of the resource must not be empty")
    if asked.resource_type == ResourceType.TOPIC:
        context.require_topic(Action.DESCRIBE_CONFIGS, asked.resource_name)
        if asked.resource_name in INTERNAL:
            return describe(SETTINGS[asked.resource_name], context.broker_levels)
        context.broker.topics.check_name(asked.resource_name)
        topic = context.topic(asked.resource_name, b"", Action.DESCRIBE_CONFIGS)
        return describe(topic.settings, context.broker_levels)
    if asked.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        context.broker.require(context.caller, Action.DESCRIBE_CONFIGS, BROKER)
        refuse_other_broker(context, asked.resource_name)
        return _describe_broker(context, asked.resource_name) if asked.resource_type == ResourceType.BROKER else ()
    if asked.resource_type == ResourceType.GROUP:
        return describe_group(context.broker.groups.settings(context.caller, asked.resource_name))
    context.broker.require(context.caller, Action.DESCRIBE_CONFIGS, BROKER)
    return ()


def _describe_broker(context: Context, name: str) -> Iterable[DescribedConfig]:
    """Returns the settings of this broker, or without a name those of all brokers."""
    if not name:
        return describe_cluster_defaults(context.broker.dynamic_settings.values(context.caller, Level.CLUSTER))
    return describe_broker(context.broker_levels, context.broker.cluster.me)


def refuse_other_broker(context: Context, name: str) -> None:
    """Raises if `name` is the id of another broker. An empty name means all brokers."""
    if name and name != str(context.broker.cluster.my_id):
        raise KafkaRefusal(Code.INVALID_REQUEST, f"this is broker {context.broker.cluster.my_id}, not {name[:40]!r}")


def _encode_config(
    found: DescribedConfig, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResourceResult:
    synonyms = found.synonyms if with_synonyms else ()
    return DescribeConfigsResourceResult(
        name=found.name,
        value=found.value,
        read_only=found.is_read_only,
        config_source=found.source,
        is_sensitive=found.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in synonyms],
        config_type=found.kind,
        documentation=found.documentation if with_documentation else None,
    )


HANDLERS = {"DescribeConfigs": handle}
