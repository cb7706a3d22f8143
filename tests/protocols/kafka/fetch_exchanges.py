"""Requests and responses of fetch sessions, on a session cache without a broker."""

from __future__ import annotations

import random
from typing import Any

from trimq.protocols.kafka.handlers.fetch_sessions import FetchSessions, SessionFetch
from trimq.protocols.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from trimq.protocols.kafka.names.codes import Code


def cache(**limits: int) -> FetchSessions:
    return FetchSessions(random.Random(3), **limits)


def ask(id: int, epoch: int, *partitions: int, offset: int = 0, forget: tuple[int, ...] = ()) -> FetchRequest:
    asked = [FetchPartition(partition=one, fetch_offset=offset, partition_max_bytes=1 << 20) for one in partitions]
    return FetchRequest(
        session_id=id,
        session_epoch=epoch,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="t", partitions=asked)] if asked else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def answer(exchange: SessionFetch, **changed: Any) -> FetchResponse:
    """Response with all partitions that the exchange reads, in its order. `changed`: fields of single partitions, by
    `p0`, `p1` ..."""
    data = [
        PartitionData(
            **{
                "partition_index": one.place.partition,
                "high_watermark": 5,
                "log_start_offset": 0,
                "records": b"",
                **changed.get(f"p{one.place.partition}", {}),
            }
        )
        for one in exchange.wanted
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)] if data else [])


def exchange(sessions: FetchSessions, request: FetchRequest, now_ms: int = 0, **changed: Any) -> FetchResponse:
    begun = sessions.begin(request, by_id=False, now_ms=now_ms)
    if begun.error:
        return FetchResponse(error_code=begun.error, session_id=begun.session_id)
    response = answer(begun, **changed)
    sessions.finish(begun, response, now_ms)
    return response


def sent_partitions(response: FetchResponse) -> list[int]:
    assert response.error_code == Code.NONE
    return [data.partition_index for topic in response.responses for data in topic.partitions]
