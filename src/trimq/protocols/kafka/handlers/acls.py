"""DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3: every request is answered with SECURITY_DISABLED, as by an
Apache Kafka without an authorizer.

Not served: access control lists.
"""

from __future__ import annotations

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire.connection import Request, encode_response

_REASON = "no authorizer is configured"


def handle_describe(context: Context, request: Request) -> Reply:
    request.decode(DescribeAclsRequest)
    response = DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=_REASON)
    return Reply.now(encode_response(request, response))


def handle_create(context: Context, request: Request) -> Reply:
    message = request.decode(CreateAclsRequest)
    refused = AclCreationResult(error_code=Code.SECURITY_DISABLED, error_message=_REASON)
    return Reply.now(encode_response(request, CreateAclsResponse(results=[refused] * len(message.creations))))


def handle_delete(context: Context, request: Request) -> Reply:
    message = request.decode(DeleteAclsRequest)
    refused = DeleteAclsFilterResult(error_code=Code.SECURITY_DISABLED, error_message=_REASON)
    return Reply.now(encode_response(request, DeleteAclsResponse(filter_results=[refused] * len(message.filters))))


HANDLERS = {"DescribeAcls": handle_describe, "CreateAcls": handle_create, "DeleteAcls": handle_delete}
