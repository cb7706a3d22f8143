"""AlterReplicaLogDirs, versions 1 and 2: a partition can only be placed where it is, in the one data folder.

Not served: moving partitions (other folders are answered with LOG_DIR_NOT_FOUND).
"""

from __future__ import annotations

from trimq.core.security.resources import BROKER, Action
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.logs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from trimq.protocols.kafka.names.codes import Code, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response

# Kafka keeps the copy in a folder that is named like the partition, with 40 more characters of the 255 it may have.
_MOST_CHARACTERS = 255 - len("." + 32 * "0" + "-future")


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(AlterReplicaLogDirsRequest)
    results: dict[str, dict[int, Code]] = {}
    for folder in message.dirs:
        for topic in folder.topics:
            for index in topic.partitions:
                results.setdefault(topic.name, {})[index] = _place(context, folder.path, topic.name, index)
    topics = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                for index, code in partitions.items()
            ],
        )
        for name, partitions in results.items()
    ]
    return Reply.now(encode_response(request, AlterReplicaLogDirsResponse(results=topics)))


def _place(context: Context, path: str, topic: str, index: int) -> Code:
    try:
        context.broker.require(context.caller, Action.ALTER, BROKER)
        if len(f"{topic}-{index}") > _MOST_CHARACTERS:
            return Code.INVALID_TOPIC
        if path != context.broker.settings.data_dir:
            return Code.LOG_DIR_NOT_FOUND
        context.any_topic(topic).stream(index)
    except Refusal as refusal:
        return code_of(refusal)
    return Code.NONE


HANDLERS = {"AlterReplicaLogDirs": handle}
