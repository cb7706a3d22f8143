"""ListConfigResources, versions 0 and 1: lists the resources that DescribeConfigs can describe, by type; without types,
all of them.

Version 0 lists client metrics only, of which there are none. Groups are listed if they have settings of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimq.core.security.resources import BROKER, Action
from trimq.errors import AccessDenied
from trimq.model import Layout
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.configs import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from trimq.protocols.kafka.names.codes import Code, code_of
from trimq.protocols.kafka.names.config_resources import ResourceType
from trimq.protocols.kafka.wire.connection import Request, encode_response

_BY_KIND = 1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ListConfigResourcesRequest)
    try:
        context.broker.require(context.caller, Action.DESCRIBE_CONFIGS, BROKER)
    except AccessDenied as refusal:
        return Reply.now(encode_response(request, ListConfigResourcesResponse(error_code=code_of(refusal))))
    if request.api_version < _BY_KIND:
        return Reply.now(encode_response(request, ListConfigResourcesResponse()))
    kinds = set(message.resource_types) or set(ResourceType)
    if not kinds <= set(ResourceType):
        response = ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION)
        return Reply.now(encode_response(request, response))
    resources = [
        ConfigResource(resource_name=name, resource_type=kind) for kind, name in _resources(context) if kind in kinds
    ]
    return Reply.now(encode_response(request, ListConfigResourcesResponse(config_resources=resources)))


def _resources(context: Context) -> Iterator[tuple[ResourceType, str]]:
    for topic in context.broker.topics.all(context.caller, Layout.PARTITION_LOG):
        yield ResourceType.TOPIC, topic.name.name
    for name in context.internal_topics():
        yield ResourceType.TOPIC, name
    for group in context.broker.groups.with_settings(context.caller):
        yield ResourceType.GROUP, group
    for node in context.broker.cluster.nodes():
        yield ResourceType.BROKER, str(node.id)
        yield ResourceType.BROKER_LOGGER, str(node.id)


HANDLERS = {"ListConfigResources": handle}
