"""Which handlers serve consumer groups and how far they have read."""

from __future__ import annotations

from collections.abc import Callable

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.wire.connection import Request

HANDLERS: dict[int, Callable[[Context, Request], Reply]] = {
    8: offset_commit.handle,
    9: offset_fetch.handle,
    10: find_coordinator.handle,
    11: join_group.handle,
    12: heartbeat.handle,
    13: leave_group.handle,
    14: sync_group.handle,
    15: describe_groups.handle,
    16: list_groups.handle,
    42: delete_groups.handle,
    47: offset_delete.handle,
    68: consumer_group_heartbeat.handle,
    69: consumer_group_describe.handle,
}
