"""Handlers of the Kafka APIs, one file per API or pair of APIs. Each file names the APIs that it serves in `HANDLERS`;
ApiVersions announces the sum of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers import api_versions
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.wire.apis import ROWS
from trimq.protocols.kafka.wire.connection import Request

Handler = Callable[[Context, Request], Reply | None]

_KEYS = {api.name: api.key for api in ROWS}


def _served_by(module: str) -> Mapping[str, Handler]:
    """Returns the handlers by API name; none for modules that handlers share."""
    return getattr(import_module(f"trimq.protocols.kafka.handlers.{module}"), "HANDLERS", {})


HANDLERS: dict[int, Handler] = {
    _KEYS[name]: handler for found in iter_modules(__path__) for name, handler in _served_by(found.name).items()
}
HANDLERS[_KEYS["ApiVersions"]] = lambda context, request: api_versions.handle(request, HANDLERS)
