"""CreateTopics, versions 2 to 7: creates topics, each independently; answered when all of them are durable.

A name that is listed twice in a request is refused, with one result. validate_only runs the checks without changes.
Not served: more than one replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from trimq.errors import InvalidSetting, Refusal
from trimq.model import Layout
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.names.internal_topics import INTERNAL
from trimq.protocols.kafka.names.topic_configs import describe, invalid_config, to_settings, with_kafka_name
from trimq.protocols.kafka.wire.connection import Request, encode_response

_CHOOSE = -1  # the broker chooses the number
MANY_PARTITIONS = 25  # above this number in one request, files are prepared over several turns of the event loop
_QUOTA_SINCE = 6  # versions from this one on are refused beyond the quota, older ones only throttled
_MAX_PARTITIONS = 10_000  # in one request, as in Apache Kafka


class _Plan(NamedTuple):
    streams: int
    settings: dict[str, str]


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(CreateTopicsRequest)
    counts = Counter(topic.name for topic in message.topics)
    asked_for = sum(
        len(topic.assignments) or max(topic.num_partitions, 1) for topic in message.topics if counts[topic.name] == 1
    )
    if message.validate_only or message.timeout_ms <= 0 or not MANY_PARTITIONS < asked_for <= _MAX_PARTITIONS:
        return _create_all(context, request, message, asked_for)
    reply = DeferredReply()
    context.broker.topics.prepare(
        context.caller,
        list(_wanted(context, message)),
        lambda: reply.resolve_as(_create_all(context, request, message, asked_for)),
    )
    return reply


def _wanted(context: Context, message: CreateTopicsRequest) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Yields name, partition count and settings of the topics that pass the checks of the request."""
    for asked in message.topics:
        with suppress(Refusal):
            plan = _plan(context, asked)
            yield asked.name, plan.streams, plan.settings


def _create_all(context: Context, request: Request, message: CreateTopicsRequest, asked_for: int) -> Reply:
    tickets = ChangeTickets()
    results = []
    counts = Counter(topic.name for topic in message.topics)
    if asked_for > _MAX_PARTITIONS:  # each entry is answered, also of a topic that is listed twice
        reason = f"a request may create at most {_MAX_PARTITIONS} partitions"
        refused = [_failed(topic.name, Code.POLICY_VIOLATION, reason) for topic in message.topics]
        return Reply.now(encode_response(request, CreateTopicsResponse(topics=refused)))
    for name, asked in {topic.name: topic for topic in message.topics}.items():
        try:
            if counts[name] > 1:
                raise KafkaRefusal(Code.INVALID_REQUEST, "the topic is listed more than once in the request")
            if message.timeout_ms <= 0:
                raise KafkaRefusal(Code.REQUEST_TIMED_OUT, "the request has no time left: timeout_ms must be positive")
            results.append(_create(context, request, asked, message.validate_only, tickets))
        except InvalidSetting as refusal:
            results.append(_failed(name, Code.INVALID_CONFIG, str(with_kafka_name(refusal))))
        except Refusal as refusal:
            results.append(_failed(name, code_of(refusal), str(refusal)))
    throttle_ms = context.throttle_mutations(_is_strict(request), [result.error_code for result in results])
    return Reply.when_durable(tickets.number, lambda: _answer(request, results, tickets, throttle_ms))


def _is_strict(request: Request) -> bool:
    return request.api_version >= _QUOTA_SINCE


def _answer(request: Request, results: list[CreatableTopicResult], tickets: ChangeTickets, throttle_ms: int) -> Parts:
    for index, result in enumerate(results):
        refusal = tickets.refusal(result.name)
        if refusal is not None:
            results[index] = _failed(result.name, code_of(refusal), str(refusal))
    return encode_response(request, CreateTopicsResponse(topics=results, throttle_time_ms=throttle_ms))


def _create(
    context: Context, request: Request, asked: CreatableTopic, validate_only: bool, tickets: ChangeTickets
) -> CreatableTopicResult:
    context.broker.topics.require_create(context.caller, asked.name)
    _refuse_existing(context, asked.name)
    context.broker.topics.check_name(asked.name)
    refuse_colliding_name(context, asked.name)
    plan = _plan(context, asked)
    topics, caller = context.broker.topics, context.caller
    context.require_mutations(_is_strict(request))
    if validate_only:
        id = topics.check_new(caller, asked.name, plan.streams, plan.settings)
        context.charge_mutations(plan.streams)
        return _made(context, asked, id, plan)
    topic, ticket = topics.create(caller, asked.name, Layout.PARTITION_LOG, plan.streams, plan.settings)
    context.charge_mutations(plan.streams)
    tickets.add(asked.name, ticket)
    return _made(context, asked, topic.id, plan)


def _refuse_existing(context: Context, name: str) -> None:
    """Raises if the topic exists, of whatever protocol. Called before name and settings are checked: this error takes
    precedence."""
    if name not in INTERNAL:
        try:
            context.readable_topic(name, b"")
        except Refusal:
            return
    raise KafkaRefusal(Code.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")


def refuse_colliding_name(context: Context, name: str) -> None:
    """Raises if the name equals that of another topic after replacing "." by "_", as Kafka's metrics do."""
    if "." not in name and "_" not in name:
        return
    alike = name.replace(".", "_")
    for topic in context.broker.topics.all(context.caller):
        other = topic.name.name
        if other != name and other.replace(".", "_") == alike:
            raise KafkaRefusal(Code.INVALID_TOPIC, f"{name} collides with the existing topic {other}")


def _plan(context: Context, asked: CreatableTopic) -> _Plan:
    configs = {}
    for config in asked.configs:
        if config.value is None:
            raise invalid_config(config.name, "the value is missing")
        configs[config.name] = config.value
    settings = to_settings(configs)
    context.broker.topics.check_settings(settings)
    if asked.assignments:
        if asked.num_partitions != _CHOOSE or asked.replication_factor != _CHOOSE:
            raise KafkaRefusal(
                Code.INVALID_REQUEST, "with replica assignments, num_partitions and replication_factor must be -1"
            )
        return _Plan(_count_assigned(context, asked.assignments), settings)
    if asked.replication_factor not in (_CHOOSE, 1):
        reason = f"{len(context.broker.cluster.nodes())} node cannot hold {asked.replication_factor} replicas"
        raise KafkaRefusal(Code.INVALID_REPLICATION_FACTOR, reason)
    if asked.num_partitions == _CHOOSE:
        return _Plan(context.broker.settings.kafka.num_partitions, settings)
    return _Plan(asked.num_partitions, settings)


def _count_assigned(context: Context, assignments: list[CreatableReplicaAssignment]) -> int:
    indexes = sorted(assignment.partition_index for assignment in assignments)
    if indexes != list(range(len(indexes))):
        raise KafkaRefusal(Code.INVALID_REPLICA_ASSIGNMENT, "partition indexes must count from 0 without gaps")
    for assignment in assignments:
        refuse_replicas(context, assignment.broker_ids)
    return len(indexes)


def refuse_replicas(context: Context, nodes: list[int]) -> None:
    """Raises unless this node is the only replica."""
    unknown = [node for node in nodes if context.broker.cluster.node(node) is None]
    if unknown:
        raise KafkaRefusal(Code.INVALID_REPLICA_ASSIGNMENT, f"unknown node {unknown[0]}")
    if len(nodes) != 1:
        raise KafkaRefusal(Code.INVALID_REPLICA_ASSIGNMENT, "a partition must have exactly one replica")


def _made(context: Context, asked: CreatableTopic, id: UUID, plan: _Plan) -> CreatableTopicResult:
    if not context.may_see_settings(asked.name):
        hidden = Code.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(
            name=asked.name, topic_id=id.bytes, error_message=None, topic_config_error_code=hidden, configs=[]
        )
    given = {config.name: config.value for config in asked.configs}  # shown as they were sent
    configs = [
        CreatableTopicConfigs(name=found.name, value=given.get(found.name, found.value), config_source=found.source)
        for found in describe(plan.settings, context.broker_levels)
    ]
    return CreatableTopicResult(
        name=asked.name,
        topic_id=id.bytes,
        error_message=None,
        num_partitions=plan.streams,
        replication_factor=1,
        configs=configs,
    )


def _failed(name: str, code: Code, reason: str) -> CreatableTopicResult:
    # An empty list: the Java client fails on null.
    return CreatableTopicResult(name=name, error_code=code, error_message=reason, configs=[])


HANDLERS = {"CreateTopics": handle}
