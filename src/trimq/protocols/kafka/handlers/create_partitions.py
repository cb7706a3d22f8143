"""CreatePartitions, versions 0 to 3: adds partitions to topics; answered when all of them are durable.

A topic that is listed twice in a request is refused, with one result. validate_only runs the checks without changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from trimq.core.partitions.topics import Topic
from trimq.core.security.resources import Action
from trimq.errors import Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.create_topics import MANY_PARTITIONS, refuse_replicas
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.names.internal_topics import INTERNAL, PARTITIONS
from trimq.protocols.kafka.wire.connection import Request, encode_response

_QUOTA_SINCE = 3  # versions from this one on are refused beyond the quota, older ones only throttled


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(CreatePartitionsRequest)
    wanted = [] if message.validate_only else list(_wanted(context, message))
    if sum(count - len(topic.streams) for topic, count in wanted) <= MANY_PARTITIONS:
        return _grow_all(context, request, message)
    reply = DeferredReply()
    context.broker.topics.prepare_growth(
        context.caller, wanted, lambda: reply.resolve_as(_grow_all(context, request, message))
    )
    return reply


def _wanted(context: Context, message: CreatePartitionsRequest) -> Iterator[tuple[Topic, int]]:
    """Yields the topics that pass the checks, with their new partition counts."""
    for asked in message.topics:
        with suppress(Refusal):
            if asked.name not in INTERNAL:
                topic = context.own_topic(asked.name, b"", Action.ALTER)
                context.broker.topics.check_growth(context.caller, topic, asked.count)
                yield topic, asked.count


def _grow_all(context: Context, request: Request, message: CreatePartitionsRequest) -> Reply:
    is_strict = request.api_version >= _QUOTA_SINCE
    tickets = ChangeTickets()
    results = []
    counts = Counter(topic.name for topic in message.topics)
    for name, asked in {topic.name: topic for topic in message.topics}.items():
        try:
            if counts[name] > 1:
                raise KafkaRefusal(Code.INVALID_REQUEST, "the topic is listed more than once in the request")
            _grow(context, asked, message.validate_only, tickets, is_strict)
            results.append(CreatePartitionsTopicResult(name=name))
        except Refusal as refusal:
            results.append(_failed(name, refusal))
    throttle_ms = context.throttle_mutations(is_strict, [result.error_code for result in results])
    return Reply.when_durable(tickets.number, lambda: _answer(request, results, tickets, throttle_ms))


def _answer(
    request: Request, results: list[CreatePartitionsTopicResult], tickets: ChangeTickets, throttle_ms: int
) -> Parts:
    for index, result in enumerate(results):
        refusal = tickets.refusal(result.name)
        if refusal is not None:
            results[index] = _failed(result.name, refusal)
    return encode_response(request, CreatePartitionsResponse(results=results, throttle_time_ms=throttle_ms))


def _grow(
    context: Context, asked: CreatePartitionsTopic, validate_only: bool, tickets: ChangeTickets, is_strict: bool
) -> None:
    if asked.name in INTERNAL:
        if asked.count <= PARTITIONS:
            raise KafkaRefusal(Code.INVALID_PARTITIONS, f"{asked.name} has {PARTITIONS} partitions already")
        if not validate_only:
            raise KafkaRefusal(Code.INVALID_TOPIC, f"{asked.name} is an internal topic")
        return
    topic = context.own_topic(asked.name, b"", Action.ALTER)
    added = asked.count - len(topic.streams)
    if asked.assignments is not None and added > 0 and len(asked.assignments) != added:
        reason = f"{added} new partitions require the same number of assignments"
        raise KafkaRefusal(Code.INVALID_REPLICA_ASSIGNMENT, reason)
    context.broker.topics.check_growth(context.caller, topic, asked.count)
    if asked.assignments is not None:
        for assignment in asked.assignments:
            refuse_replicas(context, assignment.broker_ids)
    context.require_mutations(is_strict)
    if not validate_only:
        tickets.add(asked.name, context.broker.topics.grow(context.caller, topic, asked.count))
    context.charge_mutations(added)


def _failed(name: str, refusal: Refusal) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code_of(refusal), error_message=str(refusal))


HANDLERS = {"CreatePartitions": handle}
