"""DescribeLogDirs, versions 1 to 5: returns the data folder, its total and free space, and the size of each partition.

Not served: moving partitions between folders.
"""

from __future__ import annotations

from trimq.core.partitions.topics import Topic
from trimq.errors import AccessDenied, Refusal
from trimq.model import SYSTEM, Layout
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.logs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeLogDirsRequest)
    try:
        space = context.broker.space(context.caller)
    except AccessDenied:
        response = DescribeLogDirsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED)
        return Reply.now(encode_response(request, response))
    result = DescribeLogDirsResult(
        log_dir=context.broker.settings.data_dir,
        topics=_topics(context, message.topics),
        total_bytes=space.total_bytes,
        usable_bytes=space.free_bytes,
    )
    return Reply.now(encode_response(request, DescribeLogDirsResponse(results=[result])))


def _topics(context: Context, asked: list[DescribableLogDirTopic] | None) -> list[DescribeLogDirsTopic]:
    """Returns the sizes of the requested partitions; leaves out unknown topics and partitions."""
    if asked is None:
        topics = context.broker.topics.all(SYSTEM, Layout.PARTITION_LOG)
        return [_measure(topic, set(range(len(topic.streams)))) for topic in topics]
    wanted: dict[str, set[int]] = {}
    for each in asked:
        wanted.setdefault(each.topic, set()).update(each.partitions)
    found = []
    for name, partitions in wanted.items():
        try:
            measured = _measure(context.any_topic(name), partitions)
        except Refusal:
            continue
        if measured.partitions:
            found.append(measured)
    return found


def _measure(topic: Topic, partitions: set[int]) -> DescribeLogDirsTopic:
    sizes = [
        DescribeLogDirsPartition(partition_index=stream.id.number, partition_size=stream.log.size_bytes)
        for stream in topic.streams
        if stream.id.number in partitions
    ]
    return DescribeLogDirsTopic(name=topic.name.name, partitions=sizes)


HANDLERS = {"DescribeLogDirs": handle}
