"""DeleteTopics, versions 1 to 6: deletes topics by name or, from version 6 on, by id; answered when that is durable.

A topic that is listed twice in a request is refused, with one result.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from trimq.core.partitions.topics import Topic
from trimq.core.security.resources import BROKER, Action
from trimq.errors import Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.schema import NO_ID
from trimq.protocols.kafka.messages.topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.names.internal_topics import INTERNAL
from trimq.protocols.kafka.wire.connection import Request, encode_response

_BY_ID = 6
_QUOTA_SINCE = 5  # versions from this one on are refused beyond the quota, older ones only throttled

_TopicKey = tuple[str | None, bytes]


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DeleteTopicsRequest)
    if request.api_version >= _BY_ID:
        asked: list[_TopicKey] = [(topic.name, topic.topic_id) for topic in message.topics]
    else:
        asked = [(name, NO_ID) for name in message.topic_names]
    is_strict = request.api_version >= _QUOTA_SINCE
    tickets = ChangeTickets()
    results: list[DeletableTopicResult] = []
    twice = _named_both_ways(context, asked)
    for each, count in Counter(asked).items():
        if each[1] in twice:
            continue  # answered under its name
        times = count if (each[0] is None) == (each[1] == NO_ID) else 1
        results += [_delete(context, each, count, twice, tickets, is_strict) for _ in range(times)]
    throttle_ms = context.throttle_mutations(is_strict, [result.error_code for result in results])
    return Reply.when_durable(tickets.number, lambda: _answer(request, results, tickets, throttle_ms))


def _answer(request: Request, results: list[DeletableTopicResult], tickets: ChangeTickets, throttle_ms: int) -> Parts:
    for result in results:
        refusal = tickets.refusal(result.topic_id)
        if refusal is not None:
            result.error_code, result.error_message = code_of(refusal), str(refusal)
    return encode_response(request, DeleteTopicsResponse(responses=results, throttle_time_ms=throttle_ms))


def _named_both_ways(context: Context, asked: list[_TopicKey]) -> set[bytes]:
    """Returns the ids of topics that the request names by their id and, in another entry, by their name."""
    ids = {id for name, id in asked if name is None and id != NO_ID}
    found = set()
    for name, id in asked:
        if name and id == NO_ID and ids:
            with suppress(Refusal):
                found.add(context.topic(name, b"").id.bytes)
    return found & ids


def _delete(
    context: Context, asked: _TopicKey, count: int, twice: set[bytes], tickets: ChangeTickets, is_strict: bool
) -> DeletableTopicResult:
    name, id = asked
    try:
        _check(name, id, count)
        topic = _find(context, name or "", id)
        if topic.id.bytes in twice:
            id = topic.id.bytes
            raise KafkaRefusal(Code.INVALID_REQUEST, "the topic is listed by its name and by its id")
        context.require_mutations(is_strict)
        partitions = len(topic.streams)
        tickets.add(topic.id.bytes, context.broker.topics.delete(context.caller, topic))
        context.charge_mutations(partitions)
    except Refusal as refusal:
        return DeletableTopicResult(name=name, topic_id=id, error_code=code_of(refusal), error_message=str(refusal))
    return DeletableTopicResult(name=topic.name.name, topic_id=topic.id.bytes)


def _find(context: Context, name: str, id: bytes) -> Topic:
    if name and context.broker.allowed(context.caller, Action.DELETE, BROKER):
        with suppress(Refusal):
            return context.any_topic(name)
    return context.own_topic(name, id)


def _check(name: str | None, id: bytes, count: int) -> None:
    if count > 1:
        raise KafkaRefusal(Code.INVALID_REQUEST, "the topic is listed more than once in the request")
    if (name is None) == (id == NO_ID):
        raise KafkaRefusal(Code.INVALID_REQUEST, "either the name or the id of the topic must be given")
    if name in INTERNAL:
        raise KafkaRefusal(Code.INVALID_TOPIC, f"{name} is an internal topic")
    if name == "":
        raise KafkaRefusal(Code.UNKNOWN_TOPIC_OR_PARTITION, "the topic name must not be empty")


HANDLERS = {"DeleteTopics": handle}
