"""WriteTxnMarkers, version 1: an administrator ends open records of a producer by hand (`kafka-transactions abort`), in
partitions in which no transaction will end them. Answered when all markers are durable.

A marker of an older epoch than the producer's is refused. The state of the transaction itself does not change.
"""

from __future__ import annotations

from trimq.core.transactions.transaction import ProducerIdentity
from trimq.errors import Refusal
from trimq.formats.kafka_batch.markers import Marker
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(WriteTxnMarkersRequest)
    tickets = ChangeTickets()
    results = [_write(context, number, marker, tickets) for number, marker in enumerate(message.markers)]

    def answer() -> Parts:
        for number, result in enumerate(results):
            for topic in result.topics:
                for partition in topic.partitions:
                    refusal = tickets.refusal((number, topic.name, partition.partition_index))
                    if refusal is not None:
                        partition.error_code = code_of(refusal)
        return encode_response(request, WriteTxnMarkersResponse(markers=results))

    return Reply.when_durable(tickets.number, answer)


def _write(context: Context, number: int, marker: WritableTxnMarker, tickets: ChangeTickets) -> WritableTxnMarkerResult:
    places = dict.fromkeys((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
    found: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for name, index in places:
        code = _write_one(context, number, marker, name, index, tickets)
        found.setdefault(name, []).append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
    topics = [WritableTxnMarkerTopicResult(name=name, partitions=partitions) for name, partitions in found.items()]
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


def _write_one(
    context: Context, number: int, marker: WritableTxnMarker, topic: str, index: int, tickets: ChangeTickets
) -> Code:
    producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
    try:
        context.broker.transactions.require_markers(context.caller)
        stream = context.any_topic(topic).stream(index)
        state = stream.log.producers.get(producer.id)
        if state is not None and state.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaRefusal(Code.TRANSACTION_COORDINATOR_FENCED, "a newer coordinator has written a marker")
        outcome = Marker(marker.transaction_result, marker.coordinator_epoch)
        ticket = context.broker.transactions.write_marker(context.caller, stream, producer, outcome)
    except Refusal as refusal:
        return code_of(refusal)
    tickets.add((number, topic, index), ticket)
    return Code.NONE


HANDLERS = {"WriteTxnMarkers": handle}
