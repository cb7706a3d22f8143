"""One file per API family. What is listed here is served, and announced by ApiVersions: the two cannot drift apart."""

from __future__ import annotations

from collections.abc import Callable

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.connection import Request
from trimq.protocols.kafka.handlers import (
    administration,
    api_versions,
    fetch,
    groups,
    list_offsets,
    metadata,
    produce,
    sasl,
    transactions,
)
from trimq.protocols.kafka.handlers.context import Context

Handler = Callable[[Context, Request], Reply | None]

HANDLERS: dict[int, Handler] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    **administration.HANDLERS,
    **groups.HANDLERS,
    **sasl.HANDLERS,
    **transactions.HANDLERS,
}
HANDLERS[18] = lambda context, request: api_versions.handle(request, HANDLERS)
