"""AlterConfigs, versions 0 to 2, and IncrementalAlterConfigs, versions 0 and 1: change the settings of topics,
groups, this broker ("1") and all brokers (""); answered when all changes are durable. AlterConfigs replaces all
settings of a resource, IncrementalAlterConfigs changes only those that it names.

A change applies to open logs at once, and to members of groups with their next heartbeat.
Not served: changes to loggers and client metrics, and to broker settings that have no effect live (refused).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from trimq.core.partitions.dynamic_settings import Level
from trimq.core.partitions.topic_settings import TopicSettings
from trimq.core.partitions.topics import Topic
from trimq.core.security.resources import BROKER, Action
from trimq.errors import AccessDenied, InvalidSetting, Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.describe_configs import refuse_other_broker
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from trimq.protocols.kafka.names.broker_configs import (
    broker_name,
    current_broker_value,
    is_alterable_list,
    to_broker_configs,
    to_broker_settings,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.names.config_resources import ResourceType
from trimq.protocols.kafka.names.group_configs import to_group_configs, to_group_settings
from trimq.protocols.kafka.names.topic_configs import (
    MIN_INSYNC_REPLICAS,
    current_value,
    invalid_config,
    is_list,
    settings_unknown_to_kafka,
    to_configs,
    to_settings,
    with_kafka_name,
)
from trimq.protocols.kafka.wire.connection import Request, encode_response


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(Operation)
_ROOT_LOGGER = "root"
_CONTROLLED = (ResourceType.TOPIC, ResourceType.CLIENT_METRICS, ResourceType.GROUP)
"""Resources whose settings Kafka's controller checks and keeps."""


class _Resource(NamedTuple):
    type: int
    name: str


# Return the new settings under Kafka's names: of a topic from its settings under our names, and of a group or broker
# from its present ones.
_Change = Callable[[TopicSettings], dict[str, str]]
_ChangeGroup = Callable[[dict[str, str]], dict[str, str]]


class _ResourceChange(NamedTuple):
    resource: _Resource
    names: Sequence[str]
    without_value: Sequence[str]
    operations: Sequence[int] | None
    """Of each setting; None if the request replaces all settings of the resource."""
    change: _Change
    change_group: _ChangeGroup
    change_broker: _ChangeGroup


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(AlterConfigsRequest)

    def replacing(configs: list[AlterConfigsAlterableConfig]) -> _Change:
        return lambda before: {config.name: config.value or "" for config in configs}

    def replacing_group(configs: list[AlterConfigsAlterableConfig]) -> _ChangeGroup:
        return lambda before: {config.name: config.value or "" for config in configs}

    asked = [
        _ResourceChange(
            _Resource(resource.resource_type, resource.resource_name),
            [config.name for config in resource.configs],
            [config.name for config in resource.configs if config.value is None],
            None,
            replacing(resource.configs),
            replacing_group(resource.configs),
            replacing_group(resource.configs),
        )
        for resource in message.resources
    ]
    results, tickets = _alter(context, asked, message.validate_only)

    def answer() -> Parts:
        return encode_response(request, AlterConfigsResponse(responses=_with_write_results(results, tickets)))

    return Reply.when_durable(tickets.number, answer)


def handle_incremental(context: Context, request: Request) -> Reply:
    message = request.decode(IncrementalAlterConfigsRequest)

    def changing(configs: list[IncrementalAlterConfigsAlterableConfig]) -> _Change:
        return lambda before: _apply(context, before, configs)

    asked = [
        _ResourceChange(
            _Resource(resource.resource_type, resource.resource_name),
            [config.name for config in resource.configs],
            [
                each.name
                for each in resource.configs
                if each.value is None and each.config_operation != Operation.DELETE
            ],
            [each.config_operation for each in resource.configs],
            changing(resource.configs),
            partial(_apply_to_group, configs=resource.configs),
            partial(_apply_to_broker, context=context, configs=resource.configs),
        )
        for resource in message.resources
    ]
    results, tickets = _alter(context, asked, message.validate_only)

    def answer() -> Parts:
        return encode_response(
            request, IncrementalAlterConfigsResponse(responses=_with_write_results(results, tickets))
        )

    return Reply.when_durable(tickets.number, answer)


def _alter(
    context: Context, asked: list[_ResourceChange], validate_only: bool
) -> tuple[list[AlterConfigsResourceResponse], ChangeTickets]:
    tickets = ChangeTickets()
    results = []
    counts = Counter(each.resource for each in asked)
    fails = any(counts[each.resource] == 1 and _fails_request(each) for each in asked)
    for each in asked:
        result = AlterConfigsResourceResponse(
            error_message=None, resource_type=each.resource.type, resource_name=each.resource.name
        )
        try:
            if counts[each.resource] > 1:
                raise KafkaRefusal(Code.INVALID_REQUEST, "the resource is listed more than once in the request")
            _check_form(each)
            if fails and each.resource.type in _CONTROLLED:
                raise KafkaRefusal(Code.INVALID_REQUEST, "the request has an unknown operation")
            _alter_one(context, each, validate_only, tickets)
        except InvalidSetting as refusal:
            result.error_code, result.error_message = Code.INVALID_CONFIG, str(with_kafka_name(refusal))
        except Refusal as refusal:
            result.error_code, result.error_message = code_of(refusal), str(refusal)
        results.append(result)
    return results, tickets


def _check_form(asked: _ResourceChange) -> None:
    if len(set(asked.names)) != len(asked.names):
        raise KafkaRefusal(Code.INVALID_REQUEST, "a setting is listed more than once in the request")
    if asked.without_value:
        raise KafkaRefusal(Code.INVALID_REQUEST, f"{asked.without_value[0]}: the value is missing")


def _fails_request(asked: _ResourceChange) -> bool:
    """Returns whether the resource has an unknown operation, for which Kafka refuses all topics and groups of the
    request."""
    try:
        _check_form(asked)
    except KafkaRefusal:
        return False
    return asked.resource.type in _CONTROLLED and not _OPERATIONS.issuperset(asked.operations or ())


def _alter_one(context: Context, asked: _ResourceChange, validate_only: bool, tickets: ChangeTickets) -> None:
    if asked.resource.type == ResourceType.GROUP:
        _alter_group(context, asked, validate_only, tickets)
        return
    if asked.resource.type == ResourceType.BROKER:
        _alter_broker(context, asked, validate_only, tickets)
        return
    if asked.resource.type != ResourceType.TOPIC:
        _refuse_unless_empty(context, asked)
        return
    topic = _find_topic(context, asked)
    settings = settings_unknown_to_kafka(topic.settings) | to_settings(asked.change(topic.settings))
    if validate_only:
        context.broker.topics.check_change(context.caller, topic, settings)
    elif settings != topic.settings:
        tickets.add(asked.resource, context.broker.topics.change(context.caller, topic, settings))


def _find_topic(context: Context, asked: _ResourceChange) -> Topic:
    """Returns the topic. As in Kafka, an invalid setting or name is refused first."""
    try:
        return context.own_topic(asked.resource.name, b"", Action.ALTER_CONFIGS)
    except AccessDenied:
        raise
    except Refusal:
        after = asked.change({})
        if not asked.resource.name:
            raise KafkaRefusal(Code.INVALID_REQUEST, "settings of all topics are settings of the broker") from None
        context.broker.topics.check_name(asked.resource.name)
        context.broker.topics.check_settings(to_settings(after))
        raise


def _alter_group(context: Context, asked: _ResourceChange, validate_only: bool, tickets: ChangeTickets) -> None:
    group_api = context.broker.groups
    group_api.require(context.caller, Action.ALTER_CONFIGS, asked.resource.name)
    before = to_group_configs(group_api.settings(context.caller, asked.resource.name))
    after = asked.change_group(before)
    if not asked.resource.name:
        raise KafkaRefusal(Code.INVALID_REQUEST, "settings of all groups are settings of the broker")
    settings = to_group_settings(after)
    if not validate_only:
        ticket = group_api.change_settings(context.caller, asked.resource.name, settings)
        if ticket is not None:
            tickets.add(asked.resource, ticket)


def _apply_to_group(before: dict[str, str], configs: list[IncrementalAlterConfigsAlterableConfig]) -> dict[str, str]:
    after = dict(before)
    for config in configs:
        if config.config_operation == Operation.DELETE:
            after.pop(config.name, None)
        elif config.config_operation == Operation.SET:
            after[config.name] = config.value or ""
        else:
            raise invalid_config(config.name, "not a list: APPEND and SUBTRACT need a list")
    return after


def _alter_broker(context: Context, asked: _ResourceChange, validate_only: bool, tickets: ChangeTickets) -> None:
    context.broker.require(context.caller, Action.ALTER_CONFIGS, BROKER)
    refuse_other_broker(context, asked.resource.name)
    dynamic = context.broker.dynamic_settings
    is_cluster = not asked.resource.name
    level = Level.CLUSTER if is_cluster else Level.NODE
    try:
        before = to_broker_configs(dynamic.values(context.caller, level), is_cluster)
        after = asked.change_broker(before)
        if not is_cluster and MIN_INSYNC_REPLICAS in asked.names:
            raise invalid_config(MIN_INSYNC_REPLICAS, 'cannot be changed for one broker, only for all ("")')
        if is_cluster and MIN_INSYNC_REPLICAS not in after:
            raise invalid_config(MIN_INSYNC_REPLICAS, "cannot be removed for all brokers")
        settings = to_broker_settings(after)
        if validate_only:
            dynamic.check(context.caller, settings)
        elif after != before:
            ticket = dynamic.change(context.caller, level, settings)
            if ticket is not None:
                tickets.add(asked.resource, ticket)
    except InvalidSetting as refusal:
        raise KafkaRefusal(Code.INVALID_REQUEST, f"{broker_name(refusal.name)}: {refusal.reason}") from None


def _apply_to_broker(
    before: dict[str, str], context: Context, configs: list[IncrementalAlterConfigsAlterableConfig]
) -> dict[str, str]:
    after = dict(before)
    for config in configs:
        name = config.name
        operation = _operation(config)
        if operation is Operation.DELETE:
            after.pop(name, None)
            continue
        value = config.value or ""
        if operation is not Operation.SET:
            if not is_alterable_list(name):
                raise invalid_config(name, "not a list: APPEND and SUBTRACT need a list")
            value = _edit_words(operation, value, after.get(name, current_broker_value(name, context.broker_levels)))
        after[name] = value
    return after


def _operation(config: IncrementalAlterConfigsAlterableConfig) -> Operation:
    try:
        return Operation(config.config_operation)
    except ValueError:
        raise KafkaRefusal(Code.INVALID_REQUEST, f"unknown operation {config.config_operation}") from None


def _refuse_unless_empty(context: Context, asked: _ResourceChange) -> None:
    try:
        kind = ResourceType(asked.resource.type)
    except ValueError:
        raise KafkaRefusal(Code.INVALID_REQUEST, f"unknown resource type {asked.resource.type}") from None
    context.broker.require(context.caller, Action.ALTER_CONFIGS, BROKER)
    if kind is ResourceType.BROKER_LOGGER:
        _refuse_loggers(context, asked)
    elif asked.names:
        raise invalid_config(asked.names[0], f"resource type {kind.name.lower().replace('_', ' ')} has no settings")


def _refuse_loggers(context: Context, asked: _ResourceChange) -> None:
    """Raises as Kafka does where it has no logger of this name, and else because log levels cannot be changed."""
    if asked.operations is None:
        raise KafkaRefusal(Code.INVALID_REQUEST, "AlterConfigs does not support loggers")
    if not asked.resource.name:
        raise KafkaRefusal(Code.INVALID_REQUEST, "the id of the broker is missing")
    refuse_other_broker(context, asked.resource.name)
    for name, operation in zip(asked.names, asked.operations, strict=True):
        if name != _ROOT_LOGGER and operation in (Operation.SET, Operation.DELETE):
            raise invalid_config(name, "there is no logger of this name")
        raise KafkaRefusal(Code.INVALID_REQUEST, "log levels cannot be changed while the broker runs")


def _apply(
    context: Context, settings: TopicSettings, configs: list[IncrementalAlterConfigsAlterableConfig]
) -> dict[str, str]:
    after = to_configs(settings)
    for config in configs:
        name = config.name
        operation = _operation(config)
        if operation is Operation.DELETE:
            after.pop(name, None)
            continue
        value = config.value or ""
        if operation is not Operation.SET:
            value = _edit_list(name, operation, value, current_value(name, settings, context.broker_levels))
        after[name] = value
    return after


def _edit_list(name: str, operation: Operation, value: str, before: str) -> str:
    if not is_list(name):
        raise invalid_config(name, "not a list: APPEND and SUBTRACT need a list")
    return _edit_words(operation, value, before)


def _edit_words(operation: Operation, value: str, before: str) -> str:
    words = [word.strip() for word in (value.rstrip(",") or value).split(",")]  # as Java splits
    kept = before.split(",") if before else []
    if operation is Operation.APPEND:
        return ",".join([*kept, *(word for word in words if word not in kept)])
    return ",".join(word for word in kept if word not in words)


def _with_write_results(
    results: list[AlterConfigsResourceResponse], tickets: ChangeTickets
) -> list[AlterConfigsResourceResponse]:
    for result in results:
        refusal = tickets.refusal(_Resource(result.resource_type, result.resource_name))
        if refusal is not None:
            result.error_code, result.error_message = code_of(refusal), str(refusal)
    return results


HANDLERS = {"AlterConfigs": handle, "IncrementalAlterConfigs": handle_incremental}
