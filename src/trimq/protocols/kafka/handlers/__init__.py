"""One file per API family. What is listed here is served, and announced by ApiVersions: the two cannot drift apart."""

from __future__ import annotations

from collections.abc import Callable

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers import (
    api_versions,
    fetch,
    list_offsets,
    metadata,
    produce,
    sasl,
    table_admin,
    table_groups,
    table_transactions,
)
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.wire.connection import Request

Handler = Callable[[Context, Request], Reply | None]

HANDLERS: dict[int, Handler] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    **table_admin.HANDLERS,
    **table_groups.HANDLERS,
    **sasl.HANDLERS,
    **table_transactions.HANDLERS,
}
HANDLERS[18] = lambda context, request: api_versions.handle(request, HANDLERS)
